"""What the engine says of its caches and queues: tiers, reasons of waits, fetches, refusals."""

from llama_load.analysis.topics.engine.engine_figures import engine_figures
from llama_load.analysis.topics.engine.engine_tables import (
    engine_headline,
    engine_tables,
)
from llama_load.analysis.topics.topic import Topic

ENGINE = Topic(
    "engine",
    engine_figures,
    engine_tables,
    headline=engine_headline,
    chinese={
        "Prompt Tokens by Cache Tier": "各级缓存的 prompt token",
        "Waiting Requests by Reason": "按原因统计的等待请求",
        "Transfers between Engines": "引擎之间的传输",
        "Refused by the Engine": "被引擎拒绝的请求",
        "cache": "缓存",
        "prompt tokens": "prompt token",
        "share of the prompt": "占 prompt 的比例",
        "reason": "原因",
        "peak": "峰值",
        "transfers": "传输次数",
        "mean time (ms)": "平均时间 (ms)",
        "refused": "被拒绝",
    },
)
