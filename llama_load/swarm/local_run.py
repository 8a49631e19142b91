"""A run in one process: controller and sender together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llama_load.dispatch.leases import Lease
from llama_load.live import LiveFigures
from llama_load.observed.record import CANCELLED, RequestRecord, to_batch
from llama_load.preflight.prepare import Prepared
from llama_load.reports.write import RunReports
from llama_load.run.controller import RunController
from llama_load.run.lease_client import was_refused
from llama_load.run.progress import Counts
from llama_load.run.recorder import InThread, Recorder
from llama_load.run.sender import SenderConfig, SenderRuntime, settle
from llama_load.swarm.locust_host import LocustHost
from llama_load.swarm.locust_stats import published
from llama_load.swarm.user_scaler import UserScaler

WORKER = "local"


class LocalRun(LocustHost):
    """One run, its `RunHost`, and the `DispatcherLink` between its two sides."""

    def __init__(self, environment: Any, prepared: Prepared, user_scaler: UserScaler) -> None:
        super().__init__(environment, user_scaler)
        options = prepared.options
        self._wait_s = options.wait_at_end_s
        self._writer = prepared.writer
        self._recorder = Recorder(InThread(self._writer))
        self._controller = RunController(prepared, self)
        self._controller.dispatcher.join(WORKER)
        config = SenderConfig(prepared.targets, options, prepared.body_options, prepared.beginning)
        self._sender = SenderRuntime(environment, WORKER, config, self, published(environment, self._add))
        environment.llama_load = self._sender.lease_client
        settle()

    @property
    def live(self) -> LiveFigures:
        """The figures of the requests that have ended."""
        return self._controller.live

    @property
    def counts(self) -> Counts:
        """How far the run is."""
        return self._controller.counts()

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self._writer.path

    @property
    def end_reason(self) -> str | None:
        """Why the run is over; None while it is not."""
        return self._controller.end_reason

    def open(self) -> None:
        """Begin the first phase."""
        self._controller.open()

    def stopping(self, reason: str) -> None:
        """Locust is stopping the users, for this reason unless the run has ended already."""
        self._controller.stopping(reason)
        self._sender.drain(self._wait_s)

    def cut(self) -> None:
        """Stop waiting for requests in flight."""
        self._sender.cut()

    def finish(self) -> RunReports:
        """See `RunController.finish`."""
        health = self._sender.finish()
        if left := self._recorder.close():
            self._writer.keep(to_batch(left))
        return self._controller.finish([health])

    def deliver(self, worker: str, leases: list[Lease]) -> None:
        """See `Courier.deliver`."""
        self._sender.lease_client.receive(leases)

    def sending(self) -> int:
        """See `RunHost.sending`."""
        return self._sender.lease_client.in_flight

    def gauges(self) -> dict[str, float]:
        """See `RunHost.gauges`."""
        return self._sender.gauges()

    def stop(self) -> None:
        """See `RunHost.stop`."""
        self._sender.stop_monitor()
        super().stop()

    # ------------------------------------------------------------------ the link

    def want(self, workload: str, count: int) -> None:
        """See `DispatcherLink.want`."""
        self._controller.dispatcher.want(WORKER, workload, count)

    def started(self, lease: Lease) -> None:
        """See `DispatcherLink.started`. (Not needed: no worker can be lost here.)"""

    def give_back(self, leases: Sequence[Lease]) -> None:
        """See `DispatcherLink.give_back`."""
        self._controller.dispatcher.give_back(WORKER, [lease.key for lease in leases])

    def ended(self, lease: Lease, record: RequestRecord) -> None:
        """See `DispatcherLink.ended`."""
        if record.status == CANCELLED:
            self.give_back([lease])
        else:
            self._controller.dispatcher.end(WORKER, lease.key, refused=was_refused(record))

    def abort(self, sentence: str) -> None:
        """See `DispatcherLink.abort`."""
        self._controller.abort(sentence)

    def _add(self, record: RequestRecord) -> None:
        """A record is final."""
        self._recorder.add(record)
        if record.status != CANCELLED:
            self._controller.add_record(record)
