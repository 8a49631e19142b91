"""The wire and the reader against the real llama-server."""

from __future__ import annotations

from collections import Counter

import gevent
import msgspec
import pytest
import requests

from llama_load.loadgen.wire.exchange import Exchange
from llama_load.loadgen.wire.request import Request, Timeouts
from llama_load.loadgen.wire.transport import Transport
from llama_load.servers.address import parse_url
from llama_load.servers.answer import AnswerReader
from llama_load.servers.apis import CHAT
from llama_load.servers.body import BodyOptions
from llama_load.servers.probe import Probe, ProbeSettings
from llama_load.servers.serving.launch import Server
from llama_load.servers.target import Target
from tests.answer_pipeline import output_of, prompt_of
from tests.server_kinds import LLAMA_SERVER

pytestmark = pytest.mark.portable


def ask(
    url: str, text: str, max_tokens: int, **body: object
) -> tuple[Exchange, AnswerReader]:
    reader = AnswerReader()
    payload = msgspec.json.encode(
        CHAT.build(
            text, Target(parse_url(url), LLAMA_SERVER, None), BodyOptions(), max_tokens
        )
        | body
    )
    request = Request(
        "POST", "/v1/chat/completions", (("Content-Type", "application/json"),), payload
    )
    return Transport.of_this_process().send(
        parse_url(url).resolved(), request, reader, Timeouts()
    ), reader


def test_eight_concurrent_streams_are_whole_and_apart(llama_server: Server) -> None:
    """Each answer is the one that the same seeded request gets alone."""
    alone = [
        ask(
            llama_server.url,
            f"Tell me {n}",
            20,
            seed=n,
            temperature=0,
            cache_prompt=False,
        )[1].text
        for n in range(8)
    ]
    greenlets = [
        gevent.spawn(
            ask,
            llama_server.url,
            f"Tell me {n}",
            20,
            seed=n,
            temperature=0,
            cache_prompt=False,
        )
        for n in range(8)
    ]
    gevent.joinall(greenlets)
    answers = [greenlet.value for greenlet in greenlets]
    assert [reader.failure(exchange) for exchange, reader in answers] == [None] * 8
    assert [len(reader.text) > 10 for _, reader in answers] == [True] * 8
    # Batched arithmetic differs in the last bit now and then: most texts must agree, and none may
    # be another's.
    assert (
        sum(
            reader.text == text
            for (_, reader), text in zip(answers, alone, strict=True)
        )
        >= 5
    )
    assert all(output_of(reader) == (20, "usage") for _, reader in answers)


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.heavy)])
def test_many_requests_without_a_failure(llama_server: Server, count: int) -> None:
    """llama-server closes the connection after every stream, whatever it announces: that must never
    look like a failure."""
    outcomes: Counter[str] = Counter()
    left = iter(range(count))

    def user() -> None:
        for n in left:
            exchange, reader = ask(llama_server.url, f"{n}", 1)
            failure = reader.failure(exchange)
            outcomes[failure[0] if failure else "ok"] += 1

    gevent.joinall([gevent.spawn(user) for _ in range(16)])
    assert outcomes == {"ok": count}


def test_context_exceeded_is_named_with_the_servers_words(llama_server: Server) -> None:
    exchange, reader = ask(llama_server.url, "word " * 5000, 4)
    kind, text = reader.failure(exchange)
    assert kind == "context_exceeded"
    assert "4096" in text


def test_the_probe_reads_what_the_server_reports(llama_server: Server) -> None:
    probe = Probe(ProbeSettings(llama_server.url))
    target = probe.ask()
    assert (target.backend, target.model, target.slots, target.ctx_per_slot) == (
        "llama-server",
        "tiny",
        4,
        4096,
    )
    assert target.kind.holds_headers
    counter = probe.counter()
    assert counter is not None
    (count,) = counter.count(["你好 hello"])
    body = {"content": "你好 hello", "add_special": True}
    assert count == len(
        requests.post(f"{llama_server.url}/tokenize", json=body, timeout=30).json()[
            "tokens"
        ]
    )
    # The template's share, against a whole request: usage = text + template, give or take the one
    # beginning-of-text token.
    exchange, reader = ask(llama_server.url, "你好 hello", 1)
    assert reader.failure(exchange) is None
    assert abs(prompt_of(reader)[0] - (count + target.template_tokens)) <= 2
