"""A hostile server, and Python code that calls the compiled receiver in any order:
receiver_attack.py MODULE SEED SECONDS

Prints what it did. A stream of which nothing was skipped is handed over as it was sent; everything
else is left to the sanitizers that MODULE is compiled with.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import random
import socket
import struct
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import Any

from tests.loadgen.wire.test_receiver import tcp_pair
from tests.scripted_server import END, STREAM, token

KIB = 1024
# What the receiver keeps of a stream before it leaves the rest in the kernel, and one read.
MOST_KEPT_BYTES = (96 + 64) * KIB
# Around every limit of the receiver.
SIZES = (1, 3, 4, 6, 31, 32, 33, 8 * KIB, 16 * KIB - 1, 16 * KIB, 32 * KIB, 64 * KIB)
LARGE = (64 * KIB + 1, 96 * KIB, 200 * KIB)
ENDS = (b"", b"\n\n\r\n", b"\r\n\r\n\r\n", b"\n\n", b"\r\n")
# No descriptors of this process, and numbers that the table has no room for.
NUMBERS = (-(2**31), -2, -1, 63, 64, 65_535, 2**24, 2**30, 2**31 - 2, 2**31 - 1)
MOST_STREAMS = 24
FLOODED_STREAMS = 300


class Attacked:
    """A connection that is received: what its server sent, and what was handed over."""

    def __init__(self, receiver: Any) -> None:
        self.receiver = receiver
        self.server, self.client = tcp_pair()
        self.server.setblocking(False)
        self.fd = self.client.fileno()
        self.generation = receiver.add(self.fd)
        self.sent = bytearray()
        self.got = bytearray()
        self.last_ns = 0
        self.ended = 0
        # urgent data is no part of the stream, a reset drops what was not read
        self.is_exact = True

    def send(self, data: bytes) -> None:
        with suppress(BlockingIOError, OSError):
            count = self.server.send(data)
            self.sent += data[:count]

    def take(self, found: tuple[int, int, list[bytes], list[int], int, int]) -> None:
        fd, generation, reads, stamps, plain, ended = found
        assert (fd, generation) == (self.fd, self.generation)
        assert len(reads) == len(stamps) >= plain
        assert sum(map(len, reads)) <= MOST_KEPT_BYTES
        for stamp in stamps:
            assert abs(stamp) >= self.last_ns
            self.last_ns = abs(stamp)
        self.got += b"".join(reads)
        assert not self.ended or not (reads or ended), "something came after the end"
        self.ended = self.ended or ended
        assert not self.is_exact or self.sent.startswith(self.got)

    def close(self) -> None:
        """The receiver first, as the pool does it."""
        with suppress(KeyError):
            self.receiver.remove(self.fd)
        self.server.close()
        self.client.close()


class Attack:
    """One receiver under a sequence of acts that the seed chooses."""

    def __init__(self, receiver_class: Any, chance: random.Random) -> None:
        self.receiver_class = receiver_class
        self.receiver = receiver_class()
        self.chance = chance
        self.streams: dict[int, Attacked] = {}
        self.done: Counter[str] = Counter()
        self.acts = {
            name: getattr(self, name)
            for name in vars(Attack)
            if name.startswith(("server_", "client_"))
        }

    def act(self) -> None:
        if len(self.streams) < 2:
            self.client_connects()
        name = self.chance.choice(list(self.acts))
        self.acts[name]()
        self.done[name] += 1

    @property
    def one(self) -> Attacked:
        return self.streams[self.chance.choice(list(self.streams))]

    # ------------------------------------------------------------------ the server

    def server_sends_events(self) -> None:
        self.one.send(self.chance.choice([STREAM, token(), token() * 3, END]))

    def server_sends_a_limit(self) -> None:
        ending = self.chance.choice(ENDS)
        size = self.chance.choice(SIZES + LARGE)
        self.one.send((b"x" * size)[: size - len(ending)] + ending)

    def server_sends_single_bytes(self) -> None:
        stream = self.one
        for _ in range(self.chance.randrange(200)):
            stream.send(b"\n")

    def server_sends_endless_headers(self) -> None:
        self.one.send(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 8000)

    def server_sends_urgent_data(self) -> None:
        stream = self.one
        stream.is_exact = False
        for count in range(self.chance.randrange(1, 4)):
            with suppress(BlockingIOError, OSError):
                stream.server.send(b"!" * (count + 1), socket.MSG_OOB)

    def server_closes_half(self) -> None:
        with suppress(OSError):
            self.one.server.shutdown(socket.SHUT_WR)

    def server_resets(self) -> None:
        stream = self.one
        stream.is_exact = False
        linger = struct.pack("ii", 1, 0)
        with suppress(OSError):
            stream.server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        stream.server.close()

    # ------------------------------------------------------------------ Python

    def client_connects(self) -> None:
        if len(self.streams) < MOST_STREAMS:
            stream = Attacked(self.receiver)
            self.streams[stream.fd] = stream

    def client_keeps(self) -> None:
        self.receiver.keep(self.one.fd)

    def client_holds(self) -> None:
        self.receiver.hold(self.one.fd, self.chance.random() < 0.4)

    def client_reads(self) -> None:
        self.receiver.receive(self.one.fd)

    def client_takes(self) -> None:
        stream = self.one
        found = self.receiver.take(stream.fd)
        assert found[5] == 0
        stream.take(found)

    def client_collects(self) -> None:
        for found in self.receiver.collect(self.chance.choice([-1, 0, 1, 3, 64])):
            self.streams[found[0]].take(found)

    def client_looks(self) -> None:
        self.receiver.facts()
        self.receiver.silent(self.chance.choice([-(2**63), 0, 2**63 - 1]))

    def client_removes(self) -> None:
        stream = self.streams.pop(self.one.fd)
        stream.close()

    def client_reuses_a_descriptor(self) -> None:
        """Another connection under the number of one that has bytes left."""
        old = self.streams.pop(self.one.fd)
        new = Attacked(self.receiver)
        self.receiver.remove(new.fd)
        self.receiver.remove(old.fd)
        os.dup2(new.client.fileno(), old.fd)
        new.client.close()
        new.client = old.client
        old.server.close()
        new.fd = old.fd
        new.generation = self.receiver.add(new.fd)
        self.streams[new.fd] = new

    def client_closes_first(self) -> None:
        """Misuse: the descriptor is closed while it is received."""
        stream = self.streams.pop(self.one.fd)
        stream.client.close()
        stream.server.close()
        for call in (self.receiver.take, self.receiver.receive, self.receiver.keep):
            call(stream.fd)
        self.receiver.remove(stream.fd)

    def client_gives_odd_numbers(self) -> None:
        number = self.chance.choice(NUMBERS)
        receiver = self.receiver
        for call in (receiver.keep, receiver.take, receiver.receive, receiver.remove):
            if number not in self.streams:
                refused(call, number)
        refused(receiver.add, number)
        for text in ("", None, 2**31, 2**64, 1.5):
            refused(receiver.add, text)
            refused(receiver.collect, text)

    def client_adds_what_is_no_connection(self) -> None:
        """A file, a pipe, the receiver's own eventfd, a listener."""
        reading, writing = os.pipe()
        with open(os.devnull, "rb") as file, socket.create_server(("", 0)) as listener:
            for number in (file.fileno(), reading, writing, listener.fileno()):
                with suppress(OSError):
                    self.receiver.add(number)
                    self.receiver.receive(number)
                    self.receiver.remove(number)
        os.close(reading)
        os.close(writing)

    def client_stops_while_it_is_sent_to(self) -> None:
        """Another receiver, stopped or forgotten while its thread reads."""
        receiver = self.receiver_class()
        streams = [Attacked(receiver) for _ in range(3)]
        for stream in streams:
            receiver.keep(stream.fd)
            stream.send(token() * 50)
        if self.chance.random() < 0.5:
            receiver.stop()
            refused(receiver.collect, 1)
        for stream in streams:
            stream.receiver = None
            stream.server.close()
        del receiver
        gc.collect()
        for stream in streams:
            stream.client.close()

    # ------------------------------------------------------------------ the end

    def end(self) -> None:
        """Every stream that is exact is handed over whole, with its end."""
        for stream in self.streams.values():
            self.receiver.hold(stream.fd, False)
            stream.server.close()
        until_s = time.monotonic() + 20
        while not all(stream.ended for stream in self.streams.values()):
            for found in self.receiver.collect(64):
                self.streams[found[0]].take(found)
            assert time.monotonic() < until_s, "a stream never ended"
            time.sleep(0.0005)  # between two looks
        for stream in list(self.streams.values()):
            assert not stream.is_exact or stream.got == stream.sent
            stream.close()
        self.receiver.stop()


