"""What a stranger may send: drawn by a seed, so that each case can be sent again."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from random import Random
from urllib.parse import quote

# Of a head, by the listeners' own limit and beyond it.
SIZES = (0, 1, 7, 100, 1000, 8000, 30_000, 60_000, 66_000)
FILLINGS = (
    *("\\", '"', "'", ";", "%", "=", " ", ",", "a", "[", "{", ":", ".", "1", "\xff"),
    *('a="\\', "a=b; ", "%25", "//", '\\"', "\t", "\x0b", "&a=", "../", "\\u0041", "-"),
)
# What quadratic readers are slow with.
LONG_RUNS = ("\\", '"', ";", "%", "=")
# What a parser may look for the end of.
BEGINNINGS = ("", "", 'a="', '"', "a=", "[", "{", "Bearer ", "http://", "%", "<")
FIELDS = (
    *("Host", "Cookie", "Authorization", "X-Api-Key", "Origin", "Referer", "Accept"),
    *("Sec-Fetch-Site", "Sec-Fetch-Dest", "Sec-Fetch-Mode", "Content-Type", "Expect"),
    *("Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "User-Agent"),
    *("X-Forwarded-For", "X-Forwarded-Host", "Content-Encoding", "Range", "X"),
)
METHODS = ("GET", "GET", "POST", "HEAD", "PUT", "OPTIONS", "CONNECT", "get", "")
PATHS = (
    *("/", "/llm", "/metrics", "/v1/chat/completions", "/swarm", "/health", "*"),
    *(
        "//x",
        "/../",
        "/%2e%2e/",
        "http://evil.example/",
        "/llm/api/start",
        "/v1/models",
    ),
)
NAMES = (
    *("localhost", "127.0.0.1", "[::1]", "127.0.0.1:8081", "LOCALHOST.", "a.localhost"),
    *(
        "evil.example",
        "evil",
        "evil.local",
        "printer.local:80",
        "127.0.0.1.evil.example",
    ),
    *("localhost.evil.example", "evil.internal", "0", "[", "localhost@evil.example"),
)
TOKENS = (
    *("chunked", "Chunked", "chunked ", "\tchunked", "\x0bchunked", "chunked\x0c"),
    *(
        "gzip, chunked",
        "chunked, chunked",
        "chunked\xa0",
        "identity",
        "chunk ed",
        "xchunked",
    ),
)
COOKIES = (
    *("llama-load-8089-ab12cd34=99999999999.00", "session=eyJ", "remember_token=1|a"),
    *("llama-load-8089-session=a", "theme=dark", "replica=7", ";;", "a"),
)
USUAL = {
    "Host": NAMES,
    "Origin": tuple(f"http://{name}" for name in NAMES),
    "Cookie": COOKIES,
    "Transfer-Encoding": TOKENS,
    "Content-Length": ("0", "2", "-1", "+2", "2, 2", "0x2", "٢", "9" * 30, "2 "),
    "Connection": ("close", "keep-alive", "upgrade"),
    "Sec-Fetch-Site": ("cross-site", "same-origin", "none"),
    "Expect": ("100-continue",),
}


def codings(text: str) -> list[str]:
    """The same text in the forms that programs give it."""
    data = text.encode("utf-8", "surrogatepass")
    return [
        text,
        quote(data, safe=""),
        json.dumps(text)[1:-1],
        "".join(f"\\u{ord(sign):04x}" for sign in text if ord(sign) < 0x10000),
        base64.b64encode(data).decode(),
        base64.b64encode(b"u:" + data).decode(),
        data.hex(),
        data.hex().upper(),
        text.upper(),
        f" {text}\t",
    ]


def filled(draw: Random) -> str:
    """A text of some size and filling."""
    filling = draw.choice(FILLINGS)
    return draw.choice(BEGINNINGS) + filling * (draw.choice(SIZES) // len(filling))


def value_of(draw: Random, field: str) -> str:
    """A value of this field: one that programs send, in some coding; or a large one."""
    usual = USUAL.get(field)
    if usual is None or draw.random() < 0.4:
        return draw.choice((*(usual or ("a",)), "", "")) + filled(draw)
    chosen = draw.choice(usual)
    return chosen if draw.random() < 0.7 else draw.choice(codings(chosen))


def head(draw: Random) -> bytes:
    """The head of a request."""
    target = draw.choice(PATHS)
    if draw.random() < 0.3:
        target += "?" + draw.choice(("token=", "key=", "")) + filled(draw)[:8000]
    lines = [f"{draw.choice(METHODS)} {target} HTTP/1.1"]
    fields = draw.choices((*FIELDS, *USUAL, *USUAL), k=draw.choice((0, 1, 2, 4, 8)))
    if draw.random() < 0.8:
        lines.append("Host: localhost")
    for field in fields:
        spelled = draw.choice((field, field, field.lower(), field.upper()))
        lines.append(f"{spelled}:{draw.choice((' ', '', '  '))}{value_of(draw, field)}")
    if draw.random() < 0.1:
        large = "a" * draw.choice((1, 8000, 60_000))
        lines += [f"X-{number}: {large}" for number in range(draw.choice((20, 90)))]
    draw.shuffle(lines[1:])
    end = draw.choice(("\r\n", "\r\n", "\r\n", "\r\n", "\n"))
    return (end.join(lines) + end * 2).encode("utf-8", "replace")


def usual_but_one(draw: Random) -> bytes:
    """A head as programs send it, with one field that is as large as it may be."""
    field = draw.choice((*USUAL, "Cookie", "Cookie", "Authorization"))
    start, end = draw.choice((("", ""), ('a="', '"')))
    value = start + draw.choice(LONG_RUNS) * draw.choice((8000, 60_000)) + end
    lines = ["GET / HTTP/1.1", "Host: localhost", f"{field}: {value}"]
    if field == "Host":
        del lines[1]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "replace")


def body(draw: Random) -> bytes:
    """The body of a request: none, some bytes, chunks, or another request."""
    size = draw.choice((0, 0, 1, 5, 1000, 30_000))
    kind = draw.randrange(4)
    if kind == 0:
        return b"1\r\na\r\n" * (size // 6) + b"0\r\n\r\n"
    if kind == 1:
        return json_text(draw).encode("utf-8", "replace")
    if kind == 2:
        return b"GET / HTTP/1.1\r\n\r\n" * (size // 18)
    return b"a" * size


def request(draw: Random) -> bytes:
    """A request, or several."""
    if draw.random() < 0.3:
        return usual_but_one(draw)
    return b"".join(
        head(draw) + body(draw) for _ in range(draw.choice((1, 1, 1, 2, 5)))
    )


def json_value(draw: Random, depth: int = 0) -> object:
    """A value of JSON, with names that readers look for."""
    names = (
        "messages",
        "content",
        "role",
        "prompt",
        "max_tokens",
        "api_key",
        "a",
        "host",
    )
    kind = draw.randrange(8 if depth < 4 else 5)
    if kind < 5:
        return draw.choice(
            (None, True, -1, 1e300, 10**25, "", "user", filled(draw)[:5000])
        )
    if kind < 7:
        count = draw.choice((0, 1, 3))
        return {draw.choice(names): json_value(draw, depth + 1) for _ in range(count)}
    return [json_value(draw, depth + 1) for _ in range(draw.choice((0, 1, 3)))]


def json_text(draw: Random) -> str:
    """A JSON object, perhaps with a name twice, in another coding the second time."""
    text = json.dumps({"messages": [json_value(draw)], "a": json_value(draw)})
    if draw.random() < 0.3:
        again = draw.choice(('"a"', '"\\u0061"', '"messages"'))
        text = text[:-1] + f", {again}: 1}}"
    return text


def in_pieces(draw: Random, data: bytes) -> list[bytes]:
    """The same bytes as they may arrive."""
    if draw.random() < 0.5 or not data:
        return [data]
    size = max(1, len(data) // draw.choice((2, 3, 20)))
    return [data[at : at + size] for at in range(0, len(data), size)]


def keys(draw: Random) -> dict[str, str]:
    """Fields of keys, few or many, short or long."""
    count = draw.choice((1, 2, 17))
    size = draw.choice((6, 30, 300, 9000, 60_000))
    made: Callable[[int], str] = draw.choice(
        (
            lambda number: f"{number:02}k-" * (size // 4 + 1),
            lambda number: "a" * (size + number),
            lambda number: "\\" * (size + number),
        )
    )
    return {f"k{number}_key": made(number) for number in range(count)}


def image(draw: Random, whole: Sequence[bytes]) -> bytes:
    """One of these images with something many times within it."""
    data = draw.choice(whole)
    at = draw.choice((2, 8, 33, len(data) // 2))
    piece = draw.choice(
        (
            b"\xff\xfe\0\x03a",
            b"\0\0\0\0IDAT\0\0\0\0",
            b"\0\0\0\x03tEXta\0b" + b"\x9f\x1c\x9d\x0b",
            b"\xff\xda\0\x08\x01\x01\0\0\x3f\0",
            b"\x21\xfe\0",
        )
    )
    return data[:at] + piece * draw.choice((1, 100, 20_000)) + data[at:]
