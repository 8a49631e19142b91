"""--until during a run: collects the successful requests, looks at them in order of start, and
notes what was known at the end."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from llama_load.ground.units import NS_PER_S
from llama_load.loadgen.preflight.prepare import Prepared
from llama_load.loadgen.run.end_watchers import JUDGE_EVERY_S
from llama_load.loadgen.run.in_thread import in_thread
from llama_load.loadgen.run.watcher import LoopWatcher, RunUnderWay, report_end
from llama_load.run_folder import RunWriter
from llama_load.run_folder.manifest import UntilEnd
from llama_load.run_folder.observed.record import OK
from llama_load.run_folder.vocabulary.until import (
    E2EL,
    Look,
    Requests,
    Until,
    UntilRule,
)
from llama_load.servers.target import Target


class UntilWatcher(LoopWatcher):
    """Ends the run as soon as the figure is known. A look takes requests that began before anything
    still in flight can have begun: those that have ended so far are the short ones."""

    every_s = JUDGE_EVERY_S

    def __init__(
        self,
        run: RunUnderWay,
        until: Until,
        *,
        is_open: bool,
        users: int,
        slots: int | None,
    ) -> None:
        super().__init__(run)
        self._rule = UntilRule(until, is_open=is_open, users=users, slots=slots)
        self.columns = (
            "warmup",
            "status",
            f"{until.latency or E2EL}_ms",
            "started_mono_ns",
            "ended_mono_ns",
        )
        self._latencies = array("d")
        self._starts = array("d")
        self._ends = array("d")
        self._good: Look | None = None

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        """See `Watcher.add`."""
        for warmup, status, latency_ms, started_ns, ended_ns in rows:
            if status == OK and not warmup and ended_ns is not None:
                self._latencies.append(np.nan if latency_ms is None else latency_ms)
                self._starts.append(started_ns / NS_PER_S)
                self._ends.append(ended_ns / NS_PER_S)

    def look(self) -> None:
        """See `LoopWatcher.look`."""
        so_far = self._so_far()
        if in_thread(lambda: self._is_known(so_far)) and self.run.end_reason is None:
            report_end(f"--until: {self.at_end().sentence}")
            self.run.end_early()

    def facts(self, writer: RunWriter) -> None:
        """See `Watcher.facts`."""
        writer.manifest.until = self.at_end()

    def at_end(self) -> UntilEnd:
        """What is known when the run is over: the look that ended it, else one at all requests."""
        look = self._good
        text = self._rule.until.text
        if look is not None:
            return UntilEnd(text, look.count, look.value, look.within, True)
        look = self._rule.judge(_ordered(self._so_far()))
        return UntilEnd(
            text,
            look.count,
            look.value,
            look.within,
            False,
            look.obstacle or "only the last look was good enough",
        )

    def _so_far(self) -> Requests:
        """A copy, which another thread can look at."""
        return Requests(
            np.array(self._latencies), np.array(self._starts), np.array(self._ends)
        )

    def _is_known(self, so_far: Requests) -> bool:
        requests = _settled(_ordered(so_far))
        while self._good is None and len(requests.latencies) >= (
            count := self._rule.next_at
        ):
            look = self._rule.look(requests.rows(slice(count)))
            if look is not None and look.may_end:
                self._good = look
        return self._good is not None


def until_watcher(prepared: Prepared, run: RunUnderWay) -> UntilWatcher | None:
    """The watcher of a run with --until."""
    until = prepared.options.goals.until
    if until is None:
        return None

    return UntilWatcher(
        run,
        until,
        is_open=prepared.load.model.is_open,
        users=prepared.load.users,
        slots=_slots_of(prepared.targets),
    )


def _slots_of(targets: Sequence[Target]) -> int | None:
    """The slots of all servers; None where one does not report them."""
    slots = 0
    for target in targets:
        if target.slots is None:
            return None
        slots += target.slots
    return slots


def _ordered(requests: Requests) -> Requests:
    """In order of start."""
    return requests.rows(np.argsort(requests.starts_s, kind="stable"))


def _settled(requests: Requests) -> Requests:
    """Those before which no request can be in flight, unless it takes longer than any so far."""
    starts = requests.starts_s
    ends = requests.ends_s
    if not len(starts):
        return requests
    longest_s = (ends - starts).max()
    return requests.rows(starts <= ends.max() - longest_s)
