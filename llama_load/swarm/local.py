"""A run in one process: books and crew, side by side."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any

from llama_load.record import CANCELLED, RequestRecord
from llama_load.reports.results import Results
from llama_load.swarm.books import Books
from llama_load.swarm.crew import Crew, Orders, settle
from llama_load.swarm.leases import Lease
from llama_load.swarm.prepare import Prepared
from llama_load.swarm.recorder import InThread, Recorder
from llama_load.swarm.session import was_refused

WORKER = "local"


class LocalRun:
    """One run, and the `Link` between its two sides. `muster` sees that there are so many users, `stop` ends the run when it should
    end by itself."""

    def __init__(self, environment: Any, prepared: Prepared, muster: Callable[[int], None], stop: Callable[[], None]) -> None:
        options = prepared.options
        self._wait_s = options.wait_at_end_s
        self._recorder = Recorder(InThread(prepared.writer))
        runner = environment.runner
        self._books = Books(prepared, self._deliver, muster, lambda: self._stop(stop), lambda: runner.target_user_count)
        self._books.coordinator.join(WORKER)
        orders = Orders(prepared.targets, options, prepared.body_options, new_nonce(options.bust_prefix_cache))
        self._crew = Crew(environment, WORKER, orders, self, self._recorder.add)
        environment.llama_load = self._crew.session
        settle()

    @property
    def end_reason(self) -> str | None:
        """Why the run is over; None while it is not."""
        return self._books.end_reason

    def open(self) -> None:
        """Let the users begin."""
        self._books.open()

    def stopping(self, reason: str) -> None:
        """Locust stops the users: for this reason, if the run had not come to its end by itself."""
        self._books.stopping(reason)
        self._crew.drain(self._wait_s)

    def finish(self) -> tuple[Results, str]:
        """See `Books.finish`."""
        health = self._crew.finish()
        return self._books.finish([health], written=self._recorder.close())

    def _deliver(self, _: str, leases: list[Lease]) -> None:
        self._crew.session.receive(leases)

    def _stop(self, stop: Callable[[], None]) -> None:
        self._crew.stop_checking()
        stop()

    # ------------------------------------------------------------------ the link

    def want(self, workload: str, count: int) -> None:
        """See `Link.want`."""
        self._books.coordinator.want(WORKER, workload, count)

    def begun(self, lease: Lease) -> None:
        """See `Link.begun`. (Nobody can get lost here.)"""

    def give_back(self, leases: Sequence[Lease]) -> None:
        """See `Link.give_back`."""
        self._books.coordinator.give_back(WORKER, [lease.key for lease in leases])

    def ended(self, lease: Lease, record: RequestRecord) -> None:
        """See `Link.ended`."""
        if record.status == CANCELLED:
            self.give_back([lease])
        else:
            self._books.heard(record.status, record.output_tokens)
            self._books.coordinator.end(WORKER, lease.key, refused=was_refused(record))

    def abort(self, sentence: str) -> None:
        """See `Link.abort`."""
        self._books.abort(sentence)


def new_nonce(wanted: bool) -> str | None:
    """What random prefixes are drawn from, if they are wanted."""
    return secrets.token_hex(8) if wanted else None
