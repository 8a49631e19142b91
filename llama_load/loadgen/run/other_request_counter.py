"""Counts what the locustfile does in this process besides LLM requests, from Locust's events."""

from __future__ import annotations

from typing import Any, Final

from llama_load.outside.foreign_text import printable
from llama_load.run_folder.observed.other_requests import OtherTraffic

# The context of the request events that LLM requests fire. It distinguishes them from all others.
OF_LLM: Final[dict[str, Any]] = {}
# URLs with ids in them would fill the report: requests beyond this many names share one row.
MOST_ROWS = 200
OTHERS = "(further names)"
LONGEST_TEXT = 200


class OtherRequestsCounter:
    """Listens to Locust's events from now until `close`."""

    def __init__(self, environment: Any) -> None:
        self._events = environment.events
        self.traffic = OtherTraffic()
        self._events.request.add_listener(self._requested)
        self._events.user_error.add_listener(self._raised)

    def close(self) -> OtherTraffic:
        """Stop counting; return the counts."""
        self._events.request.remove_listener(self._requested)
        self._events.user_error.remove_listener(self._raised)
        return self.traffic

    def _requested(
        self,
        request_type: str,
        name: str,
        response_time: float | None,
        exception: BaseException | None,
        **more: Any,
    ) -> None:
        if more.get("context") is OF_LLM:
            return
        known = len(self.traffic.requests) < MOST_ROWS or any(
            row.name == name for row in self.traffic.requests
        )
        if known:
            row = self.traffic.row(str(request_type), str(name))
        else:
            row = self.traffic.row("", OTHERS)
        row.add(
            response_time or 0.0,
            None if exception is None else _exception_text(exception),
        )

    def _raised(self, exception: BaseException, **_: Any) -> None:
        text = _exception_text(exception)
        known = len(self.traffic.exceptions) < MOST_ROWS or any(
            row.text == text for row in self.traffic.exceptions
        )
        self.traffic.exception(text if known else type(exception).__name__)


def _exception_text(exception: BaseException) -> str:
    """`RuntimeError: no such user`, on one line."""
    text = type(exception).__name__
    said = " ".join(str(exception).split())
    if said:
        text += f": {said}"
    return printable(text, LONGEST_TEXT)
