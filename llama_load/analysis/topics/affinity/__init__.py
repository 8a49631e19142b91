"""Whether conversations stay with their replica."""

from llama_load.analysis.topics.affinity.affinity_figures import affinity
from llama_load.analysis.topics.affinity.affinity_tables import HIT, affinity_tables
from llama_load.analysis.topics.topic import Topic

AFFINITY = Topic(
    "affinity",
    affinity,
    affinity_tables,
    chinese={
        "Session Affinity": "会话亲和性",
        "Later Turns by Replica": "后续轮次与副本",
        "replica": "副本",
        "later turns": "后续轮次",
        "hits": "命中",
        "hit share": "命中率",
        "hit": "命中",
        "miss": "未命中",
        "turns": "轮次",
        HIT: "命中：后续轮次由上一轮的副本处理",
    },
)
