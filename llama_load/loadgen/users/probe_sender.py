"""Sends a probe: a small request that is always the same amount of work (--probe-rate)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from llama_load.loadgen.dispatch.leases import Lease
from llama_load.loadgen.users.long_texts import text_digest
from llama_load.loadgen.users.measure import SentRequest, make_record, new_request_id
from llama_load.loadgen.users.request_headers import filled
from llama_load.loadgen.users.session import SessionSettings, Ticket
from llama_load.loadgen.wire.request import Request, Timeouts
from llama_load.loadgen.wire.transport import Transport
from llama_load.run_folder.observed.probe_names import PROBE
from llama_load.run_folder.observed.record import RequestRecord
from llama_load.servers.apis import APIS
from llama_load.servers.body import LENGTH_FIELDS, BodyOptions, asked_tokens
from llama_load.servers.target import Target
from llama_load.servers.tls import TlsOptions

# Enough tokens to time an answer, few enough to cost the server next to nothing.
ANSWER_TOKENS = 8
# The same number of tokens in every probe: numbers of three digits are one token each, or three, in
# every tokenizer.
TEXT = (
    "{} {} {} {}: write these four numbers as words, then go on counting from the last one, a "
    "number on each line."
)
# Fields of --extra-body that would make a probe another request.
_OWN_FIELDS = (
    *(*LENGTH_FIELDS, "stream", "stream_options", "n", "best_of", "cache_prompt"),
    *("response_format", "json_schema", "grammar"),
)
# Not seeded: no cache may hold a probe of an earlier run.
_random = random.SystemRandom()


class ProbeSender:
    """Sends probes to the servers of a run, on connections and with a transport of its own: no
    probe waits for the load's requests in this process, and what ends these at the end of a run
    does not end probes. Made in the process and loop that uses it."""

    def __init__(
        self,
        targets: Sequence[Target],
        body_options: BodyOptions,
        timeouts: Timeouts,
        tls: TlsOptions,
        worker: str,
    ) -> None:
        self._targets = targets
        # The prompt cache is off where a switch turns it off; elsewhere each prompt begins with new
        # numbers.
        extra = {}
        for name, value in body_options.extra.items():
            if name not in _OWN_FIELDS:
                extra[name] = value

        self._options = replace(
            body_options,
            max_tokens=ANSWER_TOKENS,
            temperature=0.0,
            cache_prompt=False,
            stream=True,
            extra=extra,
            form=None,
        )
        self._api = APIS[body_options.endpoint]
        self._settings = SessionSettings(
            self._options, timeouts, save_texts=False, worker=worker
        )
        self._transport = Transport.of_this_process(PROBE)
        self._transport.pool.trust(tls)

    def send(
        self, number: int, replica: int, name: str, scheduled_ns: int | None = None
    ) -> RequestRecord:
        """Send a probe and wait for the end of its answer; its record. Blocks the calling
        greenlet."""
        target = self._targets[replica]
        lease = Lease(
            number,
            warmup=False,
            workload=PROBE,
            scheduled_ns=scheduled_ns,
            replica=replica,
        )
        facts, request = self._built(number, name, target)
        reader = self._api.reader(streams=True)
        exchange = self._transport.begin(
            target.address, request, reader, self._settings.timeouts
        )
        try:
            exchange.wait()
        finally:
            exchange.cancel()
        reader.settle(exchange)
        return make_record(
            self._settings, Ticket(lease, target), facts, exchange, reader
        )

    def close(self) -> None:
        """Cut the probes that are still in flight: their `send` returns a cancelled record."""
        for exchange in tuple(self._transport.active):
            exchange.cancel()
        self._transport.pool.close_parked()

    def _built(
        self, number: int, name: str, target: Target
    ) -> tuple[SentRequest, Request]:
        api = self._api
        model = target.model
        if target.models:
            model = target.models[0]

        text = TEXT.format(*(_random.randint(100, 999) for _ in range(4)))
        payload = api.build(
            api.content(text, (), ""), target, self._options, ANSWER_TOKENS, model
        )
        content_type, encoded = api.encoded(payload)
        facts = SentRequest(
            request_id=new_request_id(),
            user=PROBE,
            workload=PROBE,
            name=name,
            endpoint=api.name,
            model=model,
            text=text,
            digest=text_digest(text),
            max_tokens=asked_tokens(payload),
            prompt=None,
            sent_bytes=api.prompt_bytes(payload, len(encoded), None),
        )
        given = {
            "conversation": f"probe-{number}",
            "prompt": f"probe-{number}",
            "user": PROBE,
            "worker": PROBE,
        }
        keys = target.headers.only(filled(target.headers.fields, given))
        headers = (("Content-Type", content_type), ("X-Request-Id", facts.request_id))
        most_bytes = api.most_bytes(ANSWER_TOKENS, None)
        return facts, Request(
            "POST", api.path, headers, encoded, target.reuse, None, most_bytes, keys
        )
