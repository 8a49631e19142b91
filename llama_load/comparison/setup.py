"""What differs in the set-ups of the sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llama_load.comparison.side import LLAMA_LOAD, MeasuredRun, Side

UNKNOWN = "unknown"
SERVER_PREFIX = "server "  # of the names of a server's flags


@dataclass(frozen=True, slots=True)
class Difference:
    """A part of the set-up that is not the same on all sides: its name, and its value on each."""

    name: str
    values: tuple[str, ...]


def differences(sides: Sequence[Side]) -> list[Difference]:
    """The parts that differ, in the order in which they are first named. What only some sides report is a difference only where
    those differ among themselves; an argument of ours (`--flag`) is either given or not."""
    names = dict.fromkeys(name for side in sides for run in side.runs for name in run.setup)
    differences = []
    for name in names:
        values = tuple(_value(side, name) for side in sides)
        if len(set(values) - {UNKNOWN}) > 1:
            differences.append(Difference(name, values))
    return differences


def _value(side: Side, name: str) -> str:
    """The value on this side, or all values where its repeats differ."""
    return ", ".join(dict.fromkeys(run.setup.get(name, _absent(run, name)) for run in side.runs)) or UNKNOWN


def _absent(run: MeasuredRun, name: str) -> str:
    """What it means that a run does not name this: our manifests hold every flag that was given, and so does a server's command;
    texts hold only what was printed."""
    prefix = SERVER_PREFIX if name.startswith(SERVER_PREFIX) else ""
    is_complete = run.tool == LLAMA_LOAD and any(key.startswith(f"{prefix}-") for key in run.setup)
    return "not given" if name.startswith(f"{prefix}-") and is_complete else UNKNOWN
