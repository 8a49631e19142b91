"""The answer that a task gets, and what the task may say about it: `answer.fail("reason")`.

The record of a valid answer stays open while the task can still reject it: until the task has no
reference to the answer any more, until its `with` block ends, or until its next request, whichever
is first. Its lease ends at once, so the load does not wait.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from types import TracebackType

from llama_load.ground.failure_kind import FailureKind
from llama_load.loadgen.users.session import OpenRecord
from llama_load.outside.foreign_text import printable
from llama_load.run_folder.observed.record import OK, RequestRecord
from llama_load.servers.prompt import ToolCall
from llama_load.servers.server_errors import LONGEST_MESSAGE


def rejected(record: RequestRecord, reason: str) -> RequestRecord:
    """The record of a wrong answer: a failure, which has no latencies."""
    error = printable(" ".join(reason.split()), LONGEST_MESSAGE) or "rejected"
    wrong = replace(record, status=FailureKind.WRONG_ANSWER, error=error, itl_ms=())
    return replace(wrong, ttft_ms=None, answer_ttft_ms=None, tpot_ms=None, e2el_ms=None)


class Answer:
    """The result of a task's request: the answer's text and reasoning, as far as the server sends
    them (both empty after a failure; with `n` above 1, the first choice's), its tool calls, and the
    full record.

    A task that finds the answer wrong calls `fail`. As in Locust, it can be the subject of a `with`
    statement.
    """

    __slots__ = ("_open", "calls", "reasoning", "text")

    def __init__(
        self,
        text: str,
        record: OpenRecord,
        reasoning: str = "",
        calls: tuple[ToolCall, ...] = (),
    ) -> None:
        self.text = text
        self.reasoning = reasoning
        self.calls = calls
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
        """Reject the answer: its request becomes a failure of the class wrong_answer, with this
        reason, and has no latencies.

        To be called before the same task's next request. A request that failed already keeps its
        own failure.
        """
        opened = self._open
        if opened.record.status != OK or opened.ended_with_run:
            return
        if not opened.is_open:
            opened.session.abort(
                "answer.fail() came too late: call it before the same task's next request, and "
                "inside the block of a `with`"
            )
        opened.record = rejected(opened.record, str(reason))
        opened.publish()

    def failure(self, reason: str | Exception) -> None:
        """`fail`, by the name that Locust's responses have for it."""
        self.fail(str(reason))

    def success(self) -> None:
        """Accept the answer now. (Unlike in Locust, a failed request stays a failure: it has no
        latencies.)"""
        self._open.publish()

    def __enter__(self) -> Answer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.publish()

    def __del__(self) -> None:
        # What a listener raises to stop or repeat a task has no task here; other exceptions of
        # listeners were logged by Locust.
        with suppress(Exception):
            self._open.publish()
