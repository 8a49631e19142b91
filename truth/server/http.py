"""Requests over HTTP/1.1, as far as load generators use it."""

from __future__ import annotations

import json
import socket
import time
from dataclasses import dataclass
from typing import Any

from truth.server.stamps import CONTROL, receipt_ns

PIECE = 1 << 16
LONGEST = 4 << 20  # bytes of a request
LONGEST_HEAD = 64 << 10
TEMPLATE_TOKENS = 16  # of the chat template that the server pretends to have
HEAD_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Request:
    """`received_ns`: the kernel's instant of its last byte."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    received_ns: int

    @property
    def closes(self) -> bool:
        """Whether the client wants the connection to end with the answer."""
        return self.headers.get("connection", "").lower() == "close"


class Reader:
    """Requests of one connection, one after the other."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._data = bytearray()
        self._received_ns = 0

    def next(self) -> Request | None:
        """None: the client closed the connection, or sent what is no request."""
        while (head_bytes := self._data.find(HEAD_END, 0, LONGEST_HEAD)) < 0:
            if len(self._data) >= LONGEST_HEAD or not self._more():
                return None
        lines = self._data[:head_bytes].decode("latin-1").split("\r\n")
        words = lines[0].split()
        headers = _headers(lines[1:])
        body_bytes = _length(headers.get("content-length") or "0")
        if len(words) != 3 or body_bytes is None:
            return None

        if headers.get("expect", "").lower() == "100-continue":
            self._connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        begin = head_bytes + len(HEAD_END)
        end = begin + body_bytes
        while len(self._data) < end:
            if not self._more():
                return None

        body = bytes(self._data[begin:end])
        del self._data[:end]
        return Request(words[0], words[1], headers, body, self._received_ns)

    def _more(self) -> bool:
        data, ancillary, _, _ = self._connection.recvmsg(PIECE, CONTROL)
        if not data:
            return False
        self._received_ns = receipt_ns(ancillary) or time.monotonic_ns()
        self._data += data
        return True


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return headers


def _length(text: str) -> int | None:
    """Digits alone, at most `LONGEST`: int() takes signs, underscores and other scripts, too."""
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(LONGEST))
    return int(text) if is_number and int(text) <= LONGEST else None


def whole_answer(status: str, value: Any, *headers: str) -> bytes:
    """An answer with a JSON body."""
    body = json.dumps(value).encode()
    lines = [
        f"HTTP/1.1 {status}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + HEAD_END + body


def prompt_tokens(body: dict[str, Any], chat: bool) -> int:
    """Words of all texts, a token each, and those of the chat template."""
    words = sum(len(text.split()) for text in prompt_texts(body, chat))
    return words + TEMPLATE_TOKENS if chat else words


def prompt_texts(body: dict[str, Any], chat: bool) -> list[str]:
    """All texts of the prompt, in their order."""
    if not chat:
        return _texts(body.get("prompt"))
    texts: list[str] = []
    for message in body.get("messages") or []:
        texts += _texts(message.get("content"))
    return texts


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        return []
    texts: list[str] = []
    for part in content:
        texts.append(str(part.get("text", "") if isinstance(part, dict) else part))
    return texts
