"""The minimum cost with gevent: one socket per greenlet, receive, count bytes. No HTTP, no events,
no clock."""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path

from gevent import monkey

monkey.patch_all()

import socket  # noqa: E402

import gevent  # noqa: E402


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def stream(port: int, tokens: int) -> int:
    body = json.dumps(
        {
            "messages": [{"role": "user", "content": "Hello " * 40}],
            "max_tokens": tokens,
            "stream": True,
        }
    ).encode()
    sock = socket.create_connection(("127.0.0.1", port))
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    sock.sendall(head.encode() + body)
    count = 0
    while data := sock.recv(65536):
        count += len(data)
    sock.close()
    return count


def main() -> None:
    port, streams, requests, tokens = map(int, sys.argv[1:5])
    left = iter(range(requests))

    def user() -> None:
        for _ in left:
            stream(port, tokens)

    begin = cpu_s()
    gevent.joinall([gevent.spawn(user) for _ in range(streams)])
    Path(os.environ["BENCH_OUT"]).write_text(
        json.dumps({"cpu_s": cpu_s() - begin, "rows": []})
    )


if __name__ == "__main__":
    main()
