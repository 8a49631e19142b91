"""Each listener's own code, and what must not happen there."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import socket
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from urllib.parse import quote

import httptools
import msgspec
from PIL import Image as Pillow

from llama_load.cli import otlp_push
from llama_load.ground.errors import LlamaLoadError
from llama_load.loadgen.swarm import messages
from llama_load.loadgen.wire.request_heads import MOST_HEAD_BYTES
from llama_load.loadgen.workloads import images
from llama_load.outside import bound_headers, foreign_json
from llama_load.record import exchange_keys, relay
from llama_load.record.http_framing import BadMessageError
from llama_load.record.read_exchange import NotUnderstoodError, read_exchange
from llama_load.servers.serving.simulated_requests import ClientConnection
from tests import listeners
from tests.foreign_readers import PASSED, SENTENCES
from tests.record.relayed import PATIENT_S, RawServer, connected, relayed
from tests.search.attacker import grammar
from tests.search.attacker.oracles import Find
from truth.server.http import Reader
from truth.server.plain import Closed

Attempt = Callable[[], object]
# A case of a target: what is sent, how large it is, and what is done with it.
Case = tuple[str, int, Attempt]


@dataclass(frozen=True)
class Target:
    """A listener: a case for each seed. `weight`: how often it is drawn; `measured`: its CPU time
    and memory are those of the bytes."""

    draw: Callable[[Random], Case]
    weight: int = 10
    measured: bool = True


def _shown(data: bytes) -> str:
    text = repr(data[:300])[1:]
    return text if len(data) <= 300 else f"{text}… ({len(data):,} bytes)"


# ---------------------------------------------------------------------- over HTTP


def _of_http(listener: listeners.Listener, secret: bytes) -> Target:
    """One that answers nobody without a token. `secret`: stands in its answers to others."""

    def draw(random: Random) -> Case:
        data = grammar.request(random)

        def attempt() -> None:
            if secret in listener(data):
                raise Find("a stranger is let in")

        # A listener answers one request of a connection, and each has a head at most.
        return _shown(data), min(len(data), MOST_HEAD_BYTES), attempt

    return Target(draw, weight=25)


_OF_MACHINE = re.compile(
    rb"(?:localhost|[\w-]+\.localhost|127\.0\.0\.1|\[::1\]|0)\.?(?::\d*)?",
    re.IGNORECASE,
)


class _AsOthersRead:
    """The parser of Node.js and of our client."""

    def __init__(self) -> None:
        self.requests = 0

    def on_headers_complete(self) -> None:
        self.requests += 1


def _recorder() -> Target:
    listener = listeners.recorder(key=None)

    def draw(random: Random) -> Case:
        data = grammar.request(random)

        def attempt() -> None:
            _check_passed(listener(data))

        return _shown(data), len(data), attempt

    return Target(draw, weight=30)


def _check_passed(passed: bytes) -> None:
    """Of heads that go on to the server."""
    if not passed.startswith(listeners.PASSED_ON):
        return
    heads = passed.removeprefix(listeners.PASSED_ON)
    for field in re.findall(rb"(?im)^cookie:(.*)$", heads):
        raise Find(f"a cookie that the server has not set goes on: {field[:80]!r}")
    for name in re.findall(rb"(?im)^host:[ \t]*([^\r\n]*)", heads):
        if name and not _OF_MACHINE.fullmatch(name.strip(b" \t")):
            raise Find(f"a request for {name[:80]!r} goes on")
    for coding in re.findall(rb"(?im)^transfer-encoding:([^\r\n]*)", heads):
        if coding.strip(b" \t").lower() != b"chunked":
            raise Find(f"the coding {coding[:80]!r} goes on")
    for head in heads.split(b"\r\n\r\n")[:-1]:
        without_body = re.sub(
            rb"(?im)^(content-length|transfer-encoding):.*\r?$", b"A: b", head
        )
        other = _AsOthersRead()
        parser = httptools.HttpRequestParser(other)
        try:
            parser.feed_data(without_body + b"\r\n\r\n")
        except httptools.HttpParserError:
            continue  # refused there
        if other.requests != 1:
            raise Find("another program reads other requests than one")


# ---------------------------------------------------------------------- other clients


def _floods() -> Target:
    """Many requests of one client, while another one waits for its answer."""

    def draw(random: Random) -> Case:
        count = random.choice((500, 2000))
        flood = b"GET / HTTP/1.1\r\n\r\n" * count
        return (
            f"{count} requests at once",
            len(flood),
            lambda: _others_are_served(flood),
        )

    return Target(draw, weight=1, measured=False)


def _answers(sock: socket.socket) -> None:
    while sock.recv(1 << 16):
        sock.sendall(b"HTTP/1.1 204 No\r\n\r\n")


def _others_are_served(flood: bytes) -> None:
    with (
        RawServer(_answers) as server,
        relayed(server.url) as running,
        connected(running.port) as first,
        connected(running.port) as client,
    ):
        first.sendall(flood)
        client.sendall(b"GET /mine HTTP/1.1\r\n\r\n")
        client.settimeout(PATIENT_S)
        client.recv(12)
        first.close()
    number = [each.number for each in running.exchanges if each.path == "/mine"]
    if not number or number[0] > 100:
        raise Find(f"{number} requests of another client were taken before this one")


def _deaf() -> Target:
    """Clients that read nothing of large answers have all places."""

    def draw(random: Random) -> Case:
        count = random.choice((2, 4))
        return f"{count} clients that read nothing", count, lambda: _makes_room(count)

    return Target(draw, weight=1, measured=False)


def _answers_largely(sock: socket.socket) -> None:
    asked = sock.recv(1 << 16)
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 90000000\r\n\r\n")
    if not asked.startswith(b"HEAD"):
        sock.sendall(b"x" * 90_000_000)


def _makes_room(count: int) -> None:
    before = relay.MOST_CLIENTS
    relay.MOST_CLIENTS = count
    try:
        with RawServer(_answers_largely) as server, relayed(server.url) as running:
            held = [connected(running.port) for _ in range(count)]
            for each in held:
                each.sendall(b"GET / HTTP/1.1\r\n\r\n")
            until_s = time.monotonic() + 10
            while sum(pair.client_is_slow for pair in [*running.relay._pairs]) < count:
                if time.monotonic() > until_s:
                    return  # a slow machine has sent nothing yet
                time.sleep(0.01)  # between two looks
            with connected(running.port) as client:
                client.settimeout(PATIENT_S)
                said = b""
                with suppress(OSError):
                    client.sendall(b"HEAD / HTTP/1.1\r\n\r\n")
                    said = client.recv(12)
            for each in held:
                each.close()
            if said != b"HTTP/1.1 200":
                raise Find("clients that read nothing keep another one out")
    finally:
        relay.MOST_CLIENTS = before


# ---------------------------------------------------------------------- what records


def _recording() -> Target:
    def draw(random: Random) -> Case:
        keys = grammar.keys(random)
        key = min(keys.values(), key=len)
        text = f"is {random.choice(grammar.codings(key)[:8])} a key?"
        asked = {"messages": [{"role": "user", "content": text}], **keys}
        data = msgspec.json.encode(asked)
        passed = msgspec.structs.replace(PASSED, request=data)

        def attempt() -> None:
            seen = read_exchange(passed)
            assert seen is not None
            exchange_keys.mask_keys(seen, [])
            recorded: list[str] = []
            for value in (seen.body, seen.messages):
                exchange_keys._take_texts(value, recorded)
            if any(each in text for each in keys.values() for text in recorded):
                raise Find("a key of a client is recorded")

        return _shown(data), len(data), attempt

    return Target(draw)


def _json() -> Target:
    """What the page, the recorder and the master decode."""

    def draw(random: Random) -> Case:
        data = grammar.json_text(random).encode("utf-8", "replace")

        def attempt() -> None:
            try:
                foreign_json.decode_foreign(data)
            except ValueError:
                return
            json.loads(data, object_pairs_hook=_without_twice)

        return _shown(data), len(data), attempt

    return Target(draw)


def _without_twice(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Find("an object with a name twice is read")
    return found


# ---------------------------------------------------------------------- others


def _master() -> Target:
    """The frames of a worker's records."""

    def draw(random: Random) -> Case:
        header = bytearray(messages.pack_header(random.randrange(9), "0" * 16))
        for _ in range(random.choice((0, 1, 4))):
            header[random.randrange(len(header))] = random.randrange(256)
        rest = grammar.filled(random).encode("utf-8", "replace")
        frames = random.choice(([bytes(header), rest], [bytes(header)], [rest], []))

        def attempt() -> None:
            with suppress(*SENTENCES):
                messages.unpack_batch(list(frames))

        return _shown(b"|".join(frames)), sum(map(len, frames)), attempt

    return Target(draw)


