"""What any user of the machine can do to a recording, whose port on loopback asks for no key."""

from __future__ import annotations

import base64
import errno
import html
import json
import secrets
import socket
import sys
import threading
import time
import urllib.parse
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from llama_load.outside import foreign_text
from llama_load.outside.foreign_text import MASK
from llama_load.record import exchange_copies, joined_conversations
from llama_load.record import relay as relay_module
from llama_load.record.exchange_keys import keys_of_head, mask_keys
from llama_load.record.http_framing import Head, MessageReader
from llama_load.record.joined_conversations import Conversations
from llama_load.record.passed_exchange import PassedExchange
from llama_load.record.read_exchange import SeenRequest, read_exchange
from llama_load.record.recording import Recording
from llama_load.record.request_gate import MOST_COOKIES, RequestGate
from llama_load.servers.address import parse_url
from llama_load.servers.token_blocks import EstimatedTokens
from tests.foreign_readers import PASSED
from tests.record.relayed import RawServer, connected, received, relayed
from tests.waiting import until


def test_a_role_is_no_way_for_text_into_a_digest(tmp_path: Path) -> None:
    """Clients write what they like in its place."""
    out = tmp_path / "trace.jsonl"
    recording = Recording(out, lambda _: None, EstimatedTokens())
    asked = b'{"messages": [{"role": "private words", "content": "a"}, {"role": "user", "content": "b"}]}'
    recording.take(msgspec.structs.replace(PASSED, request=asked))
    recording.close()
    assert json.loads(out.read_text())["roles"] == ["other", "user"]


def recorded(folder: Path, *exchanges: PassedExchange) -> list[str]:
    """The lines of all files of a recording of these."""
    recording = Recording(folder / "talk.jsonl", lambda _: None, None)
    for number, passed in enumerate(exchanges, start=1):
        recording.take(msgspec.structs.replace(passed, number=number))
    recording.write_conversations()
    recording.close()
    lines = []
    for file in sorted(folder.iterdir()):
        lines += file.read_text().splitlines()
    return lines


def asked(body: dict[str, object], **more: object) -> PassedExchange:
    return msgspec.structs.replace(PASSED, request=msgspec.json.encode(body), **more)


def chat(text: str, **more: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}], **more}


def test_the_key_of_a_stranger_masks_nothing_of_others(tmp_path: Path) -> None:
    """It may be a word, or the name of a field."""
    secrets = ["messages", "content", "private", "a-key-of-a-stranger"]
    mine, others = recorded(
        tmp_path,
        asked(chat("a private word, a-key-of-a-stranger"), secrets=secrets),
        asked(chat("another private word")),
    )
    assert json.loads(mine)["messages"][0]["content"] == "a *** word, ***"
    assert json.loads(others)["messages"][0]["content"] == "another private word"


def test_any_number_of_keys_of_strangers_shuts_nobody_out(tmp_path: Path) -> None:
    """The process does not remember them."""
    before = set(foreign_text._secrets)
    strangers = [asked(chat("a"), secrets=[f"{number:06}"]) for number in range(20)]
    lines = recorded(tmp_path, *strangers, asked(chat("mine"), secrets=["my-own-key"]))
    assert "mine" in lines[-1]
    assert set(foreign_text._secrets) == before


KEY_OF_CLIENT = "sk-canary-0123456789abcdef"
MCP = {"type": "mcp", "server_url": f"https://u:{KEY_OF_CLIENT}@a"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"input": "a", "api_key": KEY_OF_CLIENT}),
        ("/v1/embeddings", {"input": "a", "extra_headers": {"Authorization": f"Bearer {KEY_OF_CLIENT}"}}),
        ("/v1/rerank", {"query": "a", "vertex_credentials": [{"a": KEY_OF_CLIENT}]}),
        ("/v1/chat/completions", chat(f"my key is {KEY_OF_CLIENT}", api_key=KEY_OF_CLIENT)),
        ("/v1/chat/completions", chat("a", tools=[MCP])),
        ("/v1/chat/completions", chat("a", tools=[{"type": "mcp", "headers": {"X-Api-Key": KEY_OF_CLIENT}}])),
        ("/v1/responses", {"input": "a", "tools": [{"type": "mcp", "authorization": KEY_OF_CLIENT}]}),
    ],
)  # fmt: skip
def test_keys_in_a_body_are_not_recorded(
    path: str, body: dict[str, object], tmp_path: Path
) -> None:
    (line,) = recorded(tmp_path, asked(body, path=path))
    assert KEY_OF_CLIENT not in line
    assert "***" in line


