"""Users who hung up (--abort-rate): what they cost, and what the others felt of it."""

from llama_load.analysis.topics.hang_ups.hang_up_figures import hang_ups
from llama_load.analysis.topics.hang_ups.hang_up_tables import (
    hang_up_plain,
    hang_up_tables,
)
from llama_load.analysis.topics.topic import Topic

HANG_UPS = Topic(
    "hang_ups",
    hang_ups,
    hang_up_tables,
    hang_up_plain,
    chinese={
        "Users Who Hung Up": "中途放弃的用户",
        "value": "值",
        "requests given up": "被放弃的请求",
        "before their first token": "在首个 token 之前放弃",
        "wasted tokens": "浪费的 tokens",
        "median TTFT of these (ms)": "其 TTFT 中位数 (ms)",
        "median time until given up (ms)": "放弃前等待时间中位数 (ms)",
        "others' median gap, {s} s after (ms)": "其他请求在其后 {s} s 内的间隔中位数 (ms)",
        "others' median gap, else (ms)": "其他请求在其余时间的间隔中位数 (ms)",
        "others' longest gap, {s} s after (ms)": "其他请求在其后 {s} s 内的最长间隔 (ms)",
        "others' longest gap, else (ms)": "其他请求在其余时间的最长间隔 (ms)",
        "slot free after, median (ms)": "槽位释放用时中位数 (ms)",
        "slot free after, P99 (ms)": "槽位释放用时 P99 (ms)",
        "slot free after, longest (ms)": "槽位释放最长用时 (ms)",
        "not known when free": "释放时间未知",
        "never freed": "从未释放",
        "most at work for users who had gone": "最多同时为已离开的用户工作的请求",
        "idle after the last request (ms)": "最后一个请求之后空闲用时 (ms)",
    },
)
