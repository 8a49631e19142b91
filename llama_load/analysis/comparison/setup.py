"""What differs in the set-ups of the sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llama_load.analysis.comparison.side import LLAMA_LOAD, MeasuredRun, Side, runs_of
from llama_load.servers.kinds import KINDS

UNKNOWN = "unknown"
# What the flags of servers set (`ServerKind.flags`), and the part of the set-up in which servers
# report it: see `TRAITS`, and their logs.
REPORTED = {
    "model": "model file",
    "slots": "slots",
    "context": "context",
    "threads": "server's threads",
    "threads_batch": "server's threads for prompts",
    "batch": "server's batch",
    "micro_batch": "server's micro-batch",
}
# Those that a server's log reports, by their names in a description.
LOGGED = ("threads", "threads_batch", "batch", "micro_batch")
SERVER_PREFIX = "server "  # of the names of a server's flags


@dataclass(frozen=True, slots=True)
class Difference:
    """A part of the set-up that is not the same on all sides: its name, and its value on each."""

    name: str
    values: tuple[str, ...]


def differences(sides: Sequence[Side]) -> list[Difference]:
    """The parts that differ, in the order in which they are first named.

    What only some sides report is a difference only where those differ among themselves; an
    argument of ours (`--flag`) is either given or not. A server's flag is none where all servers
    report what it sets: -np 4 is what a server without -np may have.
    """
    names: dict[str, None] = {}
    for run in runs_of(sides):
        names |= dict.fromkeys(run.setup)

    found = []
    for name in names:
        fact = reported_by(name)
        if fact is not None and _is_known(sides, fact):
            continue

        values = tuple(_value(side, name) for side in sides)
        known = set(values) - {UNKNOWN}
        if len(known) > 1:
            found.append(Difference(name, values))

    return found


def reported_by(name: str) -> str | None:
    """The name of the fact that a server with this flag (`server -np`) reports; None where it
    reports none."""
    if not name.startswith(SERVER_PREFIX):
        return None

    flag = name.rsplit(maxsplit=1)[-1]
    for kind in KINDS.values():
        for fact, flags in kind.flags.items():
            if flag in flags:
                return REPORTED.get(fact)

    return None


def _is_known(sides: Sequence[Side], name: str) -> bool:
    return all(name in run.setup for run in runs_of(sides))


def _value(side: Side, name: str) -> str:
    """The value on this side, or all values where its repeats differ."""
    values: dict[str, None] = {}
    for run in side.runs:
        values[run.setup.get(name, _absent(run, name))] = None
    return ", ".join(values) or UNKNOWN


def _absent(run: MeasuredRun, name: str) -> str:
    """What it means that a run does not name this.

    Our manifests hold every flag that was given, and so does a server's command; texts hold only
    what was printed.
    """
    flags = "-"
    if name.startswith(SERVER_PREFIX):
        flags = f"{SERVER_PREFIX}-"

    if not name.startswith(flags) or run.tool != LLAMA_LOAD:
        return UNKNOWN

    for key in run.setup:
        if key.startswith(flags):
            return "not given"

    return UNKNOWN
