"""How long a sweep will take, from its plan and from the cells that have ended."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from llama_load.lab.sweep.cells import Cell
from llama_load.lab.sweep.folder import DONE, Ended
from llama_load.lab.sweep.locustfile_flags import merged
from llama_load.options.locust_flags import time_s

# Of a cell beside its measurement: Locust's start, the warm-up, the reports, and a small model's server.
OVERHEAD_S = 5.0


def needed_s(cells: Sequence[Cell], all_cells: Iterable[Cell], ended: Mapping[str, Ended]) -> tuple[float, int]:
    """Seconds for these cells, and of how many the time is not known (they are left out)."""
    known: dict[tuple[str, str], list[float]] = {}
    for cell in all_cells:
        entry = ended.get(cell.key)
        if entry is not None and entry.status == DONE:
            known.setdefault(_kind(cell), []).append(entry.took_s)
    total, unknown = 0.0, 0
    for cell in cells:
        took = known.get(_kind(cell))
        seconds = math.fsum(took) / len(took) if took else planned_s(cell)
        total, unknown = (total, unknown + 1) if seconds is None else (total + seconds, unknown)
    return total, unknown


def planned_s(cell: Cell) -> float | None:
    """Seconds that the plan itself says: takes-s, or the time of the run or its stages; None for a number of requests."""
    if cell.load.takes_s is not None:
        return cell.load.takes_s
    flags = merged({"run-time": [""], "stages": [""]}, cell.flags)
    run_time = next((str(flags[name][0]) for name in ("t", "run-time") if name in flags), "")
    if (seconds := time_s(run_time)) is None:
        return None
    stages = ",".join(map(str, flags["stages"]))
    return OVERHEAD_S + seconds * (len(stages.split(",")) if stages else 1)


def _kind(cell: Cell) -> tuple[str, str]:
    return cell.workload.label, cell.load.label