FOREIGN_KEYS = {
    "ever new keys": {f"k{place}_key": secrets.token_hex(120) for place in range(16)},
    "one of 8 MB": {"api_key": "k3y-" * (2 << 20)},
    "twenty of 60 kB": {f"k{n}_key": f"{n:02}key-" * 10_000 for n in range(20)},
    "backslashes": {"api_key": "\\" * 65_536},
    "one letter": {f"k{n}_key": "a" * (6 + n) for n in range(16)},
}


@pytest.mark.parametrize("name", FOREIGN_KEYS)
def test_keys_of_strangers_do_not_hold_up_the_recording(name: str) -> None:
    """Whatever they are: patterns of a key of 10 MB took minutes. Time is that of the thread."""
    keys = FOREIGN_KEYS[name]
    short = [key for key in keys.values() if len(key) < 100_000]
    text = "a text with " + " and ".join(short[:16])
    seen = read_exchange(asked(chat(text, **keys)))
    assert seen is not None
    begun_s = time.thread_time()
    mask_keys(seen, [])
    assert time.thread_time() - begun_s < 1
    recorded_text = json.dumps([seen.body, seen.messages])
    assert not any(key in recorded_text for key in keys.values())


@pytest.mark.parametrize(
    "form",
    [
        KEY_OF_CLIENT,
        urllib.parse.quote("k/y+ &<" + KEY_OF_CLIENT, safe=""),
        json.dumps({"a": f'k/y+ &<"{KEY_OF_CLIENT}'}),
        html.escape(f"k/y+ &<{KEY_OF_CLIENT}"),
        base64.b64encode(f"a:{KEY_OF_CLIENT}".encode()).decode(),
        base64.urlsafe_b64encode(f"ab:{KEY_OF_CLIENT}~~~".encode()).decode(),
        KEY_OF_CLIENT.encode().hex(),
        KEY_OF_CLIENT.encode().hex().upper(),
    ],
)
def test_a_key_of_a_client_is_found_in_its_usual_forms(form: str) -> None:
    seen = read_exchange(asked(chat(f"what is {form}?")))
    assert seen is not None
    mask_keys(seen, [f"Bearer {KEY_OF_CLIENT}"])
    assert MASK in str(seen.messages)
    assert KEY_OF_CLIENT not in str(seen.messages)


def test_the_password_of_a_client_is_found() -> None:
    pair = base64.b64encode(b"admin:a-pass-word").decode()
    seen = read_exchange(asked(chat("admin says a-pass-word")))
    assert seen is not None
    mask_keys(seen, [f"Basic {pair}"])
    assert seen.messages == [{"role": "user", "content": "admin says ***"}]


def test_fields_of_keys_are_masked_in_their_places_however_many() -> None:
    keys = {f"k{number}_key": f"key-number-{number:03}" for number in range(100)}
    seen = read_exchange(asked({"input": "a", **keys}, path="/v1/embeddings"))
    assert seen is not None
    mask_keys(seen, [])
    assert set(seen.body.values()) == {"a", MASK}


def test_what_only_looks_like_a_key_is_recorded(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"api_key": {"type": "string"}}}
    function = {"name": "sign_in", "parameters": schema}
    tools = [{"type": "function", "function": function}]
    (line,) = recorded(
        tmp_path, asked(chat("the string user-12345", tools=tools, prompt_cache_key="user-12345"))
    )  # fmt: skip
    assert "***" not in line


