"""A run in one process: controller and sender together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_load.loadgen.dispatch.leases import Lease
from llama_load.loadgen.preflight.prepare import Prepared
from llama_load.loadgen.run.in_thread import in_thread
from llama_load.loadgen.run.lease_client import was_refused
from llama_load.loadgen.run.open_requests import OpenRequests
from llama_load.loadgen.run.recorder import Recorder
from llama_load.loadgen.run.sender import SenderConfig, SenderRuntime, settle
from llama_load.loadgen.run.token_watch import TokenWatch
from llama_load.loadgen.swarm.locust_run import LocustRun
from llama_load.loadgen.swarm.locust_stats import record_sink
from llama_load.loadgen.swarm.user_scaler import UserScaler
from llama_load.loadgen.wire.transport import Transport
from llama_load.run_folder import Run
from llama_load.run_folder.observed.record import CANCELLED, RequestRecord, to_batch

WORKER = "local"


class LocalRun(LocustRun):
    """One run, and the `DispatcherLink` between its two sides."""

    def __init__(
        self, environment: Any, prepared: Prepared, user_scaler: UserScaler
    ) -> None:
        super().__init__(environment, prepared, user_scaler)
        self._open = OpenRequests()
        self._recorder = Recorder(self._store, prepared.writer.path)
        self.controller.dispatcher.ledger.join(WORKER)
        sink = record_sink(environment, self._add)
        self._sender = SenderRuntime(
            environment,
            WORKER,
            SenderConfig.of(prepared),
            self,
            sink,
            tls=prepared.options.tls,
        )
        environment.llama_load = self._sender.lease_client
        self._token_watch: TokenWatch | None = None
        if every_s := self.draws_every_s(environment):
            self._token_watch = TokenWatch(
                self._sender.lease_client,
                Transport.of_this_process(),
                self.controller.live.add_tokens,
            )
            self._token_watch.every_s = every_s
        settle()

    def stopping(self, reason: str) -> None:
        """See `LocustRun.stopping`."""
        super().stopping(reason)
        self._sender.drain(self._wait_s)

    def end_wait(self) -> None:
        """See `LocustRun.end_wait`."""
        self._sender.end_wait()

    def finish(self) -> Run:
        """See `LocustRun.finish`."""
        if self._token_watch is not None:
            self._token_watch.stop()
        health = self._sender.finish()
        if left := self._recorder.close():
            self.prepared.writer.keep(to_batch(left))
            self._open.stored(left)
        self.controller.dispatcher.give_up(WORKER, self._open.keys())
        return self.controller.finish([health])

    def deliver(self, worker: str, leases: list[Lease]) -> None:
        """See `Courier.deliver`."""
        self._sender.lease_client.receive(leases)

    def sending(self) -> int:
        """See `RunHost.sending`."""
        return self._sender.lease_client.in_flight

    def gauges(self) -> dict[str, float]:
        """See `RunHost.gauges`."""
        return self._sender.monitor.gauges()

    def stop(self) -> None:
        """See `RunHost.stop`."""
        # before the users: stopping them keeps Locust busy for about 70 ms
        try:
            self._sender.monitor.stop()
        finally:
            super().stop()

    # ------------------------------------------------------------------ the link

    def want(self, workload: str, count: int) -> None:
        """See `DispatcherLink.want`."""
        self.controller.dispatcher.want(WORKER, workload, count)

    def started(self, lease: Lease) -> None:
        """See `DispatcherLink.started`."""
        self._open.begun(lease.key)

    def give_back(self, leases: Sequence[Lease]) -> None:
        """See `DispatcherLink.give_back`."""
        keys = [lease.key for lease in leases]
        self._open.given_back(keys)
        self.controller.dispatcher.give_back(WORKER, keys)

    def ended(self, lease: Lease, record: RequestRecord) -> None:
        """See `DispatcherLink.ended`."""
        if record.status == CANCELLED:
            self.controller.dispatcher.give_back(WORKER, [lease.key])
        else:
            self.controller.dispatcher.record_stored(
                WORKER, lease.key, refused=was_refused(record)
            )

    def abort(self, sentence: str) -> None:
        """See `DispatcherLink.abort`."""
        self.controller.abort(sentence)

    def _store(self, records: Sequence[RequestRecord], anywhere: bool) -> None:
        in_thread(lambda: self.prepared.writer.append(records, anywhere=anywhere))
        self._open.stored(records)

    def _add(self, record: RequestRecord) -> None:
        """A record is final."""
        self._recorder.add(record)
        self.controller.add_record(record)
