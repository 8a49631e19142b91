"""The users' side of a run in one process: their session, the wire, and how busy this process is."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import gevent

from llama_load.metrics.evidence import WorkerHealth
from llama_load.record import RequestRecord
from llama_load.swarm.arrival_users import ArrivalUsers
from llama_load.swarm.options import LoadOptions
from llama_load.swarm.rows import show
from llama_load.swarm.selfcheck import SelfCheck
from llama_load.swarm.session import Link, WorkerSession
from llama_load.targets.body import BodyOptions
from llama_load.targets.target import Target
from llama_load.wire.hub import Hub

# How long users that were stopped may take to write down what they were doing.
LAST_RECORDS_WITHIN_S = 2.0


@dataclass(frozen=True, slots=True)
class Orders:
    """What a crew must know of a run."""

    targets: Sequence[Target]
    options: LoadOptions
    body_options: BodyOptions
    nonce: str | None


class Crew:
    """The users of one process during one run. `heard` is called with every record."""

    def __init__(self, environment: Any, worker: str, orders: Orders, link: Link, heard: Callable[[RequestRecord], None]) -> None:
        self._environment = environment
        self._heard = heard
        self._check = SelfCheck(worker, [target.address for target in orders.targets])
        self._users = ArrivalUsers(environment)
        options = orders.options
        self.session = WorkerSession(
            link=link,
            worker=worker,
            targets=orders.targets,
            body_options=orders.body_options,
            dialogue=options.dialogue,
            timeouts=options.timeouts,
            save_texts=options.save_texts,
            nonce=orders.nonce,
            measuring=self._check.start,
            more_users=self._users.add,
            heard=self._record,
        )
        self._overdue = gevent.spawn(self._see_to_overdue)
        Hub.of_this_process().trust(options.tls)

    def stop_checking(self) -> None:
        """What comes now is no part of the measurement: stopping keeps Locust busy for some 70 ms."""
        self._check.stop()

    def drain(self, wait_s: float) -> None:
        """Begin nothing more, and wait so long for what is in flight."""
        self.session.close()
        with gevent.Timeout(wait_s, False) if wait_s else nullcontext():
            while wait_s and self.session.in_flight > 0:
                gevent.sleep(0.01)

    def finish(self, wait_s: float = 0) -> WorkerHealth:
        """Drain, cut what is still in flight, and wait until every record is written down."""
        self.drain(wait_s)
        self._check.stop()
        for exchange in tuple(Hub.of_this_process().active):
            exchange.cancel()
        Hub.of_this_process().close_parked()
        with gevent.Timeout(LAST_RECORDS_WITHIN_S, False):
            while self.session.in_flight > 0:
                gevent.sleep(0.01)
        self._overdue.kill(block=False)
        self._users.stop(LAST_RECORDS_WITHIN_S)
        return self._check.health()

    def _see_to_overdue(self) -> None:
        while True:
            gevent.sleep(1)
            self.session.see_to_overdue()

    def _record(self, record: RequestRecord) -> None:
        self._heard(record)
        self._environment.events.llm_request.fire(record=record)
        if not record.warmup:
            show(self._environment, record, record.output_chars)


def settle() -> None:
    """Spare the event loop full garbage collections over all that is loaded, which take some tens of ms each. To be called
    before anything is measured; in a worker before it reports to the master."""
    gc.collect()
    gc.freeze()
