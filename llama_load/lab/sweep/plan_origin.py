"""A plan is a script: it starts programs and sends keys. Where it is from, and what it would start."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from llama_load.bundled import bundled
from llama_load.foreign_text import printable
from llama_load.lab.sweep.cells import MOST_CELLS, conditions
from llama_load.lab.sweep.grammar import COMMANDS, FIT, URL
from llama_load.lab.sweep.plan import Plan, PlannedServer

# Flags of locust that name a program, or a file that can name one.
_COMMAND_FLAGS = ("power-command", "config")
_MOST_LINES, _MOST_CHARS = 30, 200


def is_own(path: Path) -> bool:
    """Whether this plan comes with the package, or is a file of ours in the working directory or below it that no other user can
    change."""
    try:
        real = path.resolve(strict=True)
        if real.is_relative_to(bundled("plans").resolve()):
            return True
        here = Path.cwd().resolve()
        if not real.is_relative_to(here):
            return False
        between = [real, *(folder for folder in real.parents if folder.is_relative_to(here))]
        return all(_is_ours_alone(each) for each in between)
    except OSError:
        return False


def _is_ours_alone(path: Path) -> bool:
    status = path.stat()
    return status.st_uid == os.getuid() and not status.st_mode & stat.S_IWOTH


def what_it_starts(plan: Plan) -> list[str]:
    """A line for each program, locustfile and server of the plan, for a person who has not written it."""
    lines = dict.fromkeys(_lines(plan))
    shown = [printable(line, _MOST_CHARS) for line in islice(lines, _MOST_LINES)]
    if len(lines) > _MOST_LINES:
        shown.append(f"and {len(lines) - _MOST_LINES} more")
    return shown


def _lines(plan: Plan) -> Iterator[str]:
    for cell in islice(conditions(plan), MOST_CELLS):
        yield from _of_server(cell.server)
        if not Path(cell.workload.file).resolve().is_relative_to(bundled("locustfiles").resolve()):
            yield f"runs the locustfile {cell.workload.file}"
        for name in _COMMAND_FLAGS:
            for value in cell.flags.get(name, []):
                yield f"runs {value}"
    if plan.perplexity is not None and plan.perplexity.binary:
        yield f"runs {plan.perplexity.binary}"


def _of_server(server: PlannedServer) -> Iterator[str]:
    settings = server.settings
    if server.kind == URL or URL in settings:
        yield f"sends requests, with the keys in the environment, to {settings.get(URL, '')}"
        return
    for name in COMMANDS:
        for command in settings.get(name, []):
            yield f"runs {command}"
    program = settings.get("program") or server.kind
    words = [*_texts(settings.get("wrap")), str(program), *_texts(settings.get("args"))]
    variables = [f"{name}={value}" for name, value in settings.get("env", {}).items()]
    yield f"starts {shlex.join(variables)} {' '.join(words)}".replace("  ", " ")
    if worker := _texts(settings.get("rpc-worker")):
        yield f"starts {' '.join(worker)}"
    if fit := settings.get(FIT):
        yield f"runs {fit}"


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [str(part) for part in value] if isinstance(value, Iterable) else []
