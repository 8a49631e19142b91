"""What a user class needs from a run: permission to send, the target, and somebody to tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn, Protocol

from llama_load.record import RequestRecord
from llama_load.targets.body import BodyOptions
from llama_load.targets.target import Target
from llama_load.wire.request import Timeouts
from llama_load.workloads.prompt import Prompt


@dataclass(frozen=True, slots=True)
class Ticket:
    """Permission to send one request: its index in the run, whom to ask, and its prompt if the workload brings one."""

    index: int
    warmup: bool
    prompt: Prompt | None
    target: Target
    following: tuple[tuple[bool, int], ...] = ()  # the further turns of the conversation: (warm-up?, place)
    stage: int = 0
    scheduled_ns: int | None = None  # when the load model wants it; None in a closed loop
    allowed_ns: int | None = None  # since when the limit of requests in flight allowed it, if that was later


@dataclass(frozen=True, slots=True)
class Dialogue:
    """How conversations go on: with the model's own answers as history or the recorded ones, and after how long a thought."""

    generated: bool = True
    think_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What all users of a process have in common: its name, what goes into bodies, how conversations go on, how long answers may
    take, and whether texts are kept."""

    worker: str
    body_options: BodyOptions
    dialogue: Dialogue
    timeouts: Timeouts
    save_texts: bool


class Session(Protocol):
    """The run as its users see it."""

    settings: SessionSettings

    def take(self, workload: str) -> Ticket:
        """Wait for permission to send the next request, with the workload's prompt for it. When there is none left, wait
        until the user is stopped."""

    def follow(self, ticket: Ticket) -> Ticket:
        """Permission for the next turn of the conversation that this ticket is of, which must have one."""

    def abandon(self, ticket: Ticket) -> None:
        """Nobody here will send the turns that follow this one."""

    def prefix(self, ticket: Ticket) -> str:
        """What to put before the prompt so that no cache has seen its beginning; empty unless asked for."""

    def give_back(self, ticket: Ticket) -> None:
        """Nothing was sent for this ticket: somebody else may."""

    def abort(self, sentence: str) -> NoReturn:
        """The locustfile asks for what cannot be: say so, end the run, stop this user."""

    def done(self, ticket: Ticket, record: RequestRecord) -> None:
        """The request has ended, in whatever way. Must not block."""