@pytest.mark.parametrize(
    ("field", "key"),
    [
        (f"Cookie: theme=dark; session={KEY_OF_CLIENT}", KEY_OF_CLIENT),
        ("X-Jwt-Assertion: eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dGVzdA", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dGVzdA"),
        (f"X-Team: {KEY_OF_CLIENT}", KEY_OF_CLIENT),
    ],
)  # fmt: skip
def test_keys_of_other_fields_are_found(field: str, key: str) -> None:
    head = read_head(f"Accept: application/json\r\n{field}\r\n")
    assert key in keys_of_head(head)


def test_fields_without_keys_have_none() -> None:
    fields = "Host: a-long-name-1.example.com\r\nUser-Agent: a-long-agent-0123456789\r\nX-Stainless-Lang: python\r\nContent-Length: 0\r\n"
    assert keys_of_head(read_head(fields)) == []


def read_head(fields: str) -> Head:
    raw = f"GET /v1/models HTTP/1.1\r\n{fields}\r\n"
    head = MessageReader(reads_answers=False).feed(raw.encode())[0]
    assert isinstance(head, Head)
    return head


# ---------------------------------------------------------------------- memory


def test_what_is_kept_of_a_conversation_is_counted() -> None:
    """All but its messages, tools, sampling and answer is forgotten."""
    conversations = Conversations()
    many = [[] for _ in range(10_000)]
    body = {"metadata": many, "tool_choice": many}
    seen = SeenRequest(1, "chat", 1, 2, 1, 200, body=body)
    seen.messages = [{"role": "user", "content": "a"}]
    seen.tools = many
    seen.sampling = {"logit_bias": many}
    seen.reply = {"role": "assistant", "content": many}
    conversations.add(seen)
    (conversation,) = conversations.all()
    assert conversation.first.body == {"tool_choice": many}
    assert conversation.size > 4 * 10_000 * sys.getsizeof([])
    assert conversations.size == 0


def test_conversations_that_rest_are_forgotten_by_a_digest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        joined_conversations, "MOST_BYTES", 10 * joined_conversations.BYTES_OF_ONE
    )
    conversations = Conversations(keeps_texts=False)
    for number in range(100):
        seen = SeenRequest(number, "chat", 1, 2, 1, 200)
        seen.messages = [{"role": "user", "content": str(number)}]
        conversations.add(seen)
    left = list(conversations.all())
    assert 5 < len(left) <= 10
    assert left[-1].number == 100


# ---------------------------------------------------------------------- the relay


def waits(sock: socket.socket) -> None:
    """A server that reads all and answers nothing."""
    while sock.recv(1 << 16):
        pass


def answers(sock: socket.socket) -> None:
    while sock.recv(1 << 16):
        sock.sendall(b"HTTP/1.1 204 No\r\n\r\n")


POST = b"POST /v1/chat/completions HTTP/1.1\r\n"
REFUSED = [
    b"Host: evil.example:8081",
    b"Host: evil.example.:8081",
    b"Host: 127.0.0.1.evil.example",
    b"Host: localhost.evil.example",
    b"Host: [",
    b"Host: printer.local",
    b"Host: evil",
    b"Host: evil.internal",
    b"Origin: http://evil.home.arpa",
    b"Host: 127.0.0.1\r\nHost: evil.example",
    b"Origin: https://evil.example",
    b"Origin: http://203.0.113.7",
    b"Origin: null",
    b"Origin: http://localhost.evil.example",
    b"Sec-Fetch-Site: cross-site\r\nSec-Fetch-Dest: image",
    b"Sec-Fetch-Site: Cross-Site",
]
TAKEN = [
    b"Host: 127.0.0.1:8081",
    b"Host: [::1]:8081",
    b"Host: LOCALHOST",
    b"Host: " + socket.gethostname().encode() + b":8081",
    b"Host: host.docker.internal:8081",
    b"Host: a.localhost\r\nOrigin: http://localhost:3000",
    b"Origin: http://127.0.0.1:3000",
    b"Origin: vscode-webview://evil.example",
    b"Origin: file://",
    b"Sec-Fetch-Site: cross-site\r\nSec-Fetch-Dest: document",
    b"Sec-Fetch-Site: cross-site\r\nOrigin: http://localhost:3000",
    b"Sec-Fetch-Site: same-origin",
]


@pytest.mark.parametrize(
    ("fields", "status"),
    [*((each, b"403") for each in REFUSED), *((each, b"204") for each in TAKEN)],
)
def test_no_page_of_others_reaches_the_server(fields: bytes, status: bytes) -> None:
    with (
        RawServer(answers) as server,
        relayed(server.url) as running,
        connected(running.port) as client,
    ):
        client.sendall(POST + fields + b"\r\n\r\n")
        assert received(client, 12)[9:12] == status
        assert server.connections == (status == b"204")


