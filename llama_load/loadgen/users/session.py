"""What a user class needs from a run: permission to send, the target, and a receiver of records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol

from llama_load.loadgen.dispatch.leases import Lease
from llama_load.loadgen.users.hang_ups import HangUps
from llama_load.loadgen.users.sent_beginnings import SentBeginnings
from llama_load.loadgen.users.session_tokens import NO_SESSIONS, SessionHeaders
from llama_load.loadgen.wire.request import Timeouts
from llama_load.run_folder.observed.record import OK, RequestRecord
from llama_load.servers.body import BodyOptions
from llama_load.servers.target import Target
from llama_load.servers.weighted_choice import ONE_FOR_ALL, WeightedChoice


@dataclass(frozen=True, slots=True)
class Ticket:
    """Permission to send one request: its lease, its server, and the leases of the further turns of
    its conversation."""

    lease: Lease
    target: Target
    following: tuple[Lease, ...] = ()


@dataclass(frozen=True, slots=True)
class Prefix:
    """Text before a prompt, and its number of tokens; None: not counted."""

    text: str
    tokens: int | None


NO_PREFIX = Prefix("", 0)


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What all users of a run share, and the name of their process (`worker`)."""

    body_options: BodyOptions
    timeouts: Timeouts
    save_texts: bool
    # conversations go on with the model's own answers, not with the recorded ones
    generated_history: bool = True
    retries: int = 0  # how often a request that was refused as overloaded is sent again
    hang_ups: HangUps | None = None  # which requests are given up
    models: WeightedChoice = ONE_FOR_ALL
    adapters: WeightedChoice = ONE_FOR_ALL
    session_headers: SessionHeaders = NO_SESSIONS
    worker: str = ""


class AnswerUnderWay(Protocol):
    """A request whose answer is being received."""

    @property
    def lease(self) -> Lease:
        """Its lease."""

    @property
    def started_ns(self) -> int:
        """When it was started; 0: not yet."""

    @property
    def token_ns(self) -> Sequence[int]:
        """When each event with tokens arrived, as far as they are understood."""


class Session(Protocol):
    """The run as its users see it."""

    settings: SessionSettings
    under_way: set[AnswerUnderWay]
    # of ended requests, not published yet, in their order
    open_records: dict[OpenRecord, None]
    beginnings: SentBeginnings  # of answered prompts without a conversation
    # URLs of servers that want the answer's length as max_completion_tokens
    other_length_field: set[str]

    def take(self, workload: str) -> Ticket:
        """Wait for permission to send the next request, with the workload's prompt for it. When no
        request is left, wait until the user is stopped."""

    def follow(self, ticket: Ticket) -> Ticket:
        """Permission for the next turn of this ticket's conversation, which must have one."""

    def abandon(self, ticket: Ticket) -> None:
        """No user here will send the turns that follow this ticket."""

    def prefix(self, ticket: Ticket) -> Prefix:
        """Text to put before the prompt so that no cache has its beginning."""

    def pause(self, seconds: float) -> bool:
        """Wait before a request is sent again. False: the run is cut off meanwhile."""

    def give_back(self, ticket: Ticket) -> None:
        """Nothing was sent for this ticket: return it for another user."""

    def abort(self, sentence: str) -> NoReturn:
        """The locustfile requests something impossible: report it, end the run, stop this user."""

    def done(self, ticket: Ticket, record: RequestRecord) -> None:
        """The request has ended, successfully or not: another may be sent. Must not block."""

    def publish(self, record: RequestRecord) -> None:
        """The record of an ended request is final. Must not block."""


class OpenRecord:
    """The record of an ended request, which its task may still reject if the answer is valid. It is
    published once."""

    __slots__ = ("ended_with_run", "record", "session")

    def __init__(self, session: Session, record: RequestRecord) -> None:
        self.record = record
        self.session = session
        self.ended_with_run = False
        session.open_records[self] = None
        if record.status != OK:
            self.publish()

    @property
    def is_open(self) -> bool:
        """Whether it was not published yet."""
        return self in self.session.open_records

    def end_with_run(self) -> None:
        """The run is over before the task is: what the task says of its answer comes too late, and
        that is no mistake."""
        self.ended_with_run = True
        self.publish()

    def publish(self) -> None:
        """Pass it on as it is now, unless that has happened already."""
        if self.is_open:
            del self.session.open_records[self]
            self.session.publish(self.record)
