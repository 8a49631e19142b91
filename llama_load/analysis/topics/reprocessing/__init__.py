"""Why prompts were processed again that the server had."""

from llama_load.analysis.topics.reprocessing.causes import (
    ADAPTER,
    BLOCKS,
    CACHE_OFF,
    CLEARED,
    EVICTED,
    OTHER_SERVER,
    OTHER_SLOT,
    PREEMPTED,
    ROUNDED,
    SHIFT,
    SLEPT,
    TAKEN,
    TEMPLATE,
    TEXT,
    WINDOW,
)
from llama_load.analysis.topics.reprocessing.reprocessed_turns import (
    ReprocessedTurn,
    RunFacts,
    TurnTable,
    cacheable_tokens,
    lost_tokens,
)
from llama_load.analysis.topics.reprocessing.reprocessing_figures import (
    is_without_cache,
    reprocessing,
    reprocessing_figures,
)
from llama_load.analysis.topics.reprocessing.reprocessing_tables import (
    COULD,
    reprocessing_headline,
    reprocessing_tables,
)
from llama_load.analysis.topics.topic import Topic

__all__ = [
    "REPROCESSING",
    "ReprocessedTurn",
    "RunFacts",
    "TurnTable",
    "cacheable_tokens",
    "is_without_cache",
    "lost_tokens",
    "reprocessing_figures",
    "reprocessing_headline",
    "reprocessing_tables",
]

REPROCESSING = Topic(
    "reprocessing",
    reprocessing,
    reprocessing_tables,
    headline=reprocessing_headline,
    chinese={
        "Prompts Processed Again": "被重新处理的提示词",
        "cause": "原因",
        "of prefill": "占预填充",
        "first seen": "首次出现",
        CACHE_OFF: "缓存已关闭",
        OTHER_SERVER: "由另一个服务器处理",
        ADAPTER: "另一个 LoRA",
        TEXT: "文本已改变",
        TEMPLATE: "聊天模板改变了之前的文本",
        WINDOW: "滑动窗口或循环记忆",
        SHIFT: "上下文移位",
        TAKEN: "槽位被另一个对话占用",
        EVICTED: "已从 --cache-ram 中移除",
        PREEMPTED: "抢占释放了它的块",
        BLOCKS: "已从 KV 缓存的块中移除",
        ROUNDED: "按块大小取整",
        CLEARED: "槽位已被清空",
        SLEPT: "服务器休眠过",
        OTHER_SLOT: "选择了另一个槽位",
        COULD: (
            "可缓存的是对话上一轮的提示词，否则是服务器之前已有的最长开头；"
            "耗时按该请求每个 token 的预填充时间计算。"
        ),
    },
)
