"""Looks at the answers of this process that are under way, for a page that draws their tokens."""

from __future__ import annotations

from collections.abc import Callable

import gevent
import numpy as np

from llama_load.loadgen.run.lease_client import LeaseClient
from llama_load.loadgen.users.session import AnswerUnderWay
from llama_load.loadgen.wire.transport import Transport
from llama_load.run_folder.observed.new_tokens import LOOK_EVERY_S, NewTokens

# For the sparkline of the progress line, whose steps are 1 s.
LOOK_FOR_LINE_EVERY_S = 1.0
# Answers are understood each at its turn, which takes less than this on a loop that is not late.
UNDERSTOOD_WITHIN_S = 0.03


class TokenWatch:
    """Reports the tokens of measured requests as they arrive, every `every_s`."""

    def __init__(
        self,
        client: LeaseClient,
        transport: Transport,
        report: Callable[[list[NewTokens]], None],
    ) -> None:
        self.every_s = LOOK_EVERY_S
        self._client = client
        self._transport = transport
        self._report = report
        # How many events of each answer were reported.
        self._reported: dict[AnswerUnderWay, int] = {}
        self._greenlet = gevent.spawn(self._watch)

    def stop(self) -> None:
        """Report no more."""
        self._greenlet.kill(block=False)

    def _watch(self) -> None:
        while True:
            gevent.sleep(self.every_s)
            self._transport.catch_up()
            gevent.sleep(UNDERSTOOD_WITHIN_S)
            arrived = self._new_tokens()
            if arrived:
                self._report(arrived)

    def _new_tokens(self) -> list[NewTokens]:
        arrived = []
        reported: dict[AnswerUnderWay, int] = {}
        for answer in self._client.under_way:
            if answer.lease.warmup:
                continue

            token_ns = answer.token_ns
            before = self._reported.get(answer, 0)
            if before > len(token_ns):  # it is sent again
                before = 0

            reported[answer] = len(token_ns)
            if len(token_ns) > before:
                first = max(before - 1, 0)
                instants_ns = np.array(token_ns[first:], np.int64)
                index = answer.lease.index
                new = NewTokens(index, before, answer.started_ns, instants_ns)
                arrived.append(new)

        self._reported = reported
        return arrived
