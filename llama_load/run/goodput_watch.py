"""--end-below during a run: counts the requests that missed the objectives, until the share can no longer be reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llama_load.metrics.definitions import BY_KEY
from llama_load.metrics.slo import Slo
from llama_load.observed.record import OK, UNFINISHED, RequestRecord
from llama_load.preflight.prepare import Prepared

if TYPE_CHECKING:
    import pyarrow as pa


class GoodputWatch:
    """The measured requests of a run of `total`, of which `share` must meet all objectives.

    Of 100 requests with a share of 0.9, the eleventh that misses decides: whatever the others do, 89 meet at most. The bound is
    exact, so that a run which it ends would have missed the share in any case.
    """

    def __init__(self, slos: Sequence[Slo], share: float, total: int) -> None:
        self._limits = [(BY_KEY[slo.metric].columns, slo.limit_ms) for slo in slos]
        self._share, self._total = share, total
        self._missed = 0

    def add(self, record: RequestRecord) -> None:
        """Count a record of this process."""
        if not record.warmup:
            self._add(record.status, [[getattr(record, name) for name in columns] for columns, _ in self._limits])

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Count records of a worker."""
        values = [[batch.column(name).to_pylist() for name in columns] for columns, _ in self._limits]
        statuses, warmups = batch.column("status").to_pylist(), batch.column("warmup").to_pylist()
        for place, (status, warmup) in enumerate(zip(statuses, warmups, strict=True)):
            if not warmup:
                self._add(status, [[column[place] for column in columns] for columns in values])

    @property
    def shortfall(self) -> str:
        """Why the share is out of reach; empty while it is not."""
        allowed = self._total - self._total * self._share
        if self._missed <= allowed + 1e-9:
            return ""
        return f"{self._missed} of {self._total} requests missed the objectives: {100 * self._share:g} % can no longer meet them"

    def _add(self, status: str, values: Sequence[Sequence[Any]]) -> None:
        """A failed request misses; a latency that a request does not have (TPOT of one token) is met, as in `metrics.slo`."""
        if status in UNFINISHED:
            return
        is_late = any(
            None not in value and sum(value) > limit_ms for value, (_, limit_ms) in zip(values, self._limits, strict=True)
        )
        self._missed += status != OK or is_late


def goodput_watch(prepared: Prepared) -> GoodputWatch | None:
    """The watch of a run with --end-below."""
    goals, total = prepared.options.goals, prepared.load.segments[0].total
    if goals.end_below is None or total is None:
        return None
    return GoodputWatch(goals.slos, goals.end_below, total)
