"""The sending side of a run in one process: lease client, connections, health of the process."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import gevent

from llama_load.loadgen.options.sections.result_section import AUTO
from llama_load.loadgen.run.arrival_users import ArrivalUsers
from llama_load.loadgen.run.health import HealthMonitor
from llama_load.loadgen.run.lease_client import DispatcherLink, LeaseClient
from llama_load.loadgen.run.other_request_counter import OtherRequestsCounter
from llama_load.loadgen.run.patience import wait_until_none
from llama_load.loadgen.users.beginning import Beginning
from llama_load.loadgen.users.session import SessionSettings
from llama_load.loadgen.wire.transport import Transport
from llama_load.run_folder.observed.record import RequestRecord
from llama_load.run_folder.observed.worker_health import WorkerHealth
from llama_load.servers.expect import load_checks
from llama_load.servers.local_ports import is_loopback
from llama_load.servers.target import Target
from llama_load.servers.tls import TlsOptions

if TYPE_CHECKING:
    from llama_load.loadgen.preflight.prepare import (
        Prepared,  # which a worker does not need
    )


@dataclass(frozen=True, slots=True)
class SenderConfig:
    """All that a process that sends needs to know of a run; a master sends it to its workers."""

    targets: list[Target]
    settings: SessionSettings
    beginning: Beginning | None
    wait_at_end_s: float  # for requests in flight
    takes_priority: bool
    checks_answers: bool  # against schemas or expectations

    @classmethod
    def of(cls, prepared: Prepared) -> SenderConfig:
        """That of a prepared run."""
        options = prepared.options
        settings = SessionSettings(
            body_options=prepared.body_options,
            timeouts=options.timeouts,
            save_texts=options.save_texts,
            generated_history=options.traffic.generated_history,
            retries=options.retries,
            hang_ups=options.hang_ups,
            models=options.models,
            adapters=options.adapters,
            session_headers=options.session_headers,
        )
        return cls(
            list(prepared.targets),
            settings,
            prepared.beginning,
            options.wait_at_end_s,
            takes_priority=options.client_priority == AUTO,
            checks_answers=prepared.checks_answers,
        )


class SenderRuntime:
    """The users of one process during one run. `heard` is called with every record."""

    def __init__(
        self,
        environment: Any,
        worker: str,
        config: SenderConfig,
        link: DispatcherLink,
        heard: Callable[[RequestRecord], None],
        *,
        tls: TlsOptions,
    ) -> None:
        addresses = [target.address for target in config.targets]
        self.monitor = HealthMonitor(worker, addresses, _master_port(environment))
        self._users = ArrivalUsers(environment)
        self._others = OtherRequestsCounter(environment)
        self.lease_client = LeaseClient(
            link=link,
            settings=replace(config.settings, worker=worker),
            targets=config.targets,
            beginning=config.beginning,
            measuring=self.monitor.start,
            more_users=self._users.add,
            heard=heard,
        )
        if config.checks_answers:
            load_checks()
        self._overdue = gevent.spawn(self._see_to_overdue)
        self._waits_no_more = False
        self._transport = Transport.of_this_process()
        self.monitor.judge_thread(self._transport.receiver_thread)
        self._priority = self._transport.priority()
        if config.takes_priority:
            self._priority.take()
        self._transport.pool.trust(tls)

    def drain(self, wait_s: float) -> None:
        """Begin no more requests, and wait up to `wait_s` for those in flight."""
        self.lease_client.close()
        with gevent.Timeout(wait_s, False) if wait_s else nullcontext():
            while (
                wait_s and self.lease_client.in_flight > 0 and not self._waits_no_more
            ):
                gevent.sleep(0.01)

    def end_wait(self) -> None:
        """End the wait of `drain`."""
        self._waits_no_more = True

    def finish(self, wait_s: float = 0) -> WorkerHealth:
        """Drain, cancel the requests still in flight, and wait for their records while some come.
        The link names the others."""
        self.drain(wait_s)
        self.monitor.stop()
        self._priority.give_back()
        self.lease_client.cancel_unsent()
        for exchange in tuple(self._transport.active):
            exchange.cancel()
        self._transport.pool.close_parked()
        wait_until_none(lambda: self.lease_client.in_flight)
        self._overdue.kill(block=False)
        self._users.stop()
        self.lease_client.close_records()
        return replace(
            self.monitor.health(),
            others=self._others.close(),
            priority=self._priority.taken,
            receiver=self._transport.receiver,
        )

    def _see_to_overdue(self) -> None:
        while True:
            gevent.sleep(1)
            self.lease_client.see_to_overdue()
            self._priority.adapt()


_runs_before = count()


def settle() -> None:
    """Exclude everything loaded so far from garbage collection: a full collection over it blocks
    the event loop for tens of ms. To be called before anything is measured; in a worker before it
    reports to the master."""
    # What an earlier run of this process has left, of which some is excluded, too. Before the first
    # run a collection would look at all imports for 70 ms and find as good as nothing.
    if next(_runs_before):
        gc.unfreeze()
        gc.collect()
    gc.freeze()


def _master_port(environment: Any) -> int | None:
    """Where the master of this worker listens, if that is on this machine; None in one process."""
    options = environment.parsed_options
    if not getattr(options, "worker", False):
        return None

    host = getattr(options, "master_host", None)
    port = getattr(options, "master_port", None)
    return port if host and port and is_loopback(host) else None
