"""The flags as fields of a form: in groups, those that matter for the run's workloads first.

The group is that of the flag's row. The names are those of the parsed options.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from llama_load.options.flag import ADVANCED, GROUPS, LOAD, SERVER
from llama_load.options.flags import FLAGS

_CONVERSATIONS = {"dataset_path", "sharegpt_output_len", "turns", "history", "think_time", "system_prompt", "output_len"}
_DOCUMENTS = {"document", "document_tokens", "document_cache", "question", "output_len"}
_VISION = {"images", "image_size", "image_format", "images_per_request", "question", "output_len"}
_TEXTS = {"document", "input_len", "batch_size"}
# The flags that each workload uses; those of other workloads are not shown with it. (A class that is not here, such as one of
# your own, may use any.)
USED_BY = {
    "ShareGPT": _CONVERSATIONS,
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


@dataclass(frozen=True, slots=True)
class Field:
    """A field: its name in the options, its flag as label, its help, its kind, for `CHOICE` the values, and a title where the flag
    is a letter."""

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
        title="users",
    ),
    Field("spawn_rate", "-r", ADVANCED, "users to start per second (default: all at once)", title="users per second"),
    Field(
        "run_time",
        "-t",
        LOAD,
        "time limit, counted from the end of the warm-up, such as 90s, 10m or 1h30m (default: none)",
        title="time limit",
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
    grouped = {title: [field for field in shown.values() if field.group == title] for title in GROUPS}
    return {title: own for title, own in grouped.items() if own}


_FLAG = re.compile(r"(?<![\w-])--?[a-z][\w-]*")


def fields_of(sentence: str, shown: Mapping[str, Field]) -> list[str]:
    """The names of the shown fields whose flags a message mentions, in its order."""
    by_label = {field.label: name for name, field in shown.items()}
    return list(dict.fromkeys(by_label[flag] for flag in _FLAG.findall(sentence) if flag in by_label))


def workload_names(workloads: Sequence[object]) -> list[str]:
    """The class names of these workloads, and of the tasks of a mixture."""
    found = []
    for workload in workloads:
        found.append(type(workload).__name__)
        tasks = getattr(workload, "tasks", None)
        found += workload_names(list(tasks.values())) if isinstance(tasks, dict) else []
    return found