def _simulated_server() -> Target:
    def draw(random: Random) -> Case:
        pieces = grammar.in_pieces(random, grammar.request(random))

        def attempt() -> None:
            client = ClientConnection(SimpleNamespace(), lambda _: None)
            with suppress(httptools.HttpParserError, httptools.HttpParserUpgrade):
                for piece in pieces:
                    client.parser.feed_data(piece)

        data = b"".join(pieces)
        return _shown(data), len(data), attempt

    return Target(draw)


def _truth() -> Target:
    """truth's server in Python; the compiled one has tests of its own."""

    def draw(random: Random) -> Case:
        data = grammar.request(random)

        def attempt() -> None:
            ours, theirs = socket.socketpair()
            with ours, theirs:
                theirs.settimeout(5)
                sender = threading.Thread(
                    target=_send_all, args=(ours, data), daemon=True
                )
                sender.start()
                reader = Reader(theirs)
                with suppress(OSError, Closed):
                    while reader.next() is not None:
                        pass
            sender.join(5)

        return _shown(data), len(data), attempt

    return Target(draw)


def _send_all(sock: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)


def _push() -> Target:
    """Headers of a variable, in the escapes of URLs."""

    def draw(random: Random) -> Case:
        value = random.choice(("a\r\nX: b", "a\nb", "a b", "\0", "a\tb", "ü"))
        text = f"X-Key={random.choice((quote(value), quote(quote(value)), value))}"
        text = text.replace("\0", "%00")

        def attempt() -> None:
            before = os.environ.get(otlp_push.HEADERS)
            os.environ[otlp_push.HEADERS] = text
            try:
                lines = bound_headers.field_lines(otlp_push._headers())
            except LlamaLoadError:
                return
            finally:
                del os.environ[otlp_push.HEADERS]
                if before is not None:
                    os.environ[otlp_push.HEADERS] = before
            if any(sign in line for line in lines for sign in "\r\n\0"):
                raise Find("a header is two")

        return text, len(text), attempt

    return Target(draw, weight=2)


