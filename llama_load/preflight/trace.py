"""A trace, from a file or from a run folder, as arrivals."""

from __future__ import annotations

import math
from operator import itemgetter
from pathlib import Path

from llama_load.errors import UsageError
from llama_load.record import OK
from llama_load.runs import load_run
from llama_load.workloads.traces import LAYOUTS, Arrival, TraceRow, read_trace_file


def load_trace(path: Path, *, speed: float = 1.0) -> list[Arrival]:
    """The arrivals of a trace in the order of time, the first at 0; `speed` 2 plays it in half the time.

    What came at the same instant stays in the order of the file. Raises UsageError with a sentence that names the line when
    the trace is missing, empty or laid out otherwise, RunError when it is a run folder that is damaged.
    """
    if not 0 < speed < math.inf:
        raise UsageError(f"--speed must be a number greater than 0, got {speed:g}")
    rows = _rows_of_run(path) if path.is_dir() else read_trace_file(path)
    if not rows:
        raise UsageError(f"the trace {path} holds no request; it must have {LAYOUTS}")
    rows.sort(key=itemgetter(0))
    first_s = rows[0][0]
    return [Arrival((at_s - first_s) / speed, input_, output, hash_ids) for at_s, input_, output, hash_ids in rows]


def _rows_of_run(path: Path) -> list[TraceRow]:
    """The measured requests of a run. How long one that failed or was cut off would have answered, its limit says best."""
    records = load_run(path).records.measured()
    columns = ("scheduled_mono_ns", "started_mono_ns", "status", "prompt_tokens", "output_tokens", "max_tokens")
    return [
        (
            (started_ns if scheduled_ns is None else scheduled_ns) / 1e9,
            prompt_tokens,
            output_tokens if status == OK else max_tokens,
            (),
        )
        for scheduled_ns, started_ns, status, prompt_tokens, output_tokens, max_tokens in zip(
            *map(records.strings, columns), strict=True
        )
    ]
