"""Blocks printed by `vllm bench serve` (old layouts too), vllm-bench and sglang's bench_serving, found in any text."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from llama_load.comparison.compared_figures import MOST_CHARS, identity_of
from llama_load.comparison.foreign_results import endpoint_of
from llama_load.comparison.side import SGLANG, VLLM_BENCH, VLLM_BENCH_SERVE, MeasuredRun
from llama_load.foreign_text import printable
from llama_load.metrics.definitions import FIGURES, LATENCIES
from llama_load.targets.apis import APIS

# More blocks in one text are not read.
MOST_BLOCKS = 1000
MOST_LINE_CHARS = 4000
ROUNDING = 0.01  # figures have two decimals
_HEAD = re.compile(r"(={3,}) Serving Benchmark Result (={3,})")
_END = re.compile(r"={20,}")
_FIGURE = re.compile(r"(?P<name>[A-Za-z][^:]{1,60}):\s+(?P<value>[-+0-9.eE]{1,30}|n/a|inf|not set|None|[\w.-]{1,40})\s*\*?")
_STATISTIC = re.compile(r"(?P<word>Mean|Median|Std|P\d{1,2}(?:\.\d{1,6})?) (?P<latency>.{1,30}) \(ms\)", re.IGNORECASE)
_PROGRESS = re.compile(r"\|\s*(\d{1,9})/(\d{1,9}) \[")
_MAIN_RUN = re.compile(r"starting main benchmark run", re.IGNORECASE)
_HEADING = re.compile(r"#{1,6}\s+(?P<text>\S.*)")
# A heading that is only a load, such as `c=8`: it belongs under the one before it.
_LOAD_HEADING = re.compile(r"(?:c|concurrency|users|rate|qps)\s*[=:]?\s*\d[\d.]*(?:/s)?", re.IGNORECASE)
_COMMAND = re.compile(
    r"(?:\$\s*)?(?:.*\s)?(?:vllm bench serve|vllm-bench|\S*benchmark_serving\.py|\S*bench_serving(?:\.py)?)(?=\s)(?P<rest>.*)"
)
_NAMESPACE = re.compile(r"Namespace\((?P<rest>.*)")
_ARGUMENT = re.compile(r"(?:^|, )(?P<name>\w{1,40})=(?P<value>'[^']{0,300}'|[^,()\[\]{}]{1,100})")
# Arguments that say what was measured.
ARGUMENTS = (
    *("model", "tokenizer", "dataset_name", "dataset_path", "num_prompts", "max_concurrency", "request_rate", "burstiness", "seed"),
    *("backend", "endpoint", "ignore_eos", "sharegpt_output_len", "random_input_len", "random_output_len", "random_range_ratio"),
)
_FIGURE_KEYS = {figure.line.lower(): figure.key for figure in FIGURES if figure.line}
_LATENCY_KEYS = {latency.name.lower(): latency.key for latency in LATENCIES} | {"e2e latency": "e2el"}
_RATE = "Request rate configured (RPS)"
_CONCURRENCY = ("maximum request concurrency", "max request concurrency", "max reqeuest concurrency")


@dataclass(slots=True)
class _Context:
    """What stands between two blocks."""

    heading: str = ""
    planned: int | None = None
    arguments: dict[str, str] = field(default_factory=dict)


def printed_runs(text: str, name: str) -> list[MeasuredRun]:
    """The run of each block in a text, named by the heading above it, else by `name` and its number.

    The lines above a block tell what its lines do not: the progress bar how many requests were sent (older blocks do not count
    failures), the command or Namespace(…) what was run.
    """
    runs: list[MeasuredRun] = []
    context, titles = _Context(), ""
    lines = iter(text.splitlines())
    for line in lines:
        line = line[:MOST_LINE_CHARS].lstrip("> \t")
        _note(line, context)
        if (heading := _HEADING.match(line)) is not None:
            titles = _title(heading["text"].strip(), titles)
            context = _Context(titles)  # what stands above a heading belongs to another block
        elif (head := _HEAD.search(line)) is not None:
            run = _run(head, _block(lines), context, f"{name}#{len(runs) + 1}")
            if run is not None:
                runs.append(run)
            if len(runs) == MOST_BLOCKS:
                break
            context = _Context()
    return runs


def _title(heading: str, before: str) -> str:
    """A heading, after the one above it where it is only a load: `Llama (FP16)`, then `c=8`: `Llama (FP16) c=8`."""
    if _LOAD_HEADING.fullmatch(heading) is None:
        return heading
    kept = re.sub(rf"(?<!\s)\s+{_LOAD_HEADING.pattern}$", "", before, flags=re.IGNORECASE)
    return f"{kept} {heading}".strip()


def _note(line: str, context: _Context) -> None:
    if _MAIN_RUN.search(line):
        context.planned = None  # bars above this line are of downloads and tokenizers
    for done, planned in _PROGRESS.findall(line):
        if done == planned:
            context.planned = int(planned)
    if (namespace := _NAMESPACE.search(line)) is not None:
        given = {match["name"]: match["value"].strip("'") for match in _ARGUMENT.finditer(namespace["rest"])}
        context.arguments |= {name: value for name, value in given.items() if name in ARGUMENTS and value != "None"}
    elif (command := _COMMAND.match(line)) is not None:
        context.arguments |= _flags(command["rest"])


def _flags(rest: str) -> dict[str, str]:
    """The flags of a command that say what was measured."""
    try:
        words = shlex.split(rest)
    except ValueError:
        words = rest.split()
    flags = {}
    for place, word in enumerate(words):
        flag, sign, value = word.partition("=")
        name = flag.lstrip("-").replace("-", "_")
        if flag.startswith("--") and name in ARGUMENTS:
            following = words[place + 1] if place + 1 < len(words) else ""
            flags[name] = value if sign else "on" if following.startswith("--") or not following else following
    return flags


def _block(lines: Iterator[str]) -> dict[str, str]:
    """The figures of a block up to its last line, by name in lower case without unit. The first of each name counts."""
    settings: dict[str, str] = {}
    for line in lines:
        line = line[:MOST_LINE_CHARS].lstrip("> \t")
        if _END.match(line.strip()):
            break
        if (match := _FIGURE.match(line.strip())) is not None:
            settings.setdefault(match["name"].strip(), match["value"])
    return settings


def _run(head: re.Match[str], block: Mapping[str, str], context: _Context, name: str) -> MeasuredRun | None:
    """The run of a block; None where it has no figures."""
    values: dict[str, float | None] = {}
    concurrency = None
    for line, value in block.items():
        plain = line.lower()
        if plain in _CONCURRENCY:
            concurrency = int(value) if value.isdigit() else None
        elif (key := _FIGURE_KEYS.get(plain)) is not None:
            values[key] = _number(value)
        elif (match := _STATISTIC.fullmatch(line)) is not None and match["latency"].lower() in _LATENCY_KEYS:
            values[f"{match['word'].lower()}_{_LATENCY_KEYS[match['latency'].lower()]}_ms"] = _number(value)
    if values.get("completed") is None or values.get("duration") is None:
        return None
    completed = int(values["completed"] or 0)
    planned = context.planned or _count(context.arguments.get("num_prompts"))
    # vllm-bench centres its title in 60 columns, `vllm bench serve` in 50; sglang names its backend.
    tool = SGLANG if "Backend" in block else VLLM_BENCH if len(head[0]) > 55 else VLLM_BENCH_SERVE
    label = printable(context.heading or name, MOST_CHARS)
    setup = {"measured with": tool} | {
        _NAMES.get(argument, f"--{argument.replace('_', '-')}"): printable(value, MOST_CHARS)
        for argument, value in context.arguments.items()
    }
    if concurrency is not None:
        setup["concurrency"] = str(concurrency)
    if (rate := _number(block.get(_RATE, ""))) is not None:
        setup["request rate"] = f"{rate:g}"
    return MeasuredRun(
        name=label,
        values=values,
        tool=tool,
        planned=planned if planned is not None and planned >= completed else None,
        setup=setup,
        load={name: setup[name] for name in ("concurrency", "request rate") if name in setup},
        endpoint=_endpoint(context.arguments),
        identity=identity_of(values),
        rounding=ROUNDING,
        label=label,
        concurrency=concurrency,
    )


def _endpoint(arguments: Mapping[str, str]) -> str:
    """By the path that was given, else by the backend."""
    path = arguments.get("endpoint", "")
    named = next((api.name for api in APIS.values() if api.path.removeprefix("/v1") in path), "")
    return named or endpoint_of(arguments.get("backend", ""))


_NAMES = {"model": "model", "max_concurrency": "concurrency", "num_prompts": "requests", "request_rate": "request rate"}


def _number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


def _count(value: str | None) -> int | None:
    return int(value) if value is not None and value.isdigit() and len(value) < 10 else None
