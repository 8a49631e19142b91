"""Reads the arrivals of a trace, from a file or a run folder."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from pathlib import Path

from llama_load.errors import UsageError
from llama_load.observed.record import OK
from llama_load.run_folder import load_run
from llama_load.workloads.traces import LAYOUTS, Arrival, read_trace_file


def load_trace(path: Path, *, speed: float = 1.0) -> list[Arrival]:
    """The arrivals of a trace, sorted by time, the first at 0; `speed` 2 plays it in half the time.

    Arrivals at the same instant stay in file order. UsageError names the line when the trace is missing, empty or invalid;
    RunError: a damaged run folder.
    """
    rows = _rows_of_run(path) if path.is_dir() else read_trace_file(path)
    if not rows:
        raise UsageError(f"the trace {path} contains no request; it must have {LAYOUTS}")
    rows.sort(key=attrgetter("at_s"))
    return [replace(row, at_s=(row.at_s - rows[0].at_s) / speed) for row in rows]


def _rows_of_run(path: Path) -> list[Arrival]:
    """The measured requests of a run. A failed or cut request takes its token limit as the answer's length."""
    records = load_run(path).records.measured()
    columns = ("scheduled_mono_ns", "started_mono_ns", "status", "prompt_tokens", "output_tokens", "max_tokens")
    return [
        Arrival(
            (started_ns if scheduled_ns is None else scheduled_ns) / 1e9,
            prompt_tokens,
            output_tokens if status == OK else max_tokens,
        )
        for scheduled_ns, started_ns, status, prompt_tokens, output_tokens, max_tokens in zip(
            *map(records.strings, columns), strict=True
        )
    ]
