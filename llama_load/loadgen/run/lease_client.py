"""The users' side of a run in one process: users take tickets and return records. A link leads to
the dispatcher."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NoReturn, Protocol

from gevent import GreenletExit
from gevent.event import Event
from gevent.lock import Semaphore
from locust.exception import StopUser

from llama_load.ground.units import NS_PER_S
from llama_load.loadgen.dispatch.leases import Key, Lease
from llama_load.loadgen.run.open_requests import key_of
from llama_load.loadgen.users.beginning import Beginning
from llama_load.loadgen.users.sent_beginnings import SentBeginnings
from llama_load.loadgen.users.session import (
    NO_PREFIX,
    AnswerUnderWay,
    OpenRecord,
    Prefix,
    SessionSettings,
    Ticket,
)
from llama_load.loadgen.wire.timer import FINE_NS, sleep_until
from llama_load.run_folder.observed.record import RequestRecord
from llama_load.servers.target import Target

# A lease not taken this long after its scheduled time gets another user: the one started for it may
# have died or be busy.
OVERDUE_NS = NS_PER_S


class NoMoreRequests(StopUser, GreenletExit):  # type: ignore[misc]  # gevent is untyped
    """Locust stops the user. A greenlet that a task has started ends without a traceback."""


class DispatcherLink(Protocol):
    """The connection to the dispatcher: calls in one process, messages in a swarm. Nothing here
    blocks."""

    def want(self, workload: str, count: int) -> None:
        """Request `count` leases of this workload; they arrive through `LeaseClient.receive`, at
        once or later."""

    def started(self, lease: Lease) -> None:
        """A user begins to send this request."""

    def give_back(self, leases: Sequence[Lease]) -> None:
        """Return leases that will not be sent from here."""

    def ended(self, lease: Lease, record: RequestRecord) -> None:
        """The request has ended: succeeded, failed or cancelled."""

    def abort(self, sentence: str) -> None:
        """A user found that the run cannot work: end it with this sentence."""


def was_refused(record: RequestRecord) -> bool:
    """Whether the connection to the server failed."""
    return record.status.startswith("connect_")


@dataclass(slots=True)
class _LeaseQueue:
    """Where the users of one workload wait for leases."""

    # each with the further turns of its conversation
    stock: deque[list[Lease]] = field(default_factory=deque)
    requested: int = 0  # lists requested from the dispatcher and not yet received
    waiting: int = 0
    ready: Semaphore = field(default_factory=lambda: Semaphore(0))


@dataclass(slots=True, kw_only=True)
class LeaseClient:
    """A `Session` (see `llama_load.loadgen.users.session`).

    A lease that users requested goes back when none of them waits any more, so that another worker
    can send it. For a lease that no user requested (a scheduled arrival), `more_users` is called
    with its workload. `measuring` is called with the first measured lease, `heard` with every
    record.
    """

    link: DispatcherLink
    settings: SessionSettings
    targets: Sequence[Target]
    beginning: Beginning | None  # of the prompts; None: they are sent as they are
    measuring: Callable[[], None]
    more_users: Callable[[str], None]
    heard: Callable[[RequestRecord], None]
    sleep_until: Callable[[int], object] = sleep_until
    in_flight: int = 0
    under_way: set[AnswerUnderWay] = field(default_factory=set)
    open_records: dict[OpenRecord, None] = field(default_factory=dict)
    beginnings: SentBeginnings = field(default_factory=SentBeginnings)
    other_length_field: set[str] = field(default_factory=set)
    _queues: dict[str, _LeaseQueue] = field(default_factory=dict)
    _measuring: bool = False
    _closing: bool = False
    _closed: Event = field(default_factory=Event)
    _is_cancelled: Event = field(default_factory=Event)

    def receive(self, leases: Sequence[Lease]) -> None:
        """Queue leases from the dispatcher."""
        if self._closing:
            self.link.give_back(leases)
            return
        for lease in leases:
            if not lease.warmup and not self._measuring:
                self._measuring = True
                self.measuring()
            queue = self._queue_of(lease.workload)
            if lease.follows:
                queue.stock[-1].append(lease)
                continue
            queue.stock.append([lease])
            queue.requested = max(0, queue.requested - 1)
            queue.ready.release()
            if lease.unasked and len(queue.stock) > queue.waiting:
                self.more_users(lease.workload)
        for queue in self._queues.values():
            self._return_surplus(queue)

    def see_to_overdue(self) -> None:
        """Start a user for each overdue lease (see `OVERDUE_NS`). Called once a second."""
        before_ns = time.monotonic_ns() - OVERDUE_NS
        for workload, queue in self._queues.items():
            overdue = 0
            for leases in queue.stock:
                overdue += (leases[0].scheduled_ns or 0) < before_ns
            for _ in range(overdue - queue.waiting):
                self.more_users(workload)

    def wants(self) -> dict[str, int]:
        """Leases that users wait for, by workload. The dispatcher compares: single requests for
        leases may have got lost."""
        for queue in self._queues.values():
            queue.requested = (
                0 if self._closing else max(0, queue.waiting - len(queue.stock))
            )
        return {workload: queue.requested for workload, queue in self._queues.items()}

    def close(self) -> None:
        """Begin no more requests; users that wait for a lease stop."""
        self._closing = True
        self._closed.set()
        for queue in self._queues.values():
            if queue.stock:
                leases = list(chain.from_iterable(queue.stock))
                self.link.give_back(leases)
                queue.stock.clear()
            for _ in range(queue.waiting):
                queue.ready.release()

    def cancel_unsent(self) -> None:
        """End all pauses: requests that wait to be sent again are cancelled."""
        self._is_cancelled.set()

    def pause(self, seconds: float) -> bool:
        """See `Session.pause`."""
        return not self._is_cancelled.wait(seconds)

    def take(self, workload: str) -> Ticket:
        """See `Session.take`."""
        queue = self._queue_of(workload)
        leases: Sequence[Lease] = ()
        queue.waiting += 1
        try:
            while not self._closing:
                self._request_missing(workload, queue)
                queue.ready.acquire()
                if queue.stock:
                    leases = queue.stock.popleft()
                    break
        finally:
            queue.waiting -= 1
            self._return_surplus(
                queue
            )  # this user may have been killed with a lease in its queue
        if leases:
            self._wait_until_scheduled(leases)
            return self._ticket(leases)
        raise NoMoreRequests

    def follow(self, ticket: Ticket) -> Ticket:
        """See `Session.follow`."""
        if self._closing:
            raise NoMoreRequests
        return self._ticket(ticket.following)

    def abandon(self, ticket: Ticket) -> None:
        """See `Session.abandon`."""
        self.link.give_back(ticket.following)

    def prefix(self, ticket: Ticket) -> Prefix:
        """See `Session.prefix`."""
        return NO_PREFIX if self.beginning is None else self.beginning.prefix(ticket)

    def give_back(self, ticket: Ticket) -> None:
        """See `Session.give_back`."""
        self.in_flight -= 1
        self.link.give_back([ticket.lease])

    def abort(self, sentence: str) -> NoReturn:
        """See `Session.abort`."""
        self.link.abort(sentence)
        raise NoMoreRequests

    def done(self, ticket: Ticket, record: RequestRecord) -> None:
        """See `Session.done`."""
        self.in_flight -= 1
        self.link.ended(ticket.lease, record)

    def publish(self, record: RequestRecord) -> None:
        """See `Session.publish`."""
        self.heard(record)

    def held_open(self) -> list[Key]:
        """The requests that have ended and whose answers their tasks could still reject."""
        return [key_of(opened.record) for opened in self.open_records]

    def close_records(self) -> None:
        """Publish the records that tasks could still have rejected."""
        for record in tuple(self.open_records):
            record.end_with_run()

    def _queue_of(self, workload: str) -> _LeaseQueue:
        return self._queues.setdefault(workload, _LeaseQueue())

    def _request_missing(self, workload: str, queue: _LeaseQueue) -> None:
        missing = queue.waiting - len(queue.stock) - queue.requested
        if missing > 0:
            queue.requested += missing
            self.link.want(workload, missing)

    def _return_surplus(self, queue: _LeaseQueue) -> None:
        surplus = []
        while (
            len(queue.stock) > queue.waiting
            and not queue.stock[-1][0].unasked
            and queue.ready.acquire(blocking=False)
        ):
            surplus += queue.stock.pop()
        if surplus:
            self.link.give_back(surplus)

    def _wait_until_scheduled(self, leases: Sequence[Lease]) -> None:
        """Sleep until the first lease is scheduled. If the run or this user ends first, the leases
        go back."""
        scheduled_ns = leases[0].scheduled_ns
        has_come = False
        try:
            while (
                scheduled_ns is not None
                and not self._closing
                and (left_ns := scheduled_ns - time.monotonic_ns()) > 0
            ):
                if left_ns > FINE_NS:
                    self._closed.wait((left_ns - FINE_NS) / NS_PER_S)
                else:
                    self.sleep_until(scheduled_ns)
            has_come = not self._closing
        finally:
            if not has_come:
                self.link.give_back(leases)
        if not has_come:
            raise NoMoreRequests

    def _ticket(self, leases: Sequence[Lease]) -> Ticket:
        lease, *further = leases
        self.in_flight += 1
        self.link.started(lease)
        return Ticket(lease, self.targets[lease.replica], tuple(further))
