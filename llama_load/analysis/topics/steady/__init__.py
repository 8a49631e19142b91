"""The steady part of a run: without its warm-up and its end, and before the server changed."""

from llama_load.analysis.topics.steady.steady_figures import steady_figures
from llama_load.analysis.topics.steady.steady_tables import steady_plain, steady_tables
from llama_load.analysis.topics.topic import Topic

STEADY = Topic(
    "steady",
    steady_figures,
    steady_tables,
    steady_plain,
    chinese={
        "Steady Part": "稳定阶段",
        "steady part": "稳定阶段",
        "whole run": "整个测试",
        "Request throughput (req/s)": "请求吞吐 (req/s)",
        "Output tok/s": "输出 tok/s",
    },
)
