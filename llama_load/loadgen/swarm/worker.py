"""The worker's side of a swarm: it receives leases and sends records as messages."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gevent
import msgspec
from gevent.event import Event
from locust import runners
from locust.rpc import Message
from locust.runners import STATE_RUNNING, STATE_SPAWNING

from llama_load.ground.errors import LlamaLoadError
from llama_load.ground.version import __version__
from llama_load.loadgen.dispatch.leases import Key, Lease
from llama_load.loadgen.options.options import read_options
from llama_load.loadgen.run.in_thread import in_thread
from llama_load.loadgen.run.lease_client import was_refused
from llama_load.loadgen.run.open_requests import OpenRequests
from llama_load.loadgen.run.recorder import Recorder
from llama_load.loadgen.run.sender import SenderRuntime, settle
from llama_load.loadgen.run.token_watch import TokenWatch
from llama_load.loadgen.swarm import messages, presence
from llama_load.loadgen.swarm.lease_packing import unpack_leases
from llama_load.loadgen.swarm.locust_stats import record_sink
from llama_load.loadgen.swarm.master_watch import MasterWatch
from llama_load.loadgen.swarm.messages import short_name
from llama_load.loadgen.swarm.outbox import SPOOL_AFTER_S, Outbox
from llama_load.loadgen.swarm.own_keys import with_own_keys
from llama_load.loadgen.swarm.signals import SIGNALS, Signals
from llama_load.loadgen.wire.transport import Transport
from llama_load.run_folder import SpoolManifest
from llama_load.run_folder.observed.new_tokens import NewTokens
from llama_load.run_folder.observed.record import CANCELLED, RequestRecord
from llama_load.run_folder.observed.worker_health import WorkerHealth
from llama_load.run_folder.spool import Spool

# exit code of a worker without a master, or with records that no master took
GAVE_UP = 1
FLUSH_EVERY_S = 0.1
# Records wait this long at least while the master is behind: fewer and larger batches cost it less.
FLUSH_BEHIND_S = 0.5
# How long to wait at the end for acknowledgements from a master that is heard.
# (`presence.LOST_AFTER_S` from a silent one.)
ACKNOWLEDGED_WITHIN_S = 60.0
# A worker that leaves says its last word until the master has heard it, but no longer: a connection
# that was reset is back within 0.5 s.
HEARD_WITHIN_S = 3.0
SAY_AGAIN_EVERY_S = 0.5
# A worker that has users or pings of a run whose configuration it does not have asks for it this
# often.
ASK_AGAIN_EVERY_S = 2.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """What ties a worker to its machine: a simulation has others."""

    sender: type[SenderRuntime] = SenderRuntime
    spool: Callable[[Path, SpoolManifest], Spool] = Spool
    settle: Callable[[], None] = settle


class WorkerLifecycle:
    """One worker process: receives the master's messages, and has a `WorkerRun` while Locust has
    users here."""

    def __init__(
        self,
        environment: Any,
        signals: Signals = SIGNALS,
        watch: Callable[[Any, Callable[[str], None]], MasterWatch] = MasterWatch,
        parts: WorkerParts | None = None,
    ) -> None:
        self._environment = environment
        self._signals = signals
        self._parts = parts or WorkerParts()
        self._runner = environment.runner
        self._config: messages.RunConfig | None = None
        self._run: WorkerRun | None = None
        self._last_run: WorkerRun | None = None
        environment.llama_load = None
        self._is_interrupted = False
        self._is_quitting = False
        self._has_given_up = False
        self._has_refused = False  # the newest configuration
        self._greeted_s = time.monotonic()
        # to the master's clock in the present run
        self._clock_offset_ns: int | None = None
        for kind in messages.TO_WORKER:
            self._runner.register_message(
                kind, self._heard, concurrent=kind == messages.END
            )
        environment.events.test_start.add_listener(self._on_test_start)
        environment.events.test_stop.add_listener(self._on_test_stop)
        environment.events.quitting.add_listener(self._on_quitting)
        self._parts.settle()
        signals.listen(self._interrupted)
        self._master = watch(self._runner, self._master_gone)
        self._runner.send_message(messages.HELLO, presence.introduction())

    def _heard(self, msg: Any, **_: Any) -> None:
        if msg.type == messages.RUN:
            self._master.introduce(msg.data.get("master", {}))
            self._take_config(msg.data)
            return
        name = msg.data["run"]
        run = next(
            (
                run
                for run in (self._run, self._last_run)
                if run is not None and run.name == name
            ),
            None,
        )
        if msg.type == messages.PING:
            answer = {
                "run": name,
                "asked_ns": msg.data["asked_ns"],
                "worker_ns": time.monotonic_ns(),
            }
            self._clock_offset_ns = msg.data["offset_ns"]
            if run is not None:
                answer |= run.answer(msg.data)
            self._runner.send_message(messages.PONG, answer)
            if run is None and (self._config is None or self._config.run != name):
                self._ask_for_config()
        elif run is not None:
            run.on_message(msg.type, msg.data)
        elif (
            msg.type == messages.END
        ):  # this worker had no users in that run: nothing to wait for
            health = msgspec.to_builtins(
                WorkerHealth(short_name(self._runner.client_id))
            )
            self._runner.send_message(
                messages.FLUSHED,
                {
                    "run": name,
                    "batches": 0,
                    "open": [],
                    "gave_up": False,
                    "health": health,
                },
            )

    def _ask_for_config(self) -> None:
        """The message that had it was lost with a connection. The master sends it to whom it hears
        for the first time."""
        now_s = time.monotonic()
        if not self._has_refused and now_s - self._greeted_s > ASK_AGAIN_EVERY_S:
            self._greeted_s = now_s
            self._runner.send_message(messages.HELLO, presence.introduction())

    def _take_config(self, data: dict[str, Any]) -> None:
        self._config = None
        self._clock_offset_ns = None
        self._has_refused = False
        theirs = data.get("version", "another version")
        if theirs != __version__:
            self._refuse(
                f"runs llama-load {__version__}, the master {theirs}; install the same on both"
            )
            return
        if data.get("fingerprint") != messages.fingerprint():
            self._refuse(
                f"runs llama-load {__version__} like the master, but from other files; install the same on both"
            )
            return
        config = msgspec.msgpack.decode(data["config"], type=messages.RunConfig)
        known = {user.__name__ for user in self._environment.user_classes} | set(
            self._environment.available_user_classes or ()
        )
        if missing := [name for name in config.user_classes if name not in known]:
            self._refuse(
                f"has no user class {missing[0]}, which the master's locustfile has: start both with the same locustfile, or, if "
                "they belong to different swarms, give each swarm its port (--master-bind-port on the master, --master-port here)"
            )
            return
        # that run's end message has not arrived
        if self._run is not None and self._run.name != config.run:
            self._on_test_stop()
        self._config = config
        if self._runner.worker_state in (STATE_SPAWNING, STATE_RUNNING):
            self._begin()  # a late worker: its users already wait

    def _on_test_start(self, **_: Any) -> None:
        self._begin()
        if self._config is None:
            gevent.spawn(self._ask_while_users_wait)

    def _ask_while_users_wait(self) -> None:
        """A master that began this run before it knew this worker pings it only after it has
        asked."""
        gevent.sleep(ASK_AGAIN_EVERY_S)
        while self._config is None and self._runner.worker_state in (
            STATE_SPAWNING,
            STATE_RUNNING,
        ):
            self._ask_for_config()
            gevent.sleep(ASK_AGAIN_EVERY_S)

    def _begin(self) -> None:
        if self._config is None or self._run is not None:
            return
        # Locust still hears the master while the last records are delivered: a message to spawn
        # users may have been under way for long.
        if self._is_quitting:
            return
        try:
            self._run = WorkerRun(
                self._environment,
                self._config,
                self._master,
                self._clock_offset_ns,
                self._parts,
            )
        except (LlamaLoadError, OSError) as error:
            self._refuse(str(error))

    def _on_test_stop(self, **_: Any) -> None:
        if self._run is not None:
            self._last_run = self._run
            self._run = None
            self._config = self._environment.llama_load = None
            is_waiting = self._is_interrupted and not self._master.look()
            self._last_run.finish(self._last_run.wait_at_end_s if is_waiting else 0)

    def _master_gone(self, sentence: str) -> None:
        if not self._is_quitting:
            self._has_given_up = True
            logger.error("%s", sentence)
            self._signals.throw(KeyboardInterrupt())

    def _interrupted(self, count: int) -> None:
        """Ctrl-C or SIGTERM, for the first or second time (see `llama_load.loadgen.swarm.signals`)."""
        self._is_interrupted = True
        run = self._run or self._last_run
        if count > 1 and run is not None:
            run.end_wait()
        if not self._is_quitting:
            self._signals.throw(KeyboardInterrupt())

    def _on_quitting(self, **_: Any) -> None:
        self._is_quitting = True
        self._on_test_stop()
        if self._last_run is not None:
            self._has_given_up |= not self._last_run.leave()
        if self._has_given_up or self._is_unheard():
            self._environment.process_exit_code = GAVE_UP

    def _is_unheard(self) -> bool:
        """Whether Locust ends this worker because the master was silent for a minute."""
        heard_s = self._runner.last_heartbeat_timestamp
        return (
            heard_s is not None
            and time.time() - heard_s > runners.MASTER_HEARTBEAT_TIMEOUT
        )

    def _refuse(self, sentence: str) -> None:
        self._has_refused = True
        logger.error("%s", sentence)
        self._runner.send_message(
            messages.REFUSE, {"sentence": sentence[: messages.MOST_CHARACTERS]}
        )


class WorkerRun:
    """One run on this worker, and the `DispatcherLink` of its sender to the master."""

    def __init__(
        self,
        environment: Any,
        config: messages.RunConfig,
        master: MasterWatch,
        clock_offset_ns: int | None,
        parts: WorkerParts,
    ) -> None:
        self.name = config.run
        self._master = master
        self._ends_matter = config.ends_matter
        self._runner = environment.runner
        own = read_options(environment.parsed_options)
        self.wait_at_end_s = config.sender.wait_at_end_s
        name = short_name(self._runner.client_id)
        spool = Path("runs") / f"spool-{name}-{time.strftime('%Y%m%d-%H%M%S')}"
        about = SpoolManifest(name, clock_offset_ns, config.wall_offset_ns)
        self._outbox = Outbox(spool, about, self._send_batch, new_spool=parts.spool)
        # Leases received and neither given back nor with an acknowledged record, with the numbers
        # of their deliveries.
        self._holding: dict[Key, int] = {}
        self._heard_s = self._acknowledged_s = time.monotonic()
        self._flush_s = FLUSH_EVERY_S
        self._connection: tuple[Any, int] | None = None
        self._last_word: dict[str, Any] | None = None
        self._is_heard = False  # that word
        self._open = OpenRequests()
        self._recorder = Recorder(self._store, spool, FLUSH_EVERY_S)
        self._sender = parts.sender(
            environment,
            name,
            with_own_keys(config, own),
            self,
            record_sink(environment, self._recorder.add),
            tls=own.tls,
        )
        environment.llama_load = self._sender.lease_client
        self._token_watch: TokenWatch | None = None
        self._draws_every_s = config.draws_every_s
        if config.draws_every_s:
            self._token_watch = TokenWatch(
                self._sender.lease_client,
                Transport.of_this_process(),
                self._send_tokens,
            )
        # Not yet reported: begun requests, ended ones with whether the connection failed, and users
        # that wait, by workload.
        self._started: list[tuple[bool, int, int]] = []
        self._ended: list[tuple[bool, int, bool]] = []
        self._wants: dict[str, int] = {}
        self._reports_soon = False
        self._is_finishing = False
        self._is_tidy = False
        self._flushed = Event()
        self._keepers = [gevent.spawn(self._keep), gevent.spawn(self._spool)]
        self._tidying: gevent.Greenlet | None = None

    def on_message(self, kind: str, data: dict[str, Any]) -> None:
        """Handle the master's message."""
        self._heard_s = time.monotonic()
        if kind == messages.LEASES:
            leases = unpack_leases(data["leases"])
            for lease in leases:
                self._holding[lease.key] = data["delivery"]
            self._sender.lease_client.receive(leases)
        elif kind == messages.ACK:
            self._acknowledged_s = time.monotonic()
            self._hold_no_more(self._outbox.acknowledged(data["numbers"]))
        elif kind == messages.HEARD:
            self._is_heard = True
        elif kind == messages.END and self._last_word is not None:
            self._send(messages.FLUSHED, self._last_word)  # the first one was lost
        elif kind == messages.END:
            if not data["wait_s"]:
                self.end_wait()
            self.finish(wait_s=data["wait_s"])

    def answer(self, ping: dict[str, Any]) -> dict[str, Any]:
        """The pong's content: which leases this worker holds and needs. Takes the clock offset from
        the ping."""
        self._heard_s = time.monotonic()
        self._outbox.about.clock_offset_ns = ping["offset_ns"]
        self._flush_s = float(ping["batch_every_s"])
        if self._token_watch is not None:
            self._token_watch.every_s = max(self._draws_every_s, self._flush_s)
        if self._is_finishing:
            return {}
        self._wants = {}  # they are in this answer
        return {
            "delivered": ping["delivered"],
            "holds": list(self._holding),
            "held_open": self._sender.lease_client.held_open(),
            "wants": self._sender.lease_client.wants(),
        }

    def finish(self, wait_s: float = 0) -> None:
        """Begin no more requests, wait `wait_s` for those in flight, cancel the rest, send all
        records and FLUSHED."""
        if self._is_finishing:
            self._flushed.wait()
            return
        self._is_finishing = True
        if self._token_watch is not None:
            self._token_watch.stop()
        try:
            health = self._sender.finish(wait_s)
            self._recorder.close()
            self._tidying = gevent.spawn(self._tidy)
            self._last_word = {
                "batches": self._outbox.batches,
                "open": self._open.keys(),
                "gave_up": False,
                "health": msgspec.to_builtins(health),
            }
            self._send(messages.FLUSHED, self._last_word)
        finally:
            self._flushed.set()

    def end_wait(self) -> None:
        """Stop waiting for requests in flight."""
        self._sender.end_wait()

    def leave(self) -> bool:
        """Before the process ends: deliver or spool all records. Returns whether the master has
        them all."""
        self.finish()
        if self._tidying is not None:
            self._tidying.join()
        self._repeat_last_word()
        return self._outbox.all_arrived

    def _repeat_last_word(self) -> None:
        """It may have been lost with a connection. The master would name what this worker held."""
        begun_s = said_s = time.monotonic()
        while not self._is_heard and not self._master.look():
            now_s = time.monotonic()
            if now_s - begun_s > HEARD_WITHIN_S:
                return
            if now_s - said_s > SAY_AGAIN_EVERY_S and self._last_word is not None:
                said_s = now_s
                self._send(messages.FLUSHED, self._last_word)
            gevent.sleep(0.05)

    # ------------------------------------------------------------------ the link

    def want(self, workload: str, count: int) -> None:
        """See `DispatcherLink.want`."""
        self._wants[workload] = self._wants.get(workload, 0) + count
        self._report_soon()

    def started(self, lease: Lease) -> None:
        """See `DispatcherLink.started`."""
        self._open.begun(lease.key)
        self._started.append((*lease.key, self._holding.get(lease.key, 0)))
        if (
            self._flush_s <= FLUSH_EVERY_S
        ):  # in a large swarm within 0.1 s: half the messages
            self._report_soon()

    def give_back(self, leases: Sequence[Lease]) -> None:
        """See `DispatcherLink.give_back`."""
        keys = [lease.key for lease in leases]
        self._hold_no_more(keys)
        self._open.given_back(keys)
        self._started = [begun for begun in self._started if begun[:2] not in keys]
        self._send(messages.BACK, {"keys": keys})

    def ended(self, lease: Lease, record: RequestRecord) -> None:
        """See `DispatcherLink.ended`. A cancelled request may be leased again: its record alone
        says that it has ended, because a report that came later would end the new lease."""
        if record.status == CANCELLED:
            return
        self._ended.append((*lease.key, was_refused(record)))
        if self._ends_matter:  # other requests wait for it
            self._report_soon()

    def abort(self, sentence: str) -> None:
        """See `DispatcherLink.abort`."""
        self._send(messages.ABORT, {"sentence": sentence[: messages.MOST_CHARACTERS]})

    def _hold_no_more(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._holding.pop(key, None)

    def _send_tokens(self, arrived: list[NewTokens]) -> None:
        answers = messages.pack_tokens(arrived)
        self._send(messages.TOKENS, {"answers": answers})

    def _report_soon(self) -> None:
        """One message for all that happens within an iteration of the event loop."""
        if not self._reports_soon:
            self._reports_soon = True
            gevent.get_hub().loop.run_callback(self._report)

    def _report(self) -> None:
        self._reports_soon = False
        if not (self._started or self._ended or self._wants):
            return
        if self._send(
            messages.REPORT,
            {"started": self._started, "ended": self._ended, "wants": self._wants},
        ):
            self._started = []
            self._ended = []
        self._wants = {}  # if this was not sent, they are in the next pong

    # ------------------------------------------------------------------ in the background

    def _keep(self) -> None:
        while not self._is_tidy:
            gevent.sleep(FLUSH_EVERY_S)
            self._report()
            client = self._runner.client
            if self._connection != (client, client.connections):
                self._connection = client, client.connections
                self._outbox.connected_again()
            self._outbox.send_waiting()
            self._recorder.every_s = (
                max(self._flush_s, FLUSH_BEHIND_S)
                if self._outbox.is_behind
                else self._flush_s
            )

    def _spool(self) -> None:
        while not self._is_tidy:
            gevent.sleep(SPOOL_AFTER_S / 2)
            self._write_spool()

    def _write_spool(self, older_than_s: float = SPOOL_AFTER_S) -> None:
        in_thread(lambda: self._outbox.spool(older_than_s))

    def _tidy(self) -> None:
        since = time.monotonic()
        while (
            not self._outbox.all_arrived
            and time.monotonic() - max(self._acknowledged_s, since)
            < ACKNOWLEDGED_WITHIN_S
        ):
            if (
                self._master.look()
                or time.monotonic() - max(self._heard_s, since) > presence.LOST_AFTER_S
            ):
                break
            gevent.sleep(0.05)
        self._is_tidy = True
        gevent.joinall(self._keepers)
        if self._outbox.all_arrived:
            self._outbox.discard_spool()
            return
        # a master that asks again hears that nothing more will come
        if self._last_word is not None:
            self._last_word["gave_up"] = True
            self._is_heard = False
            self._send(messages.FLUSHED, self._last_word)
        self._write_spool(older_than_s=0)
        if self._outbox.all_spooled:
            in_thread(self._outbox.close_spool)
            spools = " ".join(f"--add {path}" for path in self._outbox.spooled_to)
            logger.error(
                "the master did not receive all records: 'llama-load report RUN %s' adds them",
                spools,
            )
        else:
            logger.error(
                "the master did not receive all records, and this machine's disk refused the rest: records are lost"
            )

    def _store(self, records: Sequence[RequestRecord], anywhere: bool) -> None:
        self._outbox.append(records, anywhere)
        self._open.stored(records)

    def _send_batch(self, number: int, data: bytes) -> bool:
        return bool(
            self._runner.client.send_batch(
                messages.pack_header(number, self.name), data
            )
        )

    def _send(self, kind: str, data: dict[str, Any]) -> bool:
        """Send it now; False if the connection is closed or its queue is full: the next pong
        repeats the state of leases."""
        message = Message(kind, data | {"run": self.name}, self._runner.client_id)
        return bool(self._runner.client.send_now(message))