@pytest.mark.parametrize("field", [b"Proxy-Authorization: Bearer %s", b"Cookie: a=%s", b"X-Goog-Api-Key: %s"])  # fmt: skip
def test_the_key_of_a_recorder_goes_on_in_no_field(field: bytes) -> None:
    key = b"relay-key-0123456789"
    seen = []

    def serve(sock: socket.socket) -> None:
        seen.append(sock.recv(1 << 16))
        sock.sendall(b"HTTP/1.1 204 No\r\n\r\n")

    fields = b"Authorization: Bearer " + key + b"\r\n" + field % key + b"\r\n\r\n"
    with RawServer(serve) as server, relayed(server.url, key=key.decode()) as running:
        with connected(running.port) as client:
            client.sendall(POST + fields)
            assert received(client, 12)[9:12] == b"204"
        with connected(running.port) as client:
            client.sendall(POST.replace(b" HTTP", b"?key=" + key + b" HTTP") + fields)
            assert received(client, 12)[9:12] == b"400"
    assert len(seen) == 1
    assert key not in seen[0]


def heard_from(sent: bytes, **settings: object) -> bytes:
    """What a server hears of a request that is passed on."""
    heard = bytearray()

    def serve(sock: socket.socket) -> None:
        sock.settimeout(5)
        while not heard.endswith((b"\r\n0\r\n\r\n", b"the end")):
            piece = sock.recv(1 << 16)
            if not piece:
                break
            heard.extend(piece)
        sock.sendall(b"HTTP/1.1 204 No\r\n\r\n")

    with (
        RawServer(serve) as server,
        relayed(server.url, **settings) as running,
        connected(running.port) as client,
    ):
        for at in range(0, len(sent), 7):  # in pieces that end within lines
            client.sendall(sent[at : at + 7])
        assert received(client, 12)[9:12] == b"204"
    return bytes(heard)


KEY_OF_RELAY = "relay-key-0123456789"
CHUNKED = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(
    "form",
    [
        KEY_OF_RELAY.encode(),
        b"relay%2Dkey%2d0123456789",
        base64.b64encode(b"user:" + KEY_OF_RELAY.encode()),
        KEY_OF_RELAY.encode().hex().encode(),
    ],
)
def test_no_form_of_a_recorders_key_goes_on(form: bytes) -> None:
    """Not in a field, in a trailer, or in the extension of a chunk."""
    head = CHUNKED + b"Authorization: Bearer " + KEY_OF_RELAY.encode() + b"\r\n"
    head += b"X-Proxy: Basic " + form + b"\r\nX-Other: a\r\n\r\n"
    body = b"2;key=" + form + b"\r\n{}\r\n0\r\nAuthorization: " + form + b"\r\n\r\n"
    heard = heard_from(head + body, key=KEY_OF_RELAY)
    assert heard == CHUNKED + b"X-Other: a\r\n\r\n2\r\n{}\r\n0\r\n\r\n"


def test_a_clients_own_key_goes_to_the_named_server_and_nowhere_else() -> None:
    """Without a key of the recorder: --to names the server, and what the client sends is for it,
    also in the body and in trailers."""
    key = KEY_OF_CLIENT.encode()
    sent = CHUNKED + b"Authorization: Bearer " + key + b"\r\n\r\n"
    body = b'{"api_key": "' + key + b'"}'
    sent += b"%x\r\n%s\r\n0\r\nX-Api-Key: %s\r\n\r\n" % (len(body), body, key)
    heard = bytearray()

    def serve(sock: socket.socket) -> None:
        sock.settimeout(5)
        while len(heard) < len(sent):
            heard.extend(sock.recv(1 << 16))
        sock.sendall(b"HTTP/1.1 204 No\r\n\r\n")

    with (
        RawServer(serve) as server,
        relayed(server.url) as running,
        connected(running.port) as client,
    ):
        client.sendall(sent)
        assert received(client, 12)[9:12] == b"204"
    assert bytes(heard) == sent


ASKED = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 7\r\n"


@pytest.mark.parametrize(
    "cookies",
    [
        b"llama-load-8089-ab12=9.aa",
        b"session=eyJ; remember_token=1|a",
        b"llama-load-8089-session=a;b",
        b";;=",
    ],
)
def test_the_cookie_of_a_page_of_ours_reaches_no_server(cookies: bytes) -> None:
    """Browsers send it to every port of its host, and those of all other programs there."""
    heard = heard_from(ASKED + b"Cookie: " + cookies + b"\r\n\r\nthe end")
    assert heard == ASKED + b"\r\nthe end"


