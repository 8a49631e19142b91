"""Where a plan is from, and what it would start.

A plan is a script: it starts programs and sends keys.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from llama_load.ground.bundled import bundled
from llama_load.ground.errors import UsageError
from llama_load.ground.units import quantity
from llama_load.lab.sweep.cells import MOST_CELLS, conditions
from llama_load.lab.sweep.grammar import COMMANDS, FIT, URL
from llama_load.lab.sweep.locustfile_flags import FLAGS_BY_NAME, LETTERS
from llama_load.lab.sweep.plan import Plan, PlannedServer
from llama_load.loadgen.options.flag import Kind
from llama_load.loadgen.workloads.think_time import OF_FILE
from llama_load.outside.foreign_files import is_ours_alone
from llama_load.outside.foreign_text import printable

# What a run does with the value of a flag of this kind.
SHOWN = {
    Kind.INPUT: "reads",
    Kind.DATA_SET: "reads",
    Kind.TIMES: "reads",
    Kind.RUN_FOLDER: "writes",
    Kind.XML_FILE: "writes",
    Kind.FOLDER: "opens to the web page",
    Kind.SERVERS: "sends requests, with the keys in the environment, to",
    Kind.ADDRESS: "listens at, or fetches,",
    Kind.DESTINATION: "writes to",
    Kind.COMMAND: "runs",
}
# Kinds of values that go to the server, into the report, or decide about the load.
HARMLESS = frozenset(
    (
        *(Kind.TEXT, Kind.NAME, Kind.NUMBER, Kind.EXPRESSION, Kind.JSON),
        *(Kind.CHOICE, Kind.SWITCH, Kind.SERVER_KEY, Kind.HEADER, Kind.SECRET),
    )
)
# Flags of Locust's own that do no more.
_OF_LOCUST = frozenset(
    (*LETTERS, "processes", "stop-timeout", "tags", "exclude-tags", "loglevel")
)
# A plan has 128 KiB. Whatever would not be shown could be the program that matters.
_MOST_LINES = 1000
_MOST_CHARS = 900  # `say` cuts after 1000


def is_own(path: Path) -> bool:
    """Whether this plan comes with the package, or is a file of ours that no other user can change.

    Ours are files in the working directory or below it.
    """
    with suppress(OSError):
        if path.resolve(strict=True).is_relative_to(bundled("plans").resolve()):
            return True
    return is_ours_alone(path, Path.cwd())


def what_it_starts(plan: Plan) -> list[str]:
    """A line for each program, locustfile and server of the plan, whole.

    For a person who has not written it. UsageError: too much for a person to read.
    """
    lines = list(dict.fromkeys(_origin_lines(plan)))
    if len(lines) > _MOST_LINES or max(map(len, lines), default=0) > _MOST_CHARS:
        raise UsageError(
            f"this plan from elsewhere starts {quantity(len(lines), 'command')}, or one of over "
            f"{_MOST_CHARS} characters: too much to be asked about; if you trust it add --yes"
        )
    return [printable(line, None) for line in lines]


def _origin_lines(plan: Plan) -> Iterator[str]:
    included = bundled("locustfiles").resolve()
    for cell in islice(conditions(plan), MOST_CELLS):
        yield from _of_server(cell.server)
        if not Path(cell.workload.file).resolve().is_relative_to(included):
            yield f"runs the locustfile {cell.workload.file}"
        for name, values in cell.flags.items():
            yield from _of_flag(name, values)

    if plan.perplexity is not None:
        yield f"reads {plan.perplexity.text}"
        if plan.perplexity.binary:
            yield f"runs {plan.perplexity.binary} {plan.perplexity.args}"


def _of_flag(name: str, values: Iterable[object]) -> Iterator[str]:
    """What a run does with the values of a flag, where it is more than to send them or to count."""
    if name in _OF_LOCUST:
        return
    flag = FLAGS_BY_NAME.get(name)
    for value in values:
        if flag is None:  # of the locustfile, or Locust's file of settings
            yield f"gives --{name} {value} to the run"
        elif flag.kind in HARMLESS:
            continue
        elif flag.kind is not Kind.TIMES or str(value).strip().startswith(OF_FILE):
            yield f"{SHOWN[flag.kind]} {value} ({flag.name})"


def _of_server(server: PlannedServer) -> Iterator[str]:
    settings = server.settings
    if server.kind == URL or URL in settings:
        yield f"sends requests, with the keys in the environment, to {settings.get(URL, '')}"
        return

    for name in COMMANDS:
        for command in settings.get(name, []):
            yield f"runs {command}"

    program = str(settings.get("program") or server.kind)
    words = [
        *_words_of_command(settings.get("wrap")),
        program,
        *_words_of_command(settings.get("args")),
    ]
    variables = [f"{name}={value}" for name, value in settings.get("env", {}).items()]
    command = f"{shlex.join(variables)} {' '.join(words)}"
    yield f"starts {command}".replace("  ", " ")
    if settings.get("model"):
        yield f"reads the model {settings['model']}"
    for address in _words_of_command(settings.get("rpc")):
        yield f"connects to {address}"

    rpc_worker = _words_of_command(settings.get("rpc-worker"))
    if rpc_worker:
        yield f"starts {' '.join(rpc_worker)}"
    if settings.get(FIT):
        yield f"runs {settings[FIT]}"


def _words_of_command(value: object) -> list[str]:
    """The words of a command that is given as a text or a list."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Iterable):
        return [str(part) for part in value]
    return []