def _images() -> Target:
    whole = []
    for kind in ("png", "jpeg", "gif"):
        file = io.BytesIO()
        Pillow.effect_noise((40, 30), 60).save(file, kind)
        whole.append(file.getvalue())

    def draw(random: Random) -> Case:
        data = grammar.image(random, whole)

        def attempt() -> None:
            with suppress(LlamaLoadError):
                images.image_of(data, "x")

        return _shown(data), len(data), attempt

    return Target(draw, weight=3)


def targets() -> dict[str, Target]:
    """All of them, set up once."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    return {
        "page": _of_http(listeners.page(), listeners.ON_PAGE),
        "page with --web-login": _of_http(
            listeners.page(web_login=True), listeners.ON_PAGE
        ),
        "metrics port": _of_http(listeners.metrics_port(), b"# HELP"),
        "exporter": _of_http(listeners.exporter(), b" 200 "),
        "recorder": _recorder(),
        "recorder: others wait": _floods(),
        "recorder: no place is left": _deaf(),
        "recording": _recording(),
        "json": _json(),
        "master": _master(),
        "simulated server": _simulated_server(),
        "truth": _truth(),
        "push": _push(),
        "images": _images(),
    }


# What a target may say instead of an answer.
REFUSALS = (*SENTENCES, NotUnderstoodError, BadMessageError)