def refused(call: Any, argument: object) -> None:
    """An error of Python, and nothing else."""
    with suppress(
        OSError, ValueError, KeyError, TypeError, OverflowError, RuntimeError
    ):
        call(argument)
        assert call.__name__ in {"collect", "take", "keep", "receive", "remove"}


def flood(receiver_class: Any) -> int:
    """More connections than one turn of the thread reads, all of them full, nobody takes anything;
    then two threads take and remove at once. How many bytes were taken."""
    receiver = receiver_class()
    streams = [Attacked(receiver) for _ in range(FLOODED_STREAMS)]
    for number, stream in enumerate(streams):
        if number % 2:
            receiver.keep(stream.fd)
        for _ in range(5):
            stream.send(b"x" * (64 * KIB))
    time.sleep(0.3)  # nobody takes anything meanwhile

    def drain(part: list[Attacked]) -> None:
        for stream in part:
            stream.take(receiver.take(stream.fd))
            stream.close()

    threads = [
        threading.Thread(target=drain, args=(part,))
        for part in (streams[::2], streams[1::2])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    receiver.stop()
    taken = sum(len(stream.got) for stream in streams)
    assert 0 < taken <= FLOODED_STREAMS * MOST_KEPT_BYTES
    return taken


def main() -> None:
    spec = importlib.util.spec_from_file_location(
        "llama_load.loadgen.wire._receiver", sys.argv[1]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    seed, seconds = int(sys.argv[2]), float(sys.argv[3])

    acts: Counter[str] = Counter()
    rounds = 0
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        attack = Attack(module.Receiver, random.Random(seed + rounds))
        rounds += 1
        for _ in range(400):
            attack.act()
        attack.end()
        acts += attack.done
    print(f"{rounds} rounds, {sum(acts.values())} acts of {len(acts)} kinds")
    print(f"{flood(module.Receiver)} bytes taken of a flood")


if __name__ == "__main__":
    main()
