"""Checks each message of a worker before Locust or a run sees it: a malformed one costs that
message and nothing else.

Locust handles messages in one greenlet, which an exception would end: the master would never hear a
worker again. Nor may a handler stop the test or quit in that greenlet, or end a test because no
worker is left: the next one may be a good one.
"""

from __future__ import annotations

import traceback
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import gevent
import msgspec
from locust import runners
from locust.rpc import Message
from locust.runners import STATE_RUNNING, STATE_SPAWNING, STATE_STOPPED, STATE_STOPPING
from msgspec import Meta

from llama_load.loadgen.swarm import messages

# Locust counts with them in greenlets that an exception would end: int(inf) raises one, and so does
# int(nan).
Number = (
    Annotated[int, Meta(ge=-(2**62), le=2**62)]
    | Annotated[float, Meta(ge=-1e18, le=1e18)]
)
Count = Annotated[int, Meta(ge=0, le=2**62)]
UserCounts = dict[str, Count]


class _Heartbeat(TypedDict):
    state: Literal["ready", "spawning", "running", "cleanup", "stopping", "stopped"]
    current_cpu_usage: Number
    current_memory_usage: NotRequired[Number]


class _Spawned(TypedDict):
    user_classes_count: UserCounts
    user_count: Count


class _Logs(TypedDict):
    worker_id: str
    logs: list[str]


class _Exception(TypedDict):
    msg: str
    traceback: str


class _Entry(TypedDict):
    """Locust's StatsEntryDict as it is sent: response times may be fractions."""

    name: str
    method: str
    last_request_timestamp: Number | None
    start_time: Number
    num_requests: Count
    num_none_requests: Count
    num_failures: Count
    total_response_time: Number
    max_response_time: Number
    min_response_time: Number | None
    total_content_length: Number
    response_times: dict[Number, Count]
    num_reqs_per_sec: dict[int, Count]
    num_fail_per_sec: dict[int, Count]


class _Error(TypedDict):
    name: str
    method: str
    error: str
    occurrences: Count
    first_seen: NotRequired[Number | None]
    last_seen: NotRequired[Number | None]


class _Stats(_Spawned):
    stats: list[_Entry]
    stats_total: _Entry
    errors: dict[str, _Error]


class _Version(TypedDict):
    version: str


# Locust's messages of a worker, and ours. A locustfile's own have any body.
BODIES: dict[str, Any] = {
    "client_ready": str | Literal[-1],
    "locustfile": _Version,
    "client_stopped": None,
    "heartbeat": _Heartbeat,
    "stats": _Stats,
    "spawning": None,
    "spawning_complete": _Spawned,
    "logs": _Logs,
    "quit": None,
    "exception": _Exception,
    **messages.TO_MASTER,
}


def check_body(kind: str, data: Any) -> None:
    """Raises ValueError if it is not the body of such a message."""
    try:
        msgspec.convert(data, BODIES[kind])
    except msgspec.ValidationError as error:
        raise ValueError(f"{kind}: {error}") from None


def install_guard() -> None:
    """Put the guard in front of Locust's handler of messages."""
    master: Any = runners.MasterRunner
    handle = master.handle_message

    def guarded(self: Any, client_id: str, msg: Message) -> None:
        try:
            if msg.type in BODIES:
                check_body(msg.type, msg.data)
            elif msg.type not in self.custom_messages:
                raise ValueError(f"no message of a worker is named {msg.type!r}")
            if msg.type == "logs" and msg.data["worker_id"] != client_id:
                raise ValueError("logs of another worker")
            if msg.type in messages.TO_MASTER and msg.type in self.custom_messages:
                # without Locust's walk over all workers
                self.custom_messages[msg.type][0](environment=self.environment, msg=msg)
            elif msg.type == "quit":
                _remove(self, client_id)
            else:
                handle(self, client_id, msg)
        except ValueError as error:
            self.server.name_once(client_id, str(error))
        except Exception:
            self.server.name_once(client_id, traceback.format_exc())

    master.handle_message = guarded
    master.check_stopped = _check_stopped


def _remove(master: Any, client_id: str) -> None:
    """The worker quits. The test is stopped if that was the last one, in another greenlet, because
    it waits for messages.

    Locust's handler calls `quit()` there, which ends the greenlet itself: before a test the master
    would wait for workers that it no longer hears.
    """
    worker = master.clients.pop(client_id, None)
    if worker is None:
        return
    if master._users_dispatcher is not None:
        master._users_dispatcher.remove_worker(worker)

    is_test = master.state in (STATE_SPAWNING, STATE_RUNNING)
    if is_test and master.worker_count == 0:
        gevent.spawn(master.stop)


def _check_stopped(master: Any) -> None:
    """A test that is being stopped has stopped when no worker has users.

    Locust also regards a test as stopped that nobody stops, as soon as no worker runs: `stop()`
    would do nothing afterwards, and the run would never end.
    """
    has_users = any(
        worker.state in (STATE_SPAWNING, STATE_RUNNING) for worker in master.clients.all
    )
    if master.state == STATE_STOPPING and not has_users:
        master.update_state(STATE_STOPPED)
