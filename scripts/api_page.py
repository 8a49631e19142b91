"""docs/api.md: what a locustfile can use, from the docstrings."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cached_property
from typing import Any

# nothing is sent here, and this process may have threads
os.environ.setdefault("LOCUST_SKIP_MONKEY_PATCH", "1")

import llama_load
from llama_load.lab import python_run
from llama_load.run_folder.observed.record import RequestRecord
from llama_load.run_folder.vocabulary.definitions import LATENCIES
from llama_load.servers.prompt import Image, Message

HEAD = """\
# API for locustfiles

What can a locustfile import with `from llama_load import …`? [Workloads](workloads.md) and
[load models](load-models.md#shapes-in-a-locustfile) have examples. Names with a longer path, such as
`llama_load.loadgen.workloads.images.image_of`, are imported from
there. In signatures `*, …` are the keywords of `self.chat`
(without `max_tokens` for `embed` and `rerank`). This page is generated from the docstrings.

"""
EVENTS = """\
## Events

With `from llama_load import events` these two are beside Locust's own events. Arguments come by name, so end the
listener's arguments with `**_`.

| event | arguments | when |
|---|---|---|
| `events.llm_request` | `record`: a [`RequestRecord`](#requestrecord) | after each request, in the process that sent it |
| `events.llm_report` | `run_dir`, the run folder; `summary`, a dict like summary.json | after the reports of a run, on the master |

[to_mlflow.py](../examples/to_mlflow.py) and [to_wandb.py](../examples/to_wandb.py) are examples.

"""
WORKLOADS_HEAD = """\
## Workloads

The value of a user class's attribute `workload`, with its name in reports. [Workloads](workloads.md) has what each
sends; `inputs` and `outputs` of `Synthetic` are ranges of lengths in place of the flags. A workload of your own:
[architecture](architecture.md#a-new-workload).

"""
SHAPES_HEAD = """\
## Load shapes

A class of the locustfile; `--stages` on the command line overrides it.

| class | attributes and defaults | load |
|---|---|---|
"""
FROM_PYTHON = """\
## From Python

`import llama_load` in a script or a notebook; the [guide](guide.md#from-python) has an example.

"""
METHODS = ("chat", "complete", "document", "vision", "embed", "rerank")
WORKLOADS = (
    "ShareGPT",
    "Documents",
    "Vision",
    "Mixed",
    "TextBatches",
    "Queries",
    "Synthetic",
    "Replay",
    "Custom",
    "Conversations",
    "Agent",
)
SHAPES = ("Stages", "Ramp", "Spike", "Soak")
# Attributes of shapes that a locustfile sets.
SHAPE_ATTRIBUTES = ("stages", "start", "end", "level", "peak", "time")


def api_page() -> str:
    """docs/api.md."""
    user = llama_load.LlamaUser
    parts = [HEAD, "## LlamaUser\n\n", _prose(user), "\n\n"]
    for name in METHODS:
        method = getattr(user, name)
        parts.append(
            f"### self.{name}\n\n```python\n{_signature(name, method)}\n```\n\n{_prose(method)}\n\n"
        )
    parts += [
        f"### self.client\n\n{_prose(user.client)}\n\n## Answer\n\n{_prose(llama_load.Answer)}\n\n"
    ]
    parts += [
        "| attribute | type | meaning |\n|---|---|---|\n",
        *_attributes(),
        "\n",
        WORKLOADS_HEAD,
    ]
    names = [
        f"`{name}{_arguments(name)}` ({getattr(llama_load, name).name})"
        for name in WORKLOADS
    ]
    parts += [_wrapped(", ".join(names)), "\n\n", SHAPES_HEAD]
    parts += [
        *map(_shape, SHAPES),
        "\n",
        EVENTS,
        "## Messages and images\n\n",
        *map(_dataclass, (Message, Image)),
    ]
    parts.append(FROM_PYTHON)
    for function in (python_run.run, python_run.compare):
        called = f"llama_load.{function.__name__}{inspect.signature(function)}"
        called = called.replace("'", "").replace("llama_load.lab.python_run.", "")
        parts.append(
            f"### {function.__name__}\n\n```python\n{called}\n```\n\n{_prose(function)}\n\n"
        )
    parts += map(_properties, (python_run.Result, python_run.Compared))
    about = (
        f"{_first(RequestRecord)} What was not measured, or does not apply, is None. "
        "[Metrics](metrics.md) has the formulas of the latencies, the [schema](schemas.md) all types."
    )
    return "".join(
        (*parts, "## RequestRecord\n\n", _wrapped(about), "\n\n", *_columns())
    )


def _properties(kind: type) -> str:
    """A class of results: what it is, and a row for each property."""
    rows = []
    for name, value in vars(kind).items():
        if isinstance(value, property | cached_property) and name[0] != "_":
            rows.append(f"| `{name}` | {_cell(value)} |\n")
    return (
        f"### {kind.__name__}\n\n{_prose(kind)}\n\n"
        f"| attribute | meaning |\n|---|---|\n{''.join(rows)}\n"
    )


def _prose(thing: Any) -> str:
    """A docstring in lines of Markdown."""
    paragraphs = (inspect.getdoc(thing) or "").split("\n\n")
    return "\n\n".join(
        _wrapped(" ".join(paragraph.split())) for paragraph in paragraphs
    )


def _wrapped(text: str) -> str:
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > 120:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return "\n".join(lines)


def _first(thing: Any) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())


def _cell(thing: Any) -> str:
    return " ".join((inspect.getdoc(thing) or "").split()).replace("|", "\\|")


def _signature(name: str, function: Any) -> str:
    """As in the source: annotations are texts there. The keywords that all methods share are those
    of the first."""
    signature = (
        str(inspect.signature(function))
        .replace("(self, ", "(")
        .replace(", **unknown: 'Never'", "")
    )
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", signature)
    if name != METHODS[0]:
        text = re.sub(r"\*, .*\)", "*, …)", text)
    return f"self.{name}{text}"


def _arguments(name: str) -> str:
    """The arguments of a workload: (), (sample=""), (document=…, vision=…)."""
    if name == "Mixed":
        return "(NAME=…, NAME=…)"
    arguments = inspect.signature(getattr(llama_load, name)).parameters.values()
    return (
        f"({', '.join(f'{each.name}={each.default!r}' for each in arguments)})".replace(
            "'", '"'
        )
    )


def _attributes() -> Iterator[str]:
    answer = llama_load.Answer
    yield (
        "| `.text` | str | the text of the answer; empty after a failure of the server, and "
        "for embeddings and rerankings |\n"
    )
    yield "| `.reasoning` | str | its reasoning, where the server sends it apart from the text |\n"
    yield (
        "| `.calls` | tuple[ToolCall, …] | its tool calls: `.id`, `.name`, `.arguments` (JSON "
        "text) |\n"
    )
    yield (
        f"| `.record` | RequestRecord | {_first(answer.record)} See "
        "[RequestRecord](#requestrecord). |\n"
    )
    yield f"| `.ok` | bool | {_first(answer.ok)} |\n"
    for name in ("fail", "failure", "success"):
        argument = "" if name == "success" else "reason"
        yield f"| `.{name}({argument})` | | {_cell(getattr(answer, name))} |\n"


def _shape(name: str) -> str:
    shape = getattr(llama_load, name)
    shown = [
        key
        for key in SHAPE_ATTRIBUTES
        if hasattr(shape, key) and (key != "stages" or name == "Stages")
    ]
    values = ", ".join(f'`{key} = "{getattr(shape, key)}"`' for key in shown)
    return f"| `{name}` | {values} | {_cell(shape)} |\n"


def _dataclass(kind: Any) -> str:
    types = ", ".join(f"`{field.name}: {field.type}`" for field in fields(kind))
    return (
        _wrapped(f"`{kind.__module__}.{kind.__name__}` ({types}): {_first(kind)}")
        + "\n\n"
    )


def _columns() -> Iterator[str]:
    """A table for each group of fields of the record, from the source: comments stand above or
    behind a field."""
    latencies = {
        latency.columns[0]: _first(latency.function).partition(":")[0]
        for latency in LATENCIES
        if len(latency.columns) == 1
    }
    above: list[str] = []
    after_blank = True
    for line in inspect.getsource(RequestRecord).splitlines()[3:]:
        text = line.strip()
        if text.startswith("# ") and after_blank:
            yield f"**{text[2].upper()}{text[3:]}**\n\n| column | meaning |\n|---|---|\n"
            after_blank = False
        elif text.startswith("# "):
            above.append(text[2:])
        elif match := re.match(r"(\w+): [^=#]*?(?: = [^#]*?)?(?: +# (.*))?$", text):
            name, behind = match.groups()
            meaning = latencies.get(name) or behind or " ".join(above)
            yield f"| `{name}` | {meaning.replace('|', 'or')} |\n"
            above = []
        elif not text:
            after_blank = True
            yield "\n"
