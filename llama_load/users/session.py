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
    """Permission to send one request: its place in the plan, whom to ask, and its prompt if the workload brings one."""

    index: int
    warmup: bool
    prompt: Prompt | None
    target: Target
    stage: int = 0
    scheduled_ns: int | None = None


class Session(Protocol):
    """The run as its users see it."""

    body_options: BodyOptions
    timeouts: Timeouts
    worker: str
    save_texts: bool

    def take(self, workload: str) -> Ticket:
        """Wait for permission to send the next request, with the workload's prompt for it. When there is none left, wait
        until the user is stopped."""

    def prefix(self, ticket: Ticket) -> str:
        """What to put before the prompt so that no cache has seen its beginning; empty unless asked for."""

    def give_back(self, ticket: Ticket) -> None:
        """Nothing was sent for this ticket: somebody else may."""

    def abort(self, sentence: str) -> NoReturn:
        """The locustfile asks for what cannot be: say so, end the run, stop this user."""

    def done(self, ticket: Ticket, record: RequestRecord) -> None:
        """The request has ended, in whatever way. Must not block."""
