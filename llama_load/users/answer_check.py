"""The answer that a task gets, and what the task may say about it: `answer.fail("reason")`.

The record of a valid answer stays open while the task can still reject it: until the task has no reference to the answer any more,
until its `with` block ends, or until its next request, whichever is first. Its lease ends at once, so the load does not wait.
"""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType

from llama_load.foreign_text import printable
from llama_load.observed.record import OK, RequestRecord
from llama_load.targets.failure_kinds import LONGEST_MESSAGE, WRONG_ANSWER
from llama_load.users.session import Session


class OpenRecord:
    """A record that may still be rejected. It is published once."""

    __slots__ = ("_session", "record")

    def __init__(self, session: Session, record: RequestRecord) -> None:
        self.record = record
        self._session = session
        session.open_records.add(self)
        if record.status != OK:
            self.publish()

    @property
    def is_open(self) -> bool:
        """Whether it was not published yet."""
        return self in self._session.open_records

    def publish(self) -> None:
        """Pass it on as it is now, unless that has happened already."""
        if self.is_open:
            self._session.open_records.discard(self)
            self._session.publish(self.record)

    def reject(self, reason: str) -> None:
        """Make a valid answer a failure of the class wrong_answer. It is too late once the record was published."""
        if self.record.status != OK:
            return
        if not self.is_open:
            self._session.abort(
                "answer.fail() came too late: call it before the same task's next request, and inside the block of a `with`"
            )
        self.record = rejected(self.record, reason)
        self.publish()


def rejected(record: RequestRecord, reason: str) -> RequestRecord:
    """The record of a wrong answer: a failure, which has no latencies."""
    none = {name: None for name in ("ttft_ms", "answer_ttft_ms", "tpot_ms", "e2el_ms")}
    return replace(record, status=WRONG_ANSWER, error=printable(reason, LONGEST_MESSAGE) or "rejected", itl_ms=(), **none)


class Answer:
    """The result of a task's request: the answer's text and reasoning, as far as the server sends them (both empty after a
    failure; with `n` above 1, the first choice's), and the full record.

    A task that finds the answer wrong calls `fail`. As in Locust, it can be the subject of a `with` statement.
    """

    __slots__ = ("_open", "reasoning", "text")

    def __init__(self, text: str, record: OpenRecord, reasoning: str = "") -> None:
        self.text = text
        self.reasoning = reasoning
        self._open = record

    @property
    def record(self) -> RequestRecord:
        """Everything that was measured."""
        return self._open.record

    @property
    def ok(self) -> bool:
        """Whether this was a valid, complete answer that was not rejected."""
        return self.record.status == OK

    def fail(self, reason: str) -> None:
        """Reject the answer: its request becomes a failure of the class wrong_answer, with this reason, and has no latencies.

        To be called before the same task's next request. A request that failed already keeps its own failure.
        """
        self._open.reject(str(reason))

    def failure(self, reason: str | Exception) -> None:
        """`fail`, by the name that Locust's responses have for it."""
        self.fail(str(reason))

    def success(self) -> None:
        """Accept the answer now. (Unlike with Locust's responses, a failed request cannot become a success: it has no latencies.)"""
        self._open.publish()

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.publish()

    def __del__(self) -> None:
        self._open.publish()
