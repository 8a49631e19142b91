"""What a start does not import: each of these takes longer than all else that is done with it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, SHAREGPT, Simulated, environment, locust_command

SHOW = "import sys; print(*sys.modules)"
# Locust itself imports flask, requests and jinja2.
OF_NO_START = (
    "bokeh",
    "pandas",
    "datasets",
    "pyarrow.parquet",
    "tokenizers",
    "PIL",
    "llama_load.analysis.reports.html",
)
OF_THE_MASTER = (
    "pyarrow.compute",
    "rich",
    "llama_load.loadgen.preflight",
    "llama_load.analysis.comparison",
    "llama_load.page",
    "llama_load.analysis.results.results",
)
HELP = """
import sys
from llama_load.cli.main import main
try:
    main(["--help"])
except SystemExit:
    print()
"""
WORKER = "import sys, locust.main\nfrom llama_load import LlamaUser\n"

# A locustfile that lists the modules of its process when that ends.
JOB = """{sharegpt}

import atexit, pathlib, sys
atexit.register(lambda: pathlib.Path({listed!r}).write_text(" ".join(sys.modules)))
"""
OF_OTHER_JOBS = (
    "llama_load.cli.",
    "llama_load.analysis.comparison.",
    "llama_load.lab.",
    "llama_load.record.",
    "llama_load.page.",
    "llama_load.analysis.reports.comparison.",
    "llama_load.analysis.reports.exports.",
)
# Reports are handed to the run.
HANDED_IN = "llama_load.cli.reports_and_pages"
# Of 760 today: 508 with report.html.
MOST_MODULES = 525

PAGE = """
import sys
from pathlib import Path
from llama_load.analysis.results.results import analyze
from llama_load.analysis.reports.html.page import html_page
from llama_load.run_folder import Run
from tests.make_records import manifest, record, table
two = table(record(0), record(1, start_ms=100))
assert "data-chart" in html_page(analyze(Run(Path("run"), manifest(num_prompts=2), two, recovered=False)), "", "en")
"""


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        (
            HELP,
            (
                *OF_NO_START,
                *OF_THE_MASTER,
                "numpy",
                "pyarrow",
                "locust",
                "gevent",
                "flask",
                "requests",
                "jinja2",
                "psutil",
            ),
        ),
        (PAGE, ("bokeh", "pandas", "datasets")),
        (
            "import sys, llama_load.telemetry.sampler\n",
            (
                *OF_NO_START,
                "numpy",
                "msgspec",
                "gevent",
                "requests",
                "importlib.metadata",
                "prometheus_client",
            ),
        ),
    ],
    ids=["--help", "report.html", "telemetry"],
)
def test_a_start_imports_only_what_it_needs(code: str, absent: tuple[str, ...]) -> None:
    imported = imported_by(code)[-1]
    assert "llama_load" in imported and not imported & set(absent)


def test_a_worker_and_a_headless_run_import_only_what_they_need() -> None:
    """The second is the first and what follows."""
    code = f"{WORKER}{SHOW}\nimport llama_load.loadgen.swarm.lifecycle\n"
    worker, run = imported_by(code)
    assert "llama_load.loadgen.swarm.lifecycle" in run - worker
    assert not worker & {*OF_NO_START, *OF_THE_MASTER}
    assert not run & {*OF_NO_START}


def imported_by(code: str) -> list[set[str]]:
    """The modules at each line that a Python prints, of which the last is its end."""
    done = subprocess.run(
        [sys.executable, "-c", code + SHOW],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
        env=environment(),
    )
    return [set(line.split()) for line in done.stdout.splitlines()]


def test_a_whole_run_imports_no_laboratory_no_page_and_no_exporter(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """The main job, from its start to its reports: what is left belongs to it."""
    server = simulate("--first-token-ms", "5", "--interval-ms", "1")
    listed = tmp_path / "modules.txt"
    locustfile = tmp_path / "job.py"
    locustfile.write_text(
        JOB.format(sharegpt=SHAREGPT.read_text(encoding="utf-8"), listed=str(listed)),
        encoding="utf-8",
    )
    command = locust_command(
        server.url,
        tmp_path / "run",
        *("-u", "2", "--num-prompts", "4", "--max-tokens", "4"),
        locustfile=locustfile,
    )
    subprocess.run(
        command, capture_output=True, check=True, cwd=tmp_path, env=environment()
    )
    ours = [
        name
        for name in listed.read_text(encoding="utf-8").split()
        if name.startswith("llama_load.")
    ]
    assert "llama_load.analysis.reports.write" in ours
    others = [name for name in ours if name.startswith(OF_OTHER_JOBS)]
    assert others == [HANDED_IN]
    assert len(ours) <= MOST_MODULES
