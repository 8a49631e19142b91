"""How long a sweep will take, from its plan and from the cells that have ended."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from llama_load.ground.units import quantity
from llama_load.lab.sweep.cells import Cell
from llama_load.lab.sweep.folder import DONE, Ended
from llama_load.lab.sweep.locustfile_flags import merged
from llama_load.loadgen.options.locust_flags import time_s
from llama_load.tables.numbers import duration

# Of a cell beside its measurement: Locust's start, the warm-up, the reports, and a small model's
# server.
OVERHEAD_S = 5.0
UNKNOWN = "of unknown time"


def needed_s(
    cells: Sequence[Cell], all_cells: Iterable[Cell], ended: Mapping[str, Ended]
) -> tuple[float, int]:
    """Seconds for these cells, and of how many the time is not known (they are left out)."""
    known: dict[tuple[str, str], list[float]] = {}
    for cell in all_cells:
        entry = ended.get(cell.key)
        if entry is not None and entry.status == DONE:
            known.setdefault(_kind(cell), []).append(entry.took_s)

    total = 0.0
    unknown = 0
    for cell in cells:
        took = known.get(_kind(cell))
        seconds = math.fsum(took) / len(took) if took else planned_s(cell)
        if seconds is None:
            unknown += 1
        else:
            total += seconds
    return total, unknown


def needed_text(
    cells: Sequence[Cell], all_cells: Iterable[Cell], ended: Mapping[str, Ended]
) -> str:
    """`about 3 min and 2 cells of unknown time`; what is nothing is left out."""
    seconds, unknown = needed_s(cells, all_cells, ended)
    parts = []
    if seconds or not unknown:
        parts.append(f"about {duration(seconds)}")
    if unknown:
        parts.append(f"{quantity(unknown, 'cell')} {UNKNOWN}")
    return " and ".join(parts)


def planned_s(cell: Cell) -> float | None:
    """Seconds that the plan itself says: takes-s, or the time of the run or its stages.

    None for a number of requests.
    """
    if cell.load.takes_s is not None:
        return cell.load.takes_s

    flags = merged({"run-time": [""], "stages": [""]}, cell.flags)
    given = flags.get("t") or flags.get("run-time") or [""]
    stage_s = time_s(str(given[0]))
    if stage_s is None:
        return None

    stages = ",".join(map(str, flags["stages"]))
    count = len(stages.split(",")) if stages else 1
    return OVERHEAD_S + stage_s * count


def _kind(cell: Cell) -> tuple[str, str]:
    """Cells of one workload and load take about the same time."""
    return cell.workload.label, cell.load.label
