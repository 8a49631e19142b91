"""What reports show of probes beside the load."""

from __future__ import annotations

from pathlib import Path

from llama_load.analysis.reports.html.page import html_page
from llama_load.analysis.results.results import analyze
from llama_load.run_folder import Run
from llama_load.run_folder.observed.probe_names import BESIDE
from tests.make_records import manifest, record, table


def test_report_html_draws_the_probes_that_were_sent_beside_the_load() -> None:
    requests = table(*(record(at, start_ms=150.0 * at) for at in range(8)))
    probes = table(
        *(
            record(at, start_ms=200.0 * at, workload="probe", name=BESIDE)
            for at in range(5)
        )
    )
    about = manifest(num_prompts=8, probe_rate_rps=5.0)
    run = Run(Path("run"), about, requests, recovered=False, probes=probes)

    assert "TTFT of the probes over time" in html_page(analyze(run), "", "en")
    assert "探测请求的 TTFT 随时间变化" in html_page(analyze(run), "", "zh")
