"""What a swarm keeps in memory in a long run, hour by hour of virtual time.

    .venv/bin/python -m benchmarks.long_virtual_run [--hours 8] [--rate 1] [--workers 2]

The real master and workers under simulation (`tests.simulation`), in one process, with
an open loop and without faults. Records are counted and forgotten, as the journal on disk would
have them. Looked at after a garbage collection are the blocks that Python has allocated for its
objects (90 bytes each on average), and what malloc has given out: larger objects, and Arrow's.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import io
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

os.environ["LOCUST_SKIP_MONKEY_PATCH"] = "1"

import gevent
import numpy as np

from benchmarks.harness import heading
from tests.simulation.kept import kept_by_master, kept_by_worker
from tests.simulation.machines import Machine, Request, Writer
from tests.simulation.master_process import Plan
from tests.simulation.virtual_loop import virtual_time
from tests.simulation.world import World

HOUR_S = 3600.0
USERS = 4
# After two hours everything has been used once: tables of counts, caches, pools.
SETTLED_AFTER_H = 2
# Arrivals are random: the last one of eight hours comes some minutes early or late.
ENDS_WITHIN_S = 3600.0


@dataclass(frozen=True, slots=True)
class Look:
    """The swarm after so many hours. `kept`: leases, open requests, reports and batches."""

    hours: float
    records: int
    blocks: int
    malloc_kib: float
    kept: int


class CountedLog:
    """The server's log, as numbers: how often each request was begun."""

    def __init__(self, requests: int) -> None:
        self.begun = np.zeros(requests, dtype=np.int64)

    def append(self, request: Request) -> None:
        """One more."""
        _, index = request.key
        self.begun[index] += 1


class CountingWriter(Writer):
    """A run folder that counts how often each request is stored, and keeps nothing else."""

    def __init__(self, machine: Machine, manifest: Any) -> None:
        super().__init__(machine, manifest)
        self.stored = np.zeros(manifest.num_prompts, dtype=np.int64)

    def append_batch(self, batch: Any, *, anywhere: bool = False) -> None:
        """See `Writer`."""
        self.appended += batch.num_rows
        for index in batch.column("prompt_index").to_pylist():
            self.stored[index] += 1


def watch(
    hours: float, rate_rps: float, workers: int = 2, seed: int = 1
) -> Iterator[Look]:
    """Run it, and look at it after each hour. Raises AssertionError: a request was not sent and
    stored exactly once, or the run did not end."""
    requests = round(hours * HOUR_S * rate_rps)
    with virtual_time() as loop:
        world = World(loop, seed)
        while len(world.workers) < workers:
            world.add_worker()
        log = CountedLog(requests)
        world.server.log = log  # type: ignore[assignment]
        world.server.service_s = 0.3
        world.master.writer = CountingWriter
        gevent.sleep(3)
        world.master.begin(plan_of(requests, rate_rps))
        for hour in range(1, round(hours) + 1):
            gevent.sleep(HOUR_S)
            if world.master.active is not None:
                yield look_at(world, hour)
        with gevent.Timeout(ENDS_WITHIN_S, AssertionError("the run did not end")):
            while not world.master.finished:
                gevent.sleep(1)
        writer = world.master.finished[0].prepared.writer
        assert (log.begun == 1).all(), "a request was not sent exactly once"
        assert (writer.stored == 1).all(), "a request was not stored exactly once"


def plan_of(requests: int, rate_rps: float) -> Plan:
    """An open loop of so many requests."""
    plan = Plan(Random(1))
    plan.users = USERS
    plan.requests = requests
    plan.seconds = None
    plan.rate_rps = rate_rps
    plan.max_in_flight = None
    plan.warmup = 0
    plan.wait_at_end_s = 60.0
    return plan


def look_at(world: World, hour: int) -> Look:
    """The swarm now."""
    gc.collect()
    run = world.master.active
    assert run is not None, "the run has ended"
    kept = kept_by_master(run)
    for worker in world.workers:
        kept += kept_by_worker(worker)
    records = run.prepared.writer.appended
    return Look(hour, records, sys.getallocatedblocks(), malloc_kib(), kept)


class MallocInfo(ctypes.Structure):
    """See mallinfo2(3) of glibc: bytes in use in the heap, and in mappings of their own."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def malloc_kib() -> float:
    """What malloc has given out. Python's own arenas of small objects are among it where they are
    not mapped."""
    libc = ctypes.CDLL("libc.so.6")
    libc.mallinfo2.restype = MallocInfo
    info = libc.mallinfo2()
    return float(info.uordblks + info.hblkhd) / 1024


def an_hour(looks: list[Look]) -> tuple[float, float]:
    """Blocks and KiB an hour, by lines of least squares, without the first hours."""
    settled = [look for look in looks if look.hours >= SETTLED_AFTER_H]
    hours = [look.hours for look in settled]
    blocks = np.polyfit(hours, [look.blocks for look in settled], 1)[0]
    malloc = np.polyfit(hours, [look.malloc_kib for look in settled], 1)[0]
    return float(blocks), float(malloc)


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=int, default=8)
    parser.add_argument("--rate", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    begun_s = time.process_time()
    print(heading())
    print("| virtual hours | records | blocks | malloc (KiB) | requests not over |")
    print("|---:|---:|---:|---:|---:|")
    looks = []
    with contextlib.redirect_stderr(io.StringIO()):  # the progress of the run
        for look in watch(asked.hours, asked.rate, asked.workers):
            looks.append(look)
            numbers = f"{look.records:,} | {look.blocks:,} | {look.malloc_kib:,.0f}"
            print(f"| {look.hours:.0f} | {numbers} | {look.kept} |", flush=True)
    took_s = time.process_time() - begun_s
    blocks, malloc = an_hour(looks)
    print()
    print(
        f"{blocks:+,.0f} blocks and {malloc:+,.0f} KiB an hour; {took_s:.0f} s of CPU"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
