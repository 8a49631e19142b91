"""CPU time of a record on its way: packed by a worker; read, checked and put on the master's clock by
the master. Without network and disk.

    .venv/bin/python -m benchmarks.record_cost

The least of many repetitions, so that other programs on the machine count for little.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace

os.environ["LOCUST_SKIP_MONKEY_PATCH"] = "1"

import numpy as np

from benchmarks.harness import heading
from benchmarks.reports import GAPS, PATTERN
from llama_load.loadgen.swarm.ingest import (
    Delivery,
    _joined_tables,
    _rows_of_workers,
    _shifted,
)
from llama_load.run_folder.observed.foreign_records import check_integers, read_batch
from llama_load.run_folder.observed.record import to_batch

# Batches that a master writes at once, and records in each.
SHAPES = ((1, 1), (1, 4), (20, 4), (1, 20), (5, 20))
REPETITIONS = 60
CALLS = 10


def least_us(function: Callable[[], object]) -> float:
    """The least CPU time of a call."""
    function()
    least_s = float("inf")
    for _ in range(REPETITIONS):
        begun_s = time.process_time()
        for _ in range(CALLS):
            function()
        least_s = min(least_s, (time.process_time() - begun_s) / CALLS)
    return least_s * 1e6


def taken(data: bytes, batches: int, records: int) -> object:
    """What the master does with so many batches of records."""
    pairs = []
    for number in range(batches):
        delivery = Delivery("w", number, data, 0.0)
        pairs.append((delivery, read_batch(data)))
    joined = _joined_tables(pairs)
    check_integers(joined.columns)
    _rows_of_workers(joined, [("w", records)] * batches)
    shift_ns = np.full(batches * records, 7)
    return _shifted(joined, shift_ns, 5)


def main() -> None:
    """Measure and print."""
    print(heading())
    print("| batches | records in each | worker (us a record) | master (us a record) |")
    print("|---:|---:|---:|---:|")
    record = replace(PATTERN, itl_ms=[20.0] * GAPS)
    for batches, records in SHAPES:
        several = [record] * records
        data = to_batch(several).serialize().to_pybytes()
        worker_us = least_us(lambda: to_batch(several).serialize()) / records  # noqa: B023
        master_us = least_us(lambda: taken(data, batches, records))  # noqa: B023
        master_us /= batches * records
        print(f"| {batches} | {records} | {worker_us:.0f} | {master_us:.0f} |")


if __name__ == "__main__":
    main()
