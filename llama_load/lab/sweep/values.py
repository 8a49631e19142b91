"""What a column of a table can show, by name, with its headings in English and Chinese."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from llama_load.ground.errors import did_you_mean
from llama_load.ground.languages import CHINESE
from llama_load.lab.sweep.grammar import REQUESTS
from llama_load.run_folder.vocabulary.threshold_keys import threshold_keys

HIGHER = "max"
LOWER = "min"
# Percentiles that a run may report; a column of one that the run's --metric-percentiles lack is NA.
_PERCENTILES = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9)
BY_GPU = "vram_by_gpu"
# How names begin that are not values of this list: a text of its own, a flag of the server's
# command line, a variable of its environment, a figure of summary.json.
CONSTANT = "="
ARGUMENT = "arg:"
VARIABLE = "env:"
PATH = "llama_load."


@dataclass(frozen=True, slots=True)
class Value:
    """A value: its headings and what it is.

    `decimals`: digits behind the point; `best`: whether more or less is better.
    """

    key: str
    english: str
    chinese: str
    help: str
    decimals: int = 2
    best: str = ""
    is_text: bool = False

    def heading(self, language: str) -> str:
        """The heading in this language."""
        return self.chinese if language == CHINESE else self.english


def _text_value(key: str, english: str, chinese: str, help_: str) -> Value:
    return Value(key, english, chinese, help_, is_text=True)


FACTS = (
    _text_value("server", "Server", "服务端", "the server's label"),
    _text_value(
        "backend",
        "Backend",
        "后端",
        "llama.cpp, vLLM, llama-cpp-python, or the plan's own text",
    ),
    _text_value("model", "Model", "模型", "the model's file or name"),
    _text_value(
        "model_type",
        "Model type",
        "模型类型",
        "architecture, size and quantization of the .gguf file, as in llama-bench",
    ),
    _text_value(
        "size", "Size", "大小", "bytes of the model's tensors, as in llama-bench"
    ),
    _text_value(
        "file_size",
        "Size",
        "大小",
        "size of the model's file or folder, in GB of 10^9 bytes",
    ),
    _text_value(
        "params", "Params", "参数量", "parameters in billions, as in llama-bench"
    ),
    _text_value(
        "quantization",
        "Quantization",
        "量化",
        "of the .gguf file, such as Q4_K - Medium",
    ),
    _text_value(
        "gpus",
        "GPUs",
        "显卡数量",
        "number of GPUs: CUDA_VISIBLE_DEVICES, else those detected",
    ),
    _text_value(
        "server_threads",
        "Threads",
        "线程数",
        "threads of llama.cpp, by the server's log",
    ),
    _text_value(
        "accepted_by_position",
        "Accepted by position",
        "各位置接受率",
        "share of drafts whose first, second, … token was accepted",
    ),
    _text_value("workload", "Workload", "负载类型", "the workload's label"),
    _text_value("load", "Load", "负载", "the load's label"),
    _text_value(
        "concurrency",
        "Concurrency",
        "并发",
        "requests in flight, such as c=8; in an open loop the rate",
    ),
    _text_value("test", "Test", "测试", "the test, such as pp512 or tg128 @ d4096"),
    _text_value("depth", "Depth", "深度", "tokens in the context before the test"),
    _text_value("repeats", "Repeats", "重复次数", "number of runs behind the row"),
    _text_value("verdict", "Verdict", "判定", "the gravest of the runs' verdicts"),
    _text_value(
        "capacity_interval",
        "95 % interval",
        "95 % 区间",
        "interval of a searched capacity, such as 19 to 21 users",
    ),
    _text_value(
        "binds",
        "Binds",
        "受限于",
        "the objective that the fewest requests met above a searched capacity",
    ),
    _text_value(
        "reasons",
        "Failure Reasons",
        "失败原因",
        "classes of failed requests with their counts",
    ),
    _text_value(
        "succeeded",
        "Succeeded",
        "成功请求",
        "successful requests of all, such as 12/20",
    ),
)
FIGURES = (
    Value(
        "duration",
        "Duration (s)",
        "耗时 (s)",
        "duration of the measurement, s",
        best=LOWER,
    ),
    Value(
        "request_throughput",
        "Req/s",
        "请求/s",
        "successful requests per second",
        best=HIGHER,
    ),
    Value(
        "output_throughput",
        "Output Tok/s",
        "每秒生成 Tokens",
        "output tokens per second of all requests together",
        best=HIGHER,
    ),
    Value(
        "total_token_throughput",
        "Total Tok/s",
        "每秒总 Tokens",
        "prompt and output tokens per second",
        best=HIGHER,
    ),
    Value(
        "mean_ttft_ms",
        "Mean TTFT (ms)",
        "平均首 Token 延迟 (ms)",
        "mean time to first token, ms",
        best=LOWER,
    ),
    Value(
        "mean_tpot_ms",
        "Mean TPOT (ms)",
        "平均每 Token 耗时 (ms)",
        "mean time per output token, ms",
        best=LOWER,
    ),
    Value(
        "mean_e2el_ms",
        "Mean E2EL (ms)",
        "平均总延迟 (ms)",
        "mean end-to-end latency, ms",
        best=LOWER,
    ),
    Value(
        "success_rate",
        "Success Rate",
        "成功率",
        "per cent of the ended requests",
        1,
        HIGHER,
    ),
    Value(
        "chars_per_s",
        "Chars/s",
        "每秒生成字符",
        "output characters per second",
        best=HIGHER,
    ),
    Value(
        "capacity",
        "Capacity",
        "容量",
        "with `search`: the most users, or requests/s, within its objectives",
        best=HIGHER,
    ),
    Value(
        "server_start_s",
        "Start (s)",
        "启动耗时 (s)",
        "from the start of the server's process until it was ready, s",
        best=LOWER,
    ),
    Value(
        "cold_start_s",
        "Cold start (s)",
        "冷启动首 Token (s)",
        "server_start_s + TTFT of the first request; needs --warmup 0",
        3,
        LOWER,
    ),
    Value(
        "ts",
        "t/s",
        "t/s",
        "tokens per second of a test: mean of the requests' rates, ± their sample deviation",
        best=HIGHER,
    ),
    Value("perplexity", "PPL", "困惑度", "perplexity of the text", 4, LOWER),
    Value(
        "bits_per_byte",
        "Bits/byte",
        "比特/字节",
        "comparable between vocabularies",
        4,
        LOWER,
    ),
    Value(
        BY_GPU,
        "VRAM (MiB), GPU",
        "显存 (MiB) GPU",
        "peak memory of each GPU in use, a column per GPU, MiB",
        0,
    ),
    Value(
        "vram_mib",
        "VRAM (MiB)",
        "显存 (MiB)",
        "peak memory of all GPUs in use, MiB",
        0,
        LOWER,
    ),
    Value(
        "server_cpu_cores",
        "Server CPU (cores)",
        "服务器 CPU (核)",
        "cores that the server's processes used, where telemetry saw them",
        2,
    ),
    Value(
        "server_memory_mib",
        "Server memory (MiB)",
        "服务器内存 (MiB)",
        "peak resident memory of the server's processes, MiB",
        0,
    ),
)
# Of a table with a row per request.
OF_REQUESTS = (
    _text_value("task", "Task", "任务", "the request's workload"),
    Value("elapse_s", "Elapse", "耗时", "E2EL, s", 1),
    Value(
        "tokens_per_s",
        "Tokens Per Second",
        "每秒 Tokens",
        "(prompt + output tokens) / E2EL",
        1,
    ),
    Value(
        "prompt_per_s",
        "Prompt Per Second",
        "每秒提示 Tokens",
        "prompt tokens/s, by the server if it reports them",
        1,
    ),
    Value(
        "predict_per_s",
        "Predict Per Second",
        "每秒生成 Tokens",
        "output tokens/s, by the server if it reports them",
        2,
    ),
    Value("prompt_tokens", "Prompt", "提示", "prompt tokens", 0),
    Value("predict_tokens", "Predict", "生成", "output tokens", 0),
)
BY_KEY = {value.key: value for value in (*FACTS, *FIGURES, *OF_REQUESTS)}
_REQUEST_KEYS = frozenset(value.key for value in OF_REQUESTS)


def value_fault(name: str, settings: Collection[str], rows: str = "") -> str:
    """Why a column cannot show this; empty if it can."""
    if name.startswith((CONSTANT, ARGUMENT, VARIABLE, PATH)) or name in settings:
        return ""
    if name in _REQUEST_KEYS and rows != REQUESTS:
        return f"{name} is a value of single requests; it needs rows: {REQUESTS}"

    of_summary = threshold_keys(_PERCENTILES)
    if name in BY_KEY or name in of_summary:
        return ""
    advice = did_you_mean(name, [*BY_KEY, *settings, *of_summary])
    return f"there is no value {name}{advice or '; docs/sweep-plans.md lists them'}"


def describe(name: str) -> Value:
    """The value's card; for keys of summary.json and settings one made from the name."""
    if name in BY_KEY:
        return BY_KEY[name]
    if name.startswith(f"{BY_GPU}."):
        card = BY_KEY[BY_GPU]
        number = name.removeprefix(f"{BY_GPU}.")
        english = f"{card.english} {number}"
        return replace(
            card, key=name, english=english, chinese=f"{card.chinese} {number}"
        )

    if name in threshold_keys(_PERCENTILES):
        best = ""
        if name.endswith(("throughput", "goodput")):
            best = HIGHER
        elif name.endswith("_ms"):
            best = LOWER
        return Value(name, name, name, "a key of summary.json", best=best)
    if name.startswith(PATH):
        heading = name.removeprefix(PATH)
        return Value(
            name, heading, heading, "a figure below llama_load in summary.json"
        )

    for prefix in (CONSTANT, ARGUMENT, VARIABLE):
        name = name.removeprefix(prefix)
    return Value(name, name, name, "a setting", is_text=True)
