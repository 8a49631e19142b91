"""The flags as fields of a form, in groups: first those that every run needs, then the group of the flag's row.

The names are those of the parsed options.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from llama_load.options.flag import ADVANCED, GROUPS, LOAD, SERVER
from llama_load.options.flags import FLAGS

_CONVERSATIONS = {"dataset_path", "sharegpt_output_len", "turns", "history", "think_time", "system_prompt", "output_len"}
_AGENTS = {
    *("rounds", "system_tokens", "tools", "tool_output_tokens", "tool_time", "sub_agents"),
    *("input_len", "output_len"),
}
_DOCUMENTS = {"document", "document_tokens", "document_cache", "question", "output_len"}
_VISION = {"images", "image_size", "image_format", "images_per_request", "question", "output_len"}
_TEXTS = {"document", "input_len", "batch_size"}
# The flags that each workload uses; those of other workloads are not shown with it. (A class that is not here, such as one of
# your own, may use any.)
USED_BY = {
    "ShareGPT": _CONVERSATIONS,
    "Conversations": _CONVERSATIONS - {"sharegpt_output_len"},
    "Agent": _AGENTS,
    "Custom": {"dataset_path", "category", "system_prompt", "output_len"},
    "Documents": _DOCUMENTS,
    "Vision": _VISION,
    "TextBatches": _TEXTS,
    "Queries": _TEXTS,
    "Synthetic": {"input_len", "output_len", "range_ratio", "prefix_len", "num_prefixes"},
    "Replay": {"trace", "speed", "input_len", "output_len"},
    "Mixed": {"weights"},
}
# These set the load of any workload, too.
_OF_ANY = {"trace", "speed"}
_OF_SOME = set().union(*USED_BY.values()) - _OF_ANY
# Embeddings and reranking generate no tokens.
_OF_ANSWERS = {"max_tokens", "ignore_eos", "temperature", "first_token_timeout", "token_timeout", "no_stream", "goodput"}

TEXT, CHOICE, SWITCH, LINES, SECRET, SECRET_LINES = "text", "choice", "switch", "lines", "secret", "secret lines"


# The first group and its fields, in this order: which server, how much load, for how long.
BASICS = "The run"
FIRST = ("host", "num_users", "request_rate", "stages", "num_prompts", "run_time")
# Their helps on the page, where those of the flags speak of the command line.
HELPS = {
    "num_users": "each sends its next request when the previous one is answered",
    "request_rate": "requests per second, regardless of the server's speed, such as 2 or 0.5",
    "num_prompts": "then the run ends; in stages this many in each",
    "run_time": "such as 90s, 10m or 1h30m, counted from the end of the warm-up",
}
# Titles of fields, where the name of the flag is none.
TITLES = {
    "host": "Server",
    "num_users": "Users",
    "request_rate": "Requests per second",
    "stages": "Stages",
    "num_prompts": "Requests",
    "run_time": "Time limit",
    "spawn_rate": "Users to start per second",
    "max_concurrency": "Most requests in flight",
    "burstiness": "Shape of gamma arrivals",
    "arrival": "Arrivals",
    "warmup": "Warm-up requests",
    "ramp_start_rps": "Ramp: requests per second at its start",
    "on_limit": "At the limit of requests in flight",
    "api_key": "API key",
    "backend": "Type of server",
    "endpoint": "API",
    "balance": "Balance between servers",
    "dataset_path": "Data set",
    "max_tokens": "Most answer tokens",
    "turns": "Turns of each conversation",
    "ignore_eos": "Ignore the end of sequence",
    "kv_pool": "Size of the shared KV cache",
    "no_stream": "Whole answers instead of streams",
    "extra_body": "Extra fields of the body",
    "header": "Headers",
    "ca_file": "CA certificates",
    "insecure": "Do not verify certificates",
    "weights": "Shares of the tasks",
    "input_len": "Prompt length",
    "output_len": "Answer length",
    "sharegpt_output_len": "Answer length (vLLM's name)",
    "range_ratio": "Variation of lengths",
    "prefix_len": "Length of a shared prefix",
    "num_prefixes": "Number of shared prefixes",
    "run_dir": "Run folder",
    "goodput": "Objectives (goodput)",
    "junit": "JUnit file",
    "no_report_html": "No report.html",
    "at_end": "At the end",
}


@dataclass(frozen=True, slots=True)
class Field:
    """A field: its name in the options, its flag as label, its help, its kind, for `CHOICE` the values, and its title in words."""

    name: str
    label: str
    group: str
    help: str
    kind: str = TEXT
    choices: tuple[str, ...] = ()
    title: str = ""


# Locust's own flags that the form has.
LOCUSTS = (
    Field(
        "host", "--host", SERVER, "base URL of the server, such as http://127.0.0.1:8080; several for replicas, separated by spaces"
    ),
    Field(
        "num_users",
        "-u",
        LOAD,
        "users, each with one request at a time: the maximum request concurrency of a closed loop",
    ),
    Field("spawn_rate", "-r", ADVANCED, "users to start per second (default: all at once)"),
    Field(
        "run_time",
        "-t",
        LOAD,
        "time limit, counted from the end of the warm-up, such as 90s, 10m or 1h30m (default: none)",
    ),
)


def fields(workloads: Collection[str], given: Collection[str], *, keys: bool) -> dict[str, list[Field]]:
    """The groups and their fields for these workloads (class names). Flags in `given` are shown in any case; those with keys
    only if `keys` are wanted."""
    used = set().union(*(USED_BY.get(name, _OF_SOME) for name in workloads)) if workloads else _OF_SOME
    irrelevant = _OF_SOME - used
    if workloads and set(workloads) <= {"TextBatches", "Queries"}:
        irrelevant |= _OF_ANSWERS
    shown = {field.name: field for field in LOCUSTS}
    for flag in FLAGS:
        is_shown = flag.on_page and (keys or not flag.secret)
        if is_shown and flag.group and (flag.dest not in irrelevant or flag.dest in given):
            kind = SECRET if flag.secret else TEXT
            kind = (SECRET_LINES if flag.secret else LINES) if flag.repeated else kind
            kind = SWITCH if flag.switch else CHOICE if flag.choices else kind
            shown[flag.dest] = Field(flag.dest, flag.name, flag.group, flag.help, kind, flag.choices or ())
    shown = {name: replace(field, title=title_of(name), help=HELPS.get(name, field.help)) for name, field in shown.items()}
    grouped = {BASICS: [shown[name] for name in FIRST]}
    grouped |= {title: [each for each in shown.values() if each.group == title and each.name not in FIRST] for title in GROUPS}
    return {title: own for title, own in grouped.items() if own}


def title_of(name: str) -> str:
    """A field's title in words: `think_time` is `Think time`."""
    return TITLES.get(name) or name.replace("_", " ").capitalize()


_FLAG = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
# What a message without a flag is about: the server's models, or the server.
_ABOUT = ((re.compile(r"does not serve a model"), "model"), (re.compile(r"https?://|no worker is connected"), "host"))


def fields_of(sentence: str, shown: Mapping[str, Field]) -> list[str]:
    """The names of the shown fields whose flags a message mentions, in its order; without a flag the field that it is about."""
    by_label = {field.label: name for name, field in shown.items()}
    named = dict.fromkeys(by_label[flag] for flag in _FLAG.findall(sentence) if flag in by_label)
    return list(named) or [name for pattern, name in _ABOUT if name in shown and pattern.search(sentence)][:1]


def workload_names(workloads: Sequence[object]) -> list[str]:
    """The class names of these workloads, and of the tasks of a mixture."""
    found = []
    for workload in workloads:
        found.append(type(workload).__name__)
        tasks = getattr(workload, "tasks", None)
        found += workload_names(list(tasks.values())) if isinstance(tasks, dict) else []
    return found
