"""Conversations: figures of whole ones, and of each turn."""

from llama_load.analysis.topics.conversations.conversation_tables import (
    CUT_OFF,
    TOKENS,
    WAITS,
    conversation_plain,
    conversation_tables,
    conversations,
)
from llama_load.analysis.topics.topic import Topic

CONVERSATIONS = Topic(
    "conversations",
    conversations,
    conversation_tables,
    conversation_plain,
    chinese={
        "Turns": "对话各轮",
        "Conversations": "对话",
        "Sent to their end": "已发送到最后一轮",
        "With a failed request": "有失败请求的对话",
        "Mean alive": "平均进行中的对话数",
        "Peak alive": "最多同时进行的对话数",
        "Mean requests in flight": "平均在途请求数",
        "Time without a request in flight (%)": "没有在途请求的时间 (%)",
        "Requests per conversation": "每个对话的请求数",
        "Prompt tokens per conversation": "每个对话的提示词 tokens",
        "Output tokens per conversation": "每个对话的输出 tokens",
        "Prompt tokens from the cache (%)": "来自缓存的提示词 tokens (%)",
        "{p} duration (s)": "{p} 时长 (s)",
        "{p} duration without waits (s)": "{p} 时长，不含等待 (s)",
        WAITS: (
            "时长和进行中的对话数均含等待；请求数与 tokens 为已发送到最后一轮的对话的均值。"
        ),
        CUT_OFF: "被截断的对话在时长中按截断处理（Kaplan-Meier）。",
        "turn": "轮次",
        "sub-agent": "子代理",
        "cached %": "缓存 %",
        TOKENS: "tokens 为每个请求的均值，TTFT 为中位数。",
    },
)
