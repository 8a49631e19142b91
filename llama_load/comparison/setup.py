"""What differs in the set-ups of the sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llama_load.comparison.side import LLAMA_LOAD, MeasuredRun, Side, runs_of

UNKNOWN = "unknown"
SERVER_PREFIX = "server "  # of the names of a server's flags


@dataclass(frozen=True, slots=True)
class Difference:
    """A part of the set-up that is not the same on all sides: its name, and its value on each."""

    name: str
    values: tuple[str, ...]


def differences(sides: Sequence[Side]) -> list[Difference]:
    """The parts that differ, in the order in which they are first named.

    What only some sides report is a difference only where those differ among themselves; an
    argument of ours (`--flag`) is either given or not.
    """
    names: dict[str, None] = {}
    for run in runs_of(sides):
        names |= dict.fromkeys(run.setup)

    found = []
    for name in names:
        values = tuple(_value(side, name) for side in sides)
        known = set(values) - {UNKNOWN}
        if len(known) > 1:
            found.append(Difference(name, values))

    return found


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
