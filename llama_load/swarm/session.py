"""The run as its users see it, in one process: hands out tickets, passes records on."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from gevent.event import Event
from locust.exception import StopUser

from llama_load.record import CANCELLED, OK, RequestRecord
from llama_load.swarm.leases import LeaseBook
from llama_load.swarm.progress import Counts
from llama_load.targets.balance import Balancer
from llama_load.targets.body import BodyOptions
from llama_load.users.session import Ticket
from llama_load.wire.request import Timeouts
from llama_load.workloads.prompt import Plan

# Enough hex digits that no two prompts of a server's life begin alike.
PREFIX_DIGITS = 24


@dataclass(slots=True, kw_only=True)
class LocalSession:
    """A `Session` (see `llama_load.users.session`) whose leases are in this process.

    Warm-up first: its requests go out, and no measured one before the last of them has ended. `warmed_up` is called then,
    and `measure` wanted; `finished` is called when the last measured request has ended, `ended` with every record, `aborted`
    when a user says that the run makes no sense.
    """

    balancer: Balancer
    body_options: BodyOptions
    timeouts: Timeouts
    save_texts: bool
    worker: str
    plans: Mapping[str, Plan]
    warmup: LeaseBook
    measured: LeaseBook
    nonce: str | None  # set: begin every prompt with random text drawn from it
    warmed_up: Callable[[], None]
    finished: Callable[[], None]
    ended: Callable[[RequestRecord], None]
    aborted: Callable[[str], None]
    counts: Counts = field(default_factory=Counts)
    _warm: bool = False
    _measuring: bool = False
    _closing: bool = False
    _changed: Event = field(default_factory=Event)  # set when a user that found no ticket should look again

    def open(self) -> None:
        """Let the users begin."""
        self.counts = Counts("warm-up", total=self.warmup.total, since=time.monotonic())
        self._check_warmup()

    def close(self) -> None:
        """Hand out no more tickets; users that wait for one stop."""
        self._closing = True
        self._changed.set()

    def take(self, workload: str) -> Ticket:
        """See `Session.take`."""
        while not self._closing:
            book = self.measured if self._measuring else self.warmup
            if batch := book.take(1):
                return self._ticket(batch[0], workload, warmup=not self._measuring)
            self._changed.clear()
            self._changed.wait()
        raise StopUser

    def prefix(self, ticket: Ticket) -> str:
        """See `Session.prefix`."""
        if self.nonce is None:
            return ""
        return hashlib.sha256(f"{self.nonce} {ticket.warmup} {ticket.index}".encode()).hexdigest()[:PREFIX_DIGITS] + " "

    def give_back(self, ticket: Ticket) -> None:
        """See `Session.give_back`."""
        self.counts.in_flight -= 1
        self.balancer.ended(ticket.target)
        (self.warmup if ticket.warmup else self.measured).give_back(ticket.index)
        self._changed.set()

    def abort(self, sentence: str) -> NoReturn:
        """See `Session.abort`."""
        self.aborted(sentence)
        raise StopUser

    def done(self, ticket: Ticket, record: RequestRecord) -> None:
        """See `Session.done`."""
        if record.status == CANCELLED:
            self.give_back(ticket)
        else:
            book = self.warmup if ticket.warmup else self.measured
            book.end()
            self.balancer.ended(ticket.target, refused=record.status.startswith("connect_"))
            counts = self.counts
            counts.in_flight -= 1
            counts.done += 1
            counts.failed += record.status != OK
            counts.output_tokens += record.output_tokens or 0
        try:
            self.ended(record)
        finally:  # whatever a listener raises, the run must go on and come to its end
            if ticket.warmup:
                self._check_warmup()
            elif not ticket.warmup and self.measured.finished:
                self.finished()

    def _ticket(self, index: int, workload: str, *, warmup: bool) -> Ticket:
        self.counts.in_flight += 1
        plan = self.plans.get(workload)
        return Ticket(index, warmup, plan.prompt(index, warmup=warmup) if plan else None, self.balancer.choose())

    def measure(self) -> None:
        """Begin the measurement: from now on tickets are for measured requests."""
        self.counts = Counts("measuring", total=self.measured.total, since=time.monotonic())
        self._measuring = True
        self._changed.set()

    def _check_warmup(self) -> None:
        if self.warmup.finished and not self._warm:
            self._warm = True
            self.warmed_up()
