"""Sending a request again after 429 or 503 (--retry): how often, and after which pause."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime

from gevent import GreenletExit

from llama_load.ground.units import NS_PER_S
from llama_load.loadgen.users.session import Session
from llama_load.loadgen.wire.exchange import Exchange
from llama_load.loadgen.wire.request import Request
from llama_load.loadgen.wire.transport import Transport
from llama_load.servers.address import Address
from llama_load.servers.answer import AnswerReader

AGAIN = (429, 503)
# The pause doubles with every try, from FIRST_S on. The jitter (down to half of it) keeps refused
# requests apart.
FIRST_S = 0.25
LONGEST_S = 10.0
# A server's Retry-After is followed up to this.
LONGEST_RETRY_AFTER_S = 60.0
# Not seeded: processes that were forked from one must not pause alike.
_random = random.SystemRandom()


class Tries:
    """The tries of one request. `exchange` and `reader` are those of the last one; the exchange's
    clock starts with the first."""

    def __init__(
        self,
        session: Session,
        address: Address,
        request: Request,
        new_reader: Callable[[], AnswerReader],
    ) -> None:
        self._session = session
        self._address = address
        self._request = request
        self._new_reader = new_reader
        self.count = 0
        self.exchange: Exchange | None = None
        self.reader = new_reader()

    def run(self) -> None:
        """Send the request, and again while the server refuses it and tries are left. Blocks the
        calling greenlet."""
        exchange = self._send(None)
        while (after_s := self._pause_s(exchange)) is not None:
            refused = exchange
            try:
                if not self._session.pause(after_s):
                    refused.cancel_between_tries()
                    return
                exchange = self._send(refused)
            except GreenletExit:
                refused.cancel_between_tries()
                raise

    def _send(self, earlier: Exchange | None) -> Exchange:
        timeouts = self._session.settings.timeouts
        reader = self.reader
        if earlier is not None:
            reader = self._new_reader()

        self.exchange = Transport.of_this_process().begin(
            self._address, self._request, reader, timeouts, earlier
        )
        self.reader = reader
        self.count += 1
        self.exchange.wait()
        return self.exchange

    def _pause_s(self, exchange: Exchange) -> float | None:
        """How long to wait before the next try; None if there is none."""
        settings = self._session.settings
        if (
            exchange.status not in AGAIN
            or exchange.cancelled
            or self.count > settings.retries
        ):
            return None

        after_s = pause_s(self.count, exchange.headers)
        spent_s = (time.monotonic_ns() - exchange.stamps.started_ns) / NS_PER_S
        limit_s = settings.timeouts.request_s
        if limit_s is not None and spent_s + after_s >= limit_s:
            return None

        return after_s


def pause_s(tries: int, headers: Mapping[str, str]) -> float:
    """The pause after this many tries, s: 0.25, 0.5, 1 … up to 10, of which a random part between
    half and all; at least what the answer's Retry-After says (up to 60)."""
    doublings = min(tries - 1, 10)
    backoff_s = min(LONGEST_S, FIRST_S * 2.0**doublings)
    backoff_s *= _random.uniform(0.5, 1.0)
    asked_s = _retry_after_s(headers.get("retry-after", ""))
    asked_s = min(asked_s, LONGEST_RETRY_AFTER_S)

    return max(backoff_s, asked_s)


def _retry_after_s(value: str) -> float:
    """Seconds, or an HTTP date; 0 where it is neither."""
    if value.strip().isdecimal():
        return float(value[:9])
    with suppress(ValueError, OverflowError, TypeError):
        at_s: float = parsedate_to_datetime(value).timestamp()
        return max(0.0, at_s - time.time())
    return 0.0
