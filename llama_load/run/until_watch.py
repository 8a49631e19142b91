"""--until during a run: collects the successful requests, looks at them in order of start, and notes what was known at the end."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from llama_load.metrics.until import E2EL, Look, Requests, Until, UntilRule, look_at
from llama_load.observed.record import OK, RequestRecord
from llama_load.observed.records import Records
from llama_load.preflight.prepare import Prepared
from llama_load.run_folder import UntilEnd
from llama_load.units import NS_PER_S

if TYPE_CHECKING:
    import pyarrow as pa


class UntilWatch:
    """The looks at one run. A look takes requests that began before anything still in flight can have begun: those that have ended
    so far are the short ones."""

    def __init__(self, until: Until, *, is_open: bool, users: int, slots: int | None) -> None:
        self._until, self._is_open, self._users, self._slots = until, is_open, users, slots
        self._rule = UntilRule(until, is_open=is_open, users=users, slots=slots)
        self._column = f"{until.latency or E2EL}_ms"
        self._latencies, self._starts, self._ends = array("d"), array("d"), array("d")
        self._good: Look | None = None

    def add(self, record: RequestRecord) -> None:
        """Count a record of this process."""
        if record.status == OK and not record.warmup and record.ended_mono_ns is not None:
            value = getattr(record, self._column)
            self._add([np.nan if value is None else value], [record.started_mono_ns], [record.ended_mono_ns])

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Count records of a worker, on this machine's clock."""
        import pyarrow as pa

        records = Records(pa.Table.from_batches([batch]))
        ok = records.where(records.equals("status", OK) & records.equals("warmup", False))
        if len(ok):
            starts, ends = ok.instants("started_mono_ns").tolist(), ok.instants("ended_mono_ns").tolist()
            self._add(ok.numbers(self._column).tolist(), starts, ends)

    def so_far(self) -> Requests:
        """A copy, which another thread can look at."""
        return Requests(*(np.array(column) for column in (self._latencies, self._starts, self._ends)))

    def look(self, so_far: Requests) -> bool:
        """Whether the run may end."""
        requests = _settled(_ordered(so_far))
        while self._good is None and len(requests.latencies) >= (count := self._rule.next_at):
            look = self._rule.look(Requests(requests.latencies[:count], requests.starts_s[:count], requests.ends_s[:count]))
            if look is not None and look.may_end:
                self._good = look
        return self._good is not None

    def at_end(self) -> UntilEnd:
        """What is known when the run is over: the look that ended it, else one at all requests."""
        look, text = self._good, self._until.text
        if look is not None:
            return UntilEnd(text, look.count, look.value, look.within, True)
        requests = _ordered(self.so_far())
        look = look_at(self._until, requests, is_open=self._is_open, users=self._users, slots=self._slots)
        return UntilEnd(text, look.count, look.value, look.within, False, look.obstacle or "only the last look was good enough")

    def _add(self, latencies: Sequence[float], starts_ns: Sequence[int], ends_ns: Sequence[int]) -> None:
        self._latencies.extend(latencies)
        self._starts.extend(start_ns / NS_PER_S for start_ns in starts_ns)
        self._ends.extend(end_ns / NS_PER_S for end_ns in ends_ns)


def until_watch(prepared: Prepared) -> UntilWatch | None:
    """The watch of a run with --until."""
    until = prepared.options.goals.until
    if until is None:
        return None
    slots = [target.slots for target in prepared.targets]
    known = None if None in slots else sum(slot or 0 for slot in slots)
    return UntilWatch(until, is_open=prepared.load.model.is_open, users=prepared.load.users, slots=known)


def _ordered(requests: Requests) -> Requests:
    """In order of start."""
    order = np.argsort(requests.starts_s, kind="stable")
    return Requests(requests.latencies[order], requests.starts_s[order], requests.ends_s[order])


def _settled(requests: Requests) -> Requests:
    """Those before which no request can be in flight, unless it takes longer than any so far."""
    starts, ends = requests.starts_s, requests.ends_s
    if not len(starts):
        return requests
    chosen = starts <= ends.max() - (ends - starts).max()
    return Requests(requests.latencies[chosen], starts[chosen], ends[chosen])
