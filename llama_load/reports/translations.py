"""The headings and labels of report.md and report.html in other languages: one table, English to Chinese.

Sentences of the verdict, names of metrics in the block and what people wrote themselves stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable

from llama_load.languages import CHINESE

Translate = Callable[[str], str]

ZH = {
    # headings
    "Verdict": "结论",
    "Contents": "目录",
    "Figures": "主要指标",
    "Failures": "失败的请求",
    "Latencies": "延迟",
    "Stages": "各阶段",
    "Workloads": "各任务",
    "Servers": "各服务器",
    "Models": "各模型",
    "LoRA adapters": "各 LoRA 适配器",
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
    "Waits are included in durations and in those alive; requests and tokens are means of those sent to their end.": (
        "时长和进行中的对话数均含等待；请求数与 tokens 为已发送到最后一轮的对话的均值。"
    ),
    "Durations count conversations that were cut off as such (Kaplan-Meier).": "被截断的对话在时长中按截断处理（Kaplan-Meier）。",
    "all": "全部",
    "{rate} conversations per minute": "每分钟 {rate} 个对话",
    "turn": "轮次",
    "sub-agent": "子代理",
    "cached": "缓存",
    "cached %": "缓存 %",
    "Tokens are means of a request, TTFT is a median.": "tokens 为每个请求的均值，TTFT 为中位数。",
    "Where the time went": "时间花在哪里",
    "Distributions": "延迟分布",
    "Over time": "随时间变化",
    "TTFT of the probes over time": "探测请求的 TTFT 随时间变化",
    "Telemetry": "资源监控",
    "Length of the prompt": "提示词长度",
    "Slowest requests": "最慢的请求",
    "Checks of the verdict": "结论的各项检查",
    "Before the run": "测试前检查",
    "How it was run": "运行方式",
    "Besides LLM requests": "LLM 请求之外",
    "The block as printed": "终端输出原文",
    "Files of the run folder": "结果文件夹中的文件",
    "What these words mean": "术语说明",
    # what was measured, in sentences
    "Server": "服务器",
    "Copy as Markdown": "复制为 Markdown",
    "Its settings": "服务器设置",
    "unknown": "未知",
    "Latencies of all stages together, a mixture of loads": "所有阶段合并的延迟（多种负载混合）",
    "For {share} of its time a request waited in the client for its turn (--max-concurrency)": (
        "请求时间的 {share} 在客户端排队（--max-concurrency）"
    ),
    "{share} of a request's time went to tries that the server refused: fewer users, or a longer queue there": (
        "请求时间的 {share} 用于被服务器拒绝的尝试：减少用户，或加长服务器队列"
    ),
    "For {share} of its time a request waited for one of the server's slots ({slots}): more slots or fewer users": (
        "请求时间的 {share} 在等待服务器的 slot（共 {slots} 个）：增加 slot 或减少用户"
    ),
    "For {share} of its time a request waited while the server worked on the prompts of others": (
        "请求时间的 {share} 在等待服务器处理其他请求的提示词"
    ),
    "For {share} of a request's time the server read its images: smaller images, or a faster server": (
        "请求时间的 {share} 用于服务器读取图片：缩小图片，或换更快的服务器"
    ),
    "For {share} of a request's time the server read its prompt: shorter prompts, or a larger batch": (
        "请求时间的 {share} 用于服务器处理提示词：缩短提示词，或增大 batch"
    ),
    "For {share} of a request's time the server generated its answer, so the speed of decoding decides": (
        "请求时间的 {share} 用于生成回答，因此解码速度是关键"
    ),
    "For {share} of a request's time the server generated its answer beside the prompts of others": (
        "请求时间的 {share} 用于在处理其他提示词的同时生成回答"
    ),
    "{share} of a request's time went to the network between client and server": "请求时间的 {share} 用于客户端与服务器之间的网络",
    "not known": "未知",
    "Not even {next} carries {objectives}: fewer than {share} of the requests met them.": (
        "即使在 {next} 下，满足 {objectives} 的请求也不到 {share}。"
    ),
    "Which load is within {objectives} is not known: {next} was not judged ({why}).": (
        "无法得知哪个负载满足 {objectives}：{next} 未能判定（{why}）。"
    ),
    "Carries at least {load} with {share} of the requests within {objectives}; {next} was not judged ({why}).": (
        "至少可承载 {load}，其中 {share} 的请求满足 {objectives}；{next} 未能判定（{why}）。"
    ),
    "Carries {load}, the largest load, with {share} of the requests within {objectives}.": (
        "可承载最大负载 {load}，其中 {share} 的请求满足 {objectives}。"
    ),
    "Carries {load} with {share} of the requests within {objectives}.": "可承载 {load}，其中 {share} 的请求满足 {objectives}。",
    "time to first token: from the start of a request, connecting included, to the first token of its answer": (
        "首 token 延迟：从请求开始（含建立连接）到回答的第一个 token"
    ),
    "time per output token: (last token - first token) / (output tokens - 1), one mean per request": (
        "每个输出 token 的时间：(最后一个 token - 第一个 token) / (输出 tokens - 1)，每个请求一个均值"
    ),
    "inter-token latency: every gap between two token events, of all requests together": (
        "token 间延迟：所有请求中相邻两个 token 事件之间的每个间隔"
    ),
    "end-to-end latency: from the start of a request to the last token of its answer": (
        "端到端延迟：从请求开始到回答的最后一个 token"
    ),
    "requests, stages or workers are missing from the records": "记录中缺少请求、阶段或 worker",
    "over 1 % of the requests failed": "超过 1 % 的请求失败",
    "something other than the configured load was measured": "测到的不是所配置的负载",
    "the client was too slow: delays of its own are part of the figures": "客户端太慢：其自身的延迟混入了数据",
    "some figures, which are marked, are not what they seem; the others can be used": "部分数据（已标记）并不可靠；其余数据可用",
    "no check found a reason against the figures; where it says as far as seen, some checks could not judge": (
        "没有检查发现数据有问题；若注明“就所见而言”，则有些检查无法判断"
    ),
    "99 % of the values are at most this large; it needs 100 values, p99.9 needs 1,000": (
        "99 % 的数值不超过它；需要 100 个数值，p99.9 需要 1,000 个"
    ),
    "8 requests in flight at any time: each user sends the next one when the last one is answered": (
        "任何时刻都有 8 个请求在途：每个用户得到回答后才发送下一个"
    ),
    "Settings": "设置",
    "seed": "随机种子",
    "endpoint": "接口",
    "data set": "数据集",
    "prompt tokens counted by": "输入 tokens 计数方式",
    "client": "客户端",
    "workers": "worker 数",
    "The servers as they described themselves": "服务器自述",
    # the verdict
    "VALID": "VALID（有效）",
    "VALID as far as seen": "VALID as far as seen（就所见而言有效）",
    "BLURRED": "BLURRED（部分数据不可靠，已标记）",
    "CLIENT-BOUND": "CLIENT-BOUND（客户端成为瓶颈）",
    "NOT COMPARABLE": "NOT COMPARABLE（不可比较）",
    "FAILED": "FAILED（失败过多）",
    "INCOMPLETE": "INCOMPLETE（数据不完整）",
    "All checks are within their limits.": "所有检查都在限度之内。",
    "This report was rebuilt from the files of an interrupted run.": "本报告由一次中断的测试留下的文件重建。",
    "Check": "检查",
    "Limit": "限度",
    "Result": "结果",
    "What to do": "处理办法",
    "Notes": "说明",
    "Same": "稳定",
    "Asked": "如所要求",
    "Counted": "计数一致",
    "Alive": "真实生成",
    "Alone": "无干扰",
    "Seen": "测量完整",
    "the server was the same all the time": "服务器始终如一",
    "every request carried and got what was configured": "每个请求都按配置发送并得到相应的回答",
    "every count has two sources where possible, and they agree": "每项计数尽可能有两个来源，且彼此一致",
    "answers were generated: not refused, empty, equal or cached": "回答确由模型生成：非拒答、空答、雷同或缓存",
    "nothing else used the server, the client's machine or the way between them": "服务器、客户端机器及其间的链路没有他用",
    "the client measured everything in time and lost nothing": "客户端及时测量，没有遗漏",
    # titles and cards
    "1 request": "1 个请求",
    "{count} requests": "{count} 个请求",
    "{count} stages": "{count} 个阶段",
    "{rate} per second": "每秒 {rate} 个",
    "{count} at a time": "并发 {count}",
    "replayed from a trace": "按轨迹重放",
    "Successful": "成功",
    "of {count}": "/ {count}",
    "{count} failed": "失败 {count}",
    "none failed": "无失败",
    "{count} cut": "截断 {count}",
    "Output": "输出速度",
    "{count} for one user": "单用户 {count}",
    "Requests": "请求",
    "{count} within the objectives": "达到目标 {count}",
    "Duration": "总时长",
    "at most {count} in flight": "最大并发 {count}",
    "GPU memory, peak": "显存占用峰值",
    "GPUs: {count}": "GPU 数：{count}",
    "Power": "功率",
    "mean {value}": "平均 {value}",
    # columns
    "mean": "平均",
    "median": "中位数",
    "maximum": "最大",
    "values": "样本数",
    "requests": "请求数",
    "failed": "失败",
    "request": "请求",
    "workload": "任务",
    "model": "模型",
    "status": "状态",
    "stage": "阶段",
    "start (s)": "开始 (s)",
    "took (s)": "耗时 (s)",
    "prompt tokens": "输入 tokens",
    "output tokens": "输出 tokens",
    "tokens/s": "tokens/s",
    "req/s": "请求/s",
    "measured": "测得值",
    "share": "占比",
    "Class": "类别",
    "When": "时间",
    "What to change": "如何处理",
    "Most frequent messages": "最常见的错误信息",
    "Failed": "失败",
    "Mean (ms)": "平均 (ms)",
    "Max (ms)": "最大 (ms)",
    "First failure": "第一次失败",
    "exception in a task": "任务中的异常",
    "Model": "模型",
    "Concurrency": "并发数",
    "Duration (s)": "总时长 (s)",
    "Req/s": "请求吞吐 (req/s)",
    "Output Tok/s": "输出吞吐 (tok/s)",
    "Total Tok/s": "总吞吐 (tok/s)",
    "Mean TTFT (ms)": "平均 TTFT (ms)",
    "Mean TPOT (ms)": "平均 TPOT (ms)",
    "Output tok/s, all users": "输出 tok/s，全部用户",
    "Output tok/s, one user": "输出 tok/s，单用户",
    "Prompts": "提示词",
    "Task": "任务",
    "Elapse": "耗时 (s)",
    "Tokens Per Second": "总速度 (tok/s)",
    "Prompt Per Second": "预填充速度 (tok/s)",
    "Predict Per Second": "生成速度 (tok/s)",
    "Prompt": "输入",
    "Predict": "输出",
    # notes below tables
    "p{p} needs {count} values": "p{p} 需要 {count} 个样本",
    "Latencies are medians, in ms; p99 only where there are enough values.": "延迟为中位数，单位 ms；p99 只在样本足够时给出。",
    "The first {shown} of {all}.": "共 {all} 项，显示前 {shown} 项。",
    "Bold: best of its column, among comparable stages.": "粗体：可比较的阶段中该列最好的值。",
    "Means of a request.": "每个请求的平均值。",
    # where the time went (metrics.time_parts)
    "client queue": "客户端排队",
    "refused tries and pauses": "被拒绝的尝试与等待",
    "connect and send": "连接与发送",
    "wait for a slot": "等待 slot",
    "wait for other prompts' batches": "等待其他请求的预填充批次",
    "image encoding and prefill": "图像编码与预填充",
    "prefill": "预填充",
    "decode alone": "单独解码",
    "decode while others are prefilled": "他人预填充期间的解码",
    "network and stream": "网络与流",
    "not attributed": "未归因",
    # latencies
    "Time to First Token": "首 token 延迟",
    "Time per Output Token (excl. 1st token)": "每个输出 token 的时间（不含首 token）",
    "Inter-token Latency": "token 间延迟",
    "End-to-end Latency": "总生成延迟",
    # charts
    "share of values": "累计比例",
    "time (s)": "时间 (s)",
    "all requests": "全部请求",
    "all values": "全部值",
    "the median": "中位数",
    "a request": "一个请求",
    "a failure": "一次失败",
    "start of the request": "请求开始",
    "requests in flight": "并发请求数",
    "failed requests": "失败的请求",
    "failed requests/s": "失败请求/s",
    "successful": "成功",
    "output tokens/s": "输出 tokens/s",
    "requests/s": "请求/s",
    "waiting in the client": "在客户端等待",
    "waiting for the first token": "等待首 token",
    "receiving tokens": "接收 token",
    "cut at the end": "结束时截断",
    "Load over time": "负载随时间变化",
    "Output tokens per second over time": "每秒输出 token 数随时间变化",
    "Requests per second over time": "每秒请求数随时间变化",
    "Requests over time": "各请求的时间线",
    "TTFT against prompt tokens": "TTFT 与输入长度",
    "Throughput against the speed of one user": "总吞吐与单用户速度",
    "output tokens/s, one user": "输出 tokens/s，单用户",
    "output tokens/s, all users": "输出 tokens/s，全部用户",
    "comparable": "可比较",
    "not comparable": "不可比较",
    "knee: the most of both together (their product)": "拐点：两者之积最大",
    "The knee is at {name}: {total} tokens/s, {each} for each user.": "拐点在 {name}：{total} tokens/s，每个用户 {each}。",
    "{name} over time": "{name} 随时间变化",
    "At most {most} requests in flight.": "最大并发 {most}。",
    "Means of {width} s.": "每 {width} s 的平均值。",
    "In bins of {width} s.": "每 {width} s 一格。",
    "A row holds one request at a time.": "每一行同一时刻只有一个请求。",
    "The first {shown} of {all} rows.": "共 {all} 行，显示前 {shown} 行。",
    "{shown} of {all} requests: those from the middle of the run, {begin} to {end} s.": (
        "共 {all} 个请求，显示中段的 {shown} 个：{begin} 至 {end} s。"
    ),
    "{count} requests, each from its start to its end, up to {rows} at once.": "{count} 个请求的起止时间，最多同时 {rows} 个。",
    "Dots: {shown} of {all} requests, evenly chosen, and the slowest. Curves: of all.": (
        "点：从 {all} 个请求中均匀选取 {shown} 个，并含最慢的；曲线：全部请求。"
    ),
    "Dots: {shown} of {all} requests, evenly chosen, and the slowest.": "点：从 {all} 个请求中均匀选取 {shown} 个，并含最慢的。",
    "Percentiles to within 5 %, of all gaps between tokens.": "全部 token 间隔的百分位数，误差 5 % 以内。",
    "Output tokens/s over time: at most {most} in a bin.": "每秒输出 token 数：一格最多 {most}。",
    "Requests per second over time: at most {most} in a bin.": "每秒请求数：一格最多 {most}。",
    "Output tokens/s of all users against those of one user, at {count} loads.": "{count} 种负载下总吞吐与单用户速度。",
    "{name}: median {median}, p99 {p99}, maximum {most}, of {count} values.": (
        "{name}：中位数 {median}，p99 {p99}，最大 {most}，样本数 {count}。"
    ),
    "{name} of requests with {low} to {high} prompt tokens.": "输入为 {low} 到 {high} tokens 的请求的 {name}。",
    "{name} over time: {what} between {low} and {high}.": "{name} 随时间变化：{what} {low} 至 {high}。",
    "{name} over time: at most {most}.": "{name} 随时间变化：最大 {most}。",
    # telemetry
    "GPU utilization (%)": "GPU 利用率 (%)",
    "GPU memory (GiB)": "显存占用 (GiB)",
    "Power (W)": "功率 (W)",
    "GPU temperature (°C)": "GPU 温度 (°C)",
    "CPU (cores)": "CPU（核）",
    "Memory (GiB)": "内存 (GiB)",
    "Requests in the server": "服务器中的请求",
    "KV cache in use (%)": "KV 缓存使用率 (%)",
    "Preemptions per second": "每秒抢占次数",
    "Cached prompt tokens per second": "每秒命中缓存的提示 token 数",
    "prompt cache": "提示缓存",
    "external cache": "外部缓存",
    "power command": "整机功率命令",
    "server": "服务器进程",
    "host": "整机",
    "processing": "处理中",
    "waiting": "等待中",
    "GPUs": "GPU",
    "Stage": "阶段",
    "VRAM (MiB)": "显存占用 (MiB)",
    "Output tokens/s": "输出 tokens/s",
    "Output characters/s": "输出字符/s",
    "idle": "空闲 (MiB)",
    "peak MiB": "峰值 (MiB)",
    "util %": "利用率 %",
    "W": "功率 (W)",
    "limit": "上限 (W)",
    "throttled %": "降频 %",
    "GPUs in use": "使用的 GPU 数",
    "VRAM, idle after load (MiB)": "加载后空闲显存占用 (MiB)",
    "VRAM, mean (MiB)": "显存占用平均 (MiB)",
    "VRAM, peak (MiB)": "显存占用峰值 (MiB)",
    "GPU utilization (0 to 1)": "GPU 利用率 (0 至 1)",
    "GPU power (W)": "GPU 功率 (W)",
    "Energy (J)": "能耗 (J)",
    "Energy per output token (J)": "每输出 token 能耗 (J)",
    "Energy per request (J)": "每请求能耗 (J)",
    "Output tokens per joule": "每焦耳输出 tokens",
    "Cost": "成本",
    "Cost per million output tokens, all in": "每百万输出 tokens 总成本",
    "Cost per million input tokens, all in": "每百万输入 tokens 总成本",
    "Cost of decode per million output tokens": "每百万输出 tokens 解码成本",
    "Cost of prefill per million input tokens": "每百万输入 tokens 预填充成本",
    "Host CPU (cores)": "整机 CPU（核）",
    "Host memory, peak (MiB)": "整机内存峰值 (MiB)",
    "Network received (bytes/s)": "网络接收 (字节/s)",
    "Network sent (bytes/s)": "网络发送 (字节/s)",
    "Server CPU (cores)": "服务器 CPU（核）",
    "Server memory, peak (MiB)": "服务器内存峰值 (MiB)",
    "Telemetry's own CPU (cores)": "监控自身 CPU（核）",
}


def translator(language: str) -> Translate:
    """A function from an English heading to the same in this language; what the table lacks stays English."""
    return (lambda text: ZH.get(text, text)) if language == CHINESE else (lambda text: text)
