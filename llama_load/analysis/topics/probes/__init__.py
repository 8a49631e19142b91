"""What a bystander felt: probes beside the load (--probe-rate).

Their figures are computed before the verdict, which judges them: see
`analysis.figures.probe_figures`.
"""

from __future__ import annotations

from llama_load.analysis.figures.probe_figures import ProbeFigures
from llama_load.analysis.topics.probes.probe_tables import probe_tables, probes_plain
from llama_load.analysis.topics.topic import RequestChart, Topic, TopicInput
from llama_load.run_folder import Run
from llama_load.run_folder.observed.probe_names import BESIDE


def _figures(given: TopicInput) -> ProbeFigures | None:
    return given.probes


def _charts(figures: ProbeFigures, run: Run) -> list[RequestChart]:
    """Their TTFT, without those sent before the load."""
    if run.probes is None or not figures.total.ttft.count:
        return []
    beside = run.probes.where(run.probes.equals("name", BESIDE))
    return [RequestChart("TTFT of the probes over time", beside)]


PROBES = Topic(
    "probes",
    _figures,
    probe_tables,
    probes_plain,
    charts=_charts,
    chinese={
        "TTFT of the probes over time": "探测请求的 TTFT 随时间变化",
        "Probes: What a Bystander Feels": "探测请求：旁观者的感受",
        "Probes by Stage": "各阶段的探测请求",
        "Probes over Time": "探测请求随时间变化",
        "neighbours": "同时进行的任务",
        "probes": "探测请求",
        "x alone": "相对单独",
        "alone, before the load": "单独，负载之前",
        "beside the load": "与负载同时",
    },
)
