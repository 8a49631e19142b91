"""A run of an hour or more: what drifts, and when failures came together."""

from llama_load.analysis.topics.soak.soak_figures import soak_figures
from llama_load.analysis.topics.soak.soak_tables import soak_plain, soak_tables
from llama_load.analysis.topics.topic import Topic

SOAK = Topic(
    "soak",
    soak_figures,
    soak_tables,
    soak_plain,
    chinese={
        "Drift over {hours} Hours": "{hours} 小时内的漂移",
        "per hour": "每小时",
        "95 % interval": "95 % 区间",
        "* the interval leaves out zero: it drifts": "* 区间不含零：存在漂移",
    },
)