def answer_that_sets(*cookies: bytes) -> Head:
    fields = b"".join(b"Set-Cookie: %s\r\n" % cookie for cookie in cookies)
    raw = b"HTTP/1.1 200 OK\r\n" + fields + b"Content-Length: 0\r\n\r\n"
    head = MessageReader(reads_answers=True).feed(raw)[0]
    assert isinstance(head, Head)
    return head


def test_a_cookie_of_the_server_goes_back_to_it() -> None:
    """With the value that it has set: another program may use the name, too."""
    gate = RequestGate(parse_url("http://127.0.0.1:9").resolved(), None)
    gate.learn_cookies(answer_that_sets(b"replica=7; Path=/; HttpOnly", b"a=1"))
    asks = read_head("A: b\r\nCookie: a=2; replica=7;session=x; a=1\r\n")
    assert b"\r\nCookie: replica=7; a=1\r\n" in gate.as_sent(asks)
    assert gate.lost_cookies == 2
    many = [b"n%d=1" % number for number in range(MOST_COOKIES)]
    gate.learn_cookies(answer_that_sets(*many, b"x=" + b"y" * 5000))
    assert b"Cookie" not in gate.as_sent(asks)
    assert len(gate._cookies) == MOST_COOKIES


PART_OF_A_BODY = POST + b"Content-Length: 99\r\n\r\n{"


def test_bodies_that_do_not_come_are_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay_module, "BODY_WITHIN_S", 0.2)
    with (
        RawServer(waits) as server,
        relayed(server.url) as running,
        connected(running.port) as client,
    ):
        client.sendall(PART_OF_A_BODY)
        assert received(client, 12)[9:12] == b"408"


def test_bodies_that_do_not_come_keep_nobody_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay_module, "MOST_CLIENTS", 5)
    with RawServer(answers_whole) as server, relayed(server.url) as running:
        held = [connected(running.port) for _ in range(5)]
        for each in held:
            each.sendall(PART_OF_A_BODY)
        until(lambda: server.connections == 5)
        with connected(running.port) as client:
            client.sendall(POST + b"\r\n")
            assert received(client, 12)[9:12] == b"204"
        for each in held:
            each.close()


def answers_whole(sock: socket.socket) -> None:
    """A server that answers requests without a body."""
    while data := sock.recv(1 << 16):
        if data.endswith(b"\r\n\r\n"):
            sock.sendall(b"HTTP/1.1 204 No\r\n\r\n")


def test_a_connection_has_a_few_unanswered_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others are read when those are answered."""
    monkeypatch.setattr(relay_module, "MOST_PIPELINED", 4)
    may_answer = threading.Event()

    def serve(sock: socket.socket) -> None:
        unanswered = 0
        while data := sock.recv(1 << 16):
            unanswered += data.count(POST)
            if unanswered >= 4:
                may_answer.wait(10)
            if may_answer.is_set():
                sock.sendall(b"HTTP/1.1 204 No\r\n\r\n" * unanswered)
                unanswered = 0

    with (
        RawServer(serve) as server,
        relayed(server.url) as running,
        connected(running.port) as client,
    ):
        for number in range(1, 5):
            client.sendall(POST + b"\r\n")
            until(lambda number=number: running.relay._copies.count == number)
        client.sendall((POST + b"\r\n") * 6)
        time.sleep(0.2)  # no more is to be taken
        assert running.relay._copies.count == 4
        may_answer.set()
        until(lambda: running.relay._copies.count == 10)


def test_small_pieces_are_counted_with_what_they_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchange_copies, "MOST_KEPT_BYTES", 1000)

    def serve(sock: socket.socket) -> None:
        sock.recv(1 << 16)
        sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(20):
            sock.sendall(b"x")
            time.sleep(0.01)  # each piece is a read of its own

    with (
        RawServer(serve) as server,
        relayed(server.url) as running,
        connected(running.port) as client,
    ):
        client.sendall(POST + b"\r\n")
        assert received(client, 1000).endswith(b"x" * 20)
    (exchange,) = running.exchanges
    assert exchange.not_kept == "too much passed at the same time"


def test_without_descriptors_a_request_is_refused_and_the_relay_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_left(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with relayed("http://127.0.0.1:9") as running:
        for _ in range(2):
            with connected(running.port) as client:
                client.settimeout(5)
                changed = SimpleNamespace(**(vars(socket) | {"socket": none_left}))
                monkeypatch.setattr(relay_module, "socket", changed)
                client.sendall(request)
                assert b" 502 " in client.recv(1000)
