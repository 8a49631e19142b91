"""What long and hostile answers cost: memory and the longest piece of work, with reads that are
kept and read by read.

    .venv/bin/python -m benchmarks.bounds         # about a minute

No server: a socket of this process gives the reads, so that only the client's own work and memory
are measured.
"""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gevent.hub import Waiter

from benchmarks.harness import heading
from llama_load.loadgen.wire.answer_body import AnswerBody
from llama_load.loadgen.wire.connection import OPEN, Connection
from llama_load.loadgen.wire.exchange import Exchange
from llama_load.loadgen.wire.fair_queue import BUDGET_NS
from llama_load.loadgen.wire.phase_clock import DONE, PhaseClock
from llama_load.loadgen.wire.poller import READABLE
from llama_load.loadgen.wire.pool import ConnectionPool
from llama_load.loadgen.wire.read_loop import ReadLoop
from llama_load.loadgen.wire.request import Request, Timeouts
from llama_load.servers.address import parse_url

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
ADDRESS = parse_url("http://127.0.0.1:9")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


TOKEN = chunk(
    b'data: {"id":"chatcmpl-0","created":1,"choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}]}\n\n'
)
SMALL = chunk(b"data: {}\n\n" * 800)  # 8 KB in events of 10 bytes
# Name: streams, reads of each, a read.
CASES = {
    "one answer of 1,000,000 tokens": (1, 1_000_000, TOKEN),
    "800 answers, 1,600 tokens each": (800, 1_600, TOKEN),
    "an endless event": (1, 20_000, chunk(b"x" * 200)),
    "events without content": (8, 60, SMALL),
}


class ReadByRead(Exchange):
    """An exchange that keeps no read."""

    def _keep_reads(self) -> None:
        pass


class Watcher:
    """Stands in for the poller: nothing is watched."""

    gap_ns = float("inf")

    def __getattr__(self, _: str) -> Any:
        return lambda *_, **__: None


@dataclass
class Reads:
    """Stands in for a socket: the same read again and again, stamped with the time."""

    data: bytes

    def recvmsg(self, *_: int) -> tuple[bytes, list[tuple[int, int, bytes]], int, None]:
        # Copied: a real read is an object of its own.
        return (
            bytes(bytearray(self.data)),
            [(1, 35, struct.pack("=qq", *divmod(time.time_ns(), 10**9)))],
            0,
            None,
        )

    def recvmsg_into(
        self, buffers: tuple[bytearray], _: int
    ) -> tuple[int, list[tuple[int, int, bytes]], int, None]:
        data, *rest = self.recvmsg()
        buffers[0][: len(data)] = data
        return len(data), *rest

    def close(self) -> None:
        pass


class Reader:
    """Counts the events."""

    done = False
    events = 0

    def event(self, _: bytes, __: int) -> bool:
        self.events += 1
        return True


def measure(
    kind: type[Exchange], streams: int, reads: int, data: bytes
) -> tuple[float, float, float]:
    """us a read; the longest call of the read loop or turn of a slab in ms; the most memory of all
    slabs, KiB a stream."""
    turns: list[Exchange] = []
    pool = ConnectionPool(Watcher(), turns.append)  # type: ignore[arg-type]
    loop, exchanges = ReadLoop(), []
    for fd in range(streams):
        sock = Reads(HEAD + TOKEN)
        exchange = kind(
            pool,
            ADDRESS,
            Request("POST", "/"),
            PhaseClock(Timeouts()),
            AnswerBody(Reader()),
            Waiter(),
            lambda _: None,
        )
        connection = Connection(pool, ADDRESS)
        connection._sock, connection.fd, connection.state, connection.exchange = (
            sock,
            fd,
            OPEN,
            exchange,
        )  # type: ignore[assignment]
        connection.opening.connected_ns, exchange.connection, pool.connections[fd] = (
            1,
            connection,
            connection,
        )
        exchange.on_start()
        loop.handle(pool, [(fd, READABLE)])
        sock.data = data
        exchanges.append(exchange)
    longest = most = used = 0.0
    for number in range(reads):
        for piece in _steps(loop, pool, streams, turns):
            begin = time.thread_time_ns()
            piece()
            took = time.thread_time_ns() - begin
            used += took
            longest = max(longest, took)
        if number % 16 == 0 or streams == 1:
            most = max(most, sum(map(slab_bytes, exchanges)) / streams)
    return used / streams / reads / 1e3, longest / 1e6, most / 1024


def _steps(
    loop: ReadLoop, pool: ConnectionPool, streams: int, turns: list[Exchange]
) -> Iterator[Any]:
    """Each socket is read; then one slab in 64 has its turn, as if the loop were busy."""
    for fd in range(streams):
        if fd in pool.connections:
            yield lambda fd=fd: loop.handle(pool, [(fd, READABLE)])
    for exchange in turns[: 1 + len(turns) // 64]:
        turns.remove(exchange)
        if exchange.slab is not None and exchange.clock.phase != DONE:
            yield lambda exchange=exchange: exchange.understand(BUDGET_NS)
            exchange.slab.queued = bool(exchange.slab.reads)
            if exchange.slab.queued:
                turns.append(exchange)


def slab_bytes(exchange: Exchange) -> int:
    """Memory of the reads that are kept."""
    slab = exchange.slab
    if slab is None:
        return 0
    own = sys.getsizeof(slab.reads) + sys.getsizeof(slab.stamps)
    return (
        own
        + (sys.getsizeof(slab.reads[-1]) + sys.getsizeof(slab.stamps[-1]))
        * len(slab.reads)
        if slab.reads
        else own
    )


def main() -> None:
    """Measure and print a Markdown table."""
    print(heading())
    print(
        "| answer | reads | CPU us a read | longest piece of work (ms) | kept (KiB a stream) |\n|---|---|---:|---:|---:|"
    )
    for name, case in CASES.items():
        for title, kind in (
            ("kept", Exchange),
            ("each understood at once", ReadByRead),
        ):
            cost, longest, kept = measure(kind, *case)
            print(
                f"| {name} | {title} | {cost:.2f} | {longest:.2f} | {kept:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
