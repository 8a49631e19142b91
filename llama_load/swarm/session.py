"""The run as its users see it, in one process: hands out tickets, passes records on."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gevent.event import Event
from locust.exception import StopUser

from llama_load.record import CANCELLED, OK, RequestRecord
from llama_load.swarm.leases import LeaseBook
from llama_load.swarm.progress import Counts
from llama_load.targets.body import BodyOptions
from llama_load.targets.target import Target
from llama_load.users.session import Ticket
from llama_load.wire.exchange import Timeouts
from llama_load.workloads.prompt import Plan

# Enough hex digits that no two prompts of a server's life begin alike.
PREFIX_DIGITS = 24


@dataclass(slots=True, kw_only=True)
class LocalSession:
    """A `Session` (see `llama_load.users.session`) whose leases are in this process.

    Warm-up first: its requests go out, and no measured one before the last of them has ended. `began` is called when
    the measurement begins, `finished` when its last request has ended, `ended` with every record.
    """

    target: Target
    body_options: BodyOptions
    timeouts: Timeouts
    save_texts: bool
    worker: str
    plans: Mapping[str, Plan]
    warmup: LeaseBook
    measured: LeaseBook
    nonce: str | None  # set: begin every prompt with random text drawn from it
    began: Callable[[], None]
    finished: Callable[[], None]
    ended: Callable[[RequestRecord], None]
    counts: Counts = field(default_factory=Counts)
    _measuring: Event = field(default_factory=Event)
    _closing: Event = field(default_factory=Event)

    def open(self) -> None:
        """Let the users begin."""
        self.counts = Counts("warm-up", total=self.warmup.total, since=time.monotonic())
        if self.warmup.finished:
            self._begin_measuring()

    def close(self) -> None:
        """Hand out no more tickets; users that wait for one stop."""
        self._closing.set()
        self._measuring.set()

    def take(self, workload: str) -> Ticket:
        """See `Session.take`."""
        if not self._measuring.is_set():
            if batch := self.warmup.take(1):
                return self._ticket(batch[0], workload, warmup=True)
            self._measuring.wait()
        if not self._closing.is_set() and (batch := self.measured.take(1)):
            return self._ticket(batch[0], workload, warmup=False)
        self._closing.wait()
        raise StopUser

    def prefix(self, ticket: Ticket) -> str:
        """See `Session.prefix`."""
        if self.nonce is None:
            return ""
        return hashlib.sha256(f"{self.nonce} {ticket.warmup} {ticket.index}".encode()).hexdigest()[:PREFIX_DIGITS] + " "

    def done(self, ticket: Ticket, record: RequestRecord) -> None:
        """See `Session.done`."""
        book = self.warmup if ticket.warmup else self.measured
        counts = self.counts
        counts.in_flight -= 1
        if record.status == CANCELLED:
            book.give_back(ticket.index)
        else:
            book.end()
            counts.done += 1
            counts.failed += record.status != OK
            counts.output_tokens += record.output_tokens or 0
        self.ended(record)
        if ticket.warmup and self.warmup.finished and not self._measuring.is_set():
            self._begin_measuring()
        elif not ticket.warmup and self.measured.finished:
            self.finished()

    def _ticket(self, index: int, workload: str, *, warmup: bool) -> Ticket:
        self.counts.in_flight += 1
        plan = self.plans.get(workload)
        return Ticket(index, warmup, plan.prompt(index, warmup=warmup) if plan else None)

    def _begin_measuring(self) -> None:
        self.counts = Counts("measuring", total=self.measured.total, since=time.monotonic())
        self.began()
        self._measuring.set()
