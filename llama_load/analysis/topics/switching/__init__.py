"""The price of switching between models or LoRA adapters."""

from llama_load.analysis.topics.switching.switch_figures import switching
from llama_load.analysis.topics.switching.switch_tables import switch_tables
from llama_load.analysis.topics.topic import Topic

SWITCHING = Topic(
    "switching",
    switching,
    switch_tables,
    chinese={
        "Switching between Models": "模型之间的切换",
        "Switching between Adapters": "适配器之间的切换",
        "adapter": "适配器",
        "beside": "同时",
        "same {}": "相同{}",
        "another before": "之前是另一个",
        "another beside": "同时有另一个",
    },
)
