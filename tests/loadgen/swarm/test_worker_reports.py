"""What a worker reports of its requests, and in how many messages."""

from __future__ import annotations

from typing import Any

import gevent
import pytest

from llama_load.loadgen.dispatch.leases import Lease
from llama_load.loadgen.run.open_requests import OpenRequests
from llama_load.loadgen.swarm import messages
from llama_load.loadgen.swarm.worker import FLUSH_EVERY_S, WorkerRun
from tests.make_records import record

KEYS = [(False, 0), (False, 1), (False, 2)]
DELIVERY = 7
BEGUN = [(False, 0, DELIVERY), (False, 1, DELIVERY)]


class Reporting(WorkerRun):
    """A worker's run without Locust: only what it reports."""

    def __init__(self, flush_s: float, *, connected: bool = True) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.connected = connected
        self._flush_s = flush_s
        self._ends_matter = False
        self._open = OpenRequests()
        self._wants, self._started, self._ended, self._reports_soon = {}, [], [], False
        self._holding = dict.fromkeys(KEYS, DELIVERY)

    def _send(self, kind: str, data: dict[str, Any]) -> bool:
        if self.connected:
            self.sent.append((kind, data))
        return self.connected


def begin_and_want(run: Reporting) -> None:
    """Two requests begin, and then two users ask for leases."""
    for _, index, _ in BEGUN:
        run.started(Lease(index, False, "chat"))
    gevent.sleep(0)  # a turn of the loop
    run.want("chat", 1)
    run.want("chat", 1)
    gevent.sleep(0)  # a turn of the loop


def test_in_a_small_swarm_starts_are_reported_at_once() -> None:
    run = Reporting(FLUSH_EVERY_S)
    begin_and_want(run)
    starts = {"started": BEGUN, "ended": [], "wants": {}}
    assert run.sent == [
        (messages.REPORT, starts),
        (messages.REPORT, {"started": [], "ended": [], "wants": {"chat": 2}}),
    ]


def test_in_a_large_swarm_starts_go_with_the_next_request_for_leases() -> None:
    """Half the messages; without users that ask, `_keep` reports them within 0.1 s."""
    run = Reporting(4 * FLUSH_EVERY_S)
    begin_and_want(run)
    assert run.sent == [
        (messages.REPORT, {"started": BEGUN, "ended": [], "wants": {"chat": 2}})
    ]
    run.started(Lease(2, False, "chat"))
    run._report()
    assert run.sent[-1] == (
        messages.REPORT,
        {"started": [(False, 2, DELIVERY)], "ended": [], "wants": {}},
    )


@pytest.mark.parametrize("flush_s", [FLUSH_EVERY_S, 4 * FLUSH_EVERY_S])
def test_starts_that_could_not_be_sent_are_reported_later(flush_s: float) -> None:
    run = Reporting(flush_s, connected=False)
    begin_and_want(run)
    run.connected = True
    run._report()
    assert run.sent == [(messages.REPORT, {"started": BEGUN, "ended": [], "wants": {}})]


def test_the_end_of_a_cancelled_request_is_told_by_its_record_alone() -> None:
    """The master may lease it again, to this worker, as soon as it has the record: a report that
    came later would end the new lease, and one request more than asked for would be in flight."""
    run = Reporting(FLUSH_EVERY_S)
    for index, status in enumerate(["cancelled", "ok"]):
        run.ended(Lease(index, False, "chat"), record(index, status=status))
    run._report()
    assert run.sent == [
        (messages.REPORT, {"started": [], "ended": [(False, 1, False)], "wants": {}})
    ]
