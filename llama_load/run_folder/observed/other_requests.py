"""What a locustfile did besides LLM requests: ordinary requests (`self.client`), and exceptions in
tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class OtherRequests:
    """One row of Locust's statistics."""

    method: str
    name: str
    requests: int = 0
    failures: int = 0
    total_ms: float = 0.0  # sum of the response times
    longest_ms: float = 0.0
    error: str | None = None  # the text of the first failure

    @property
    def mean_ms(self) -> float:
        """Sum of response times / requests."""
        return self.total_ms / self.requests

    def add(self, response_ms: float, error: str | None) -> None:
        """Add a request; `error` is the failure's text, None if it succeeded."""
        self.add_all(
            OtherRequests(
                self.method,
                self.name,
                1,
                int(error is not None),
                response_ms,
                response_ms,
                error,
            )
        )

    def add_all(self, other: OtherRequests) -> None:
        """Add the requests of another process."""
        self.requests += other.requests
        self.failures += other.failures
        self.total_ms += other.total_ms
        self.longest_ms = max(self.longest_ms, other.longest_ms)
        self.error = self.error or other.error


@dataclass(slots=True)
class TaskException:
    """An exception that a task raised, and how many times: `RuntimeError: no such user`."""

    text: str
    count: int = 0


@dataclass(slots=True)
class OtherTraffic:
    """All requests and exceptions besides LLM requests, of one process or of a run."""

    requests: list[OtherRequests] = field(default_factory=list)
    exceptions: list[TaskException] = field(default_factory=list)

    def row(self, method: str, name: str) -> OtherRequests:
        """The row of this method and name, a new one if there is none."""
        for row in self.requests:
            if row.method == method and row.name == name:
                return row

        added = OtherRequests(method, name)
        self.requests.append(added)
        return added

    def exception(self, text: str, count: int = 1) -> None:
        """Add `count` exceptions with this text."""
        for exception in self.exceptions:
            if exception.text == text:
                exception.count += count
                return
        self.exceptions.append(TaskException(text, count))

    @property
    def failures(self) -> int:
        """How many requests failed."""
        return sum(row.failures for row in self.requests)

    @property
    def raised(self) -> int:
        """How many exceptions there were."""
        return sum(exception.count for exception in self.exceptions)


def in_all(parts: Iterable[OtherTraffic]) -> OtherTraffic:
    """The traffic of several processes together."""
    total = OtherTraffic()
    for part in parts:
        for row in part.requests:
            total.row(row.method, row.name).add_all(row)
        for exception in part.exceptions:
            total.exception(exception.text, exception.count)
    return total
