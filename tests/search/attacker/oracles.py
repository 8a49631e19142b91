"""What is wrong whatever a listener answers: work, memory and descriptors beyond what the bytes are
worth."""

from __future__ import annotations

import gc
import os
import time
import tracemalloc
from collections.abc import Callable

# Of the thread: a fixed part and one for each byte. A refused request of 64 KiB may take 10 ms, and
# this machine is shared: three times as much in each of three tries is a find.
LEAST_S = 0.010
S_PER_BYTE = 2e-7
TRIES = 3
TIMES = 3
SURE_TIMES = 10
LEAST_BYTES = 4 << 20
TIMES_AS_LARGE = 20


class Find(Exception):
    """Something is wrong; the text says what."""


def cpu(attempt: Callable[[], object], size: int) -> None:
    """Raises Find: it takes more CPU time than so many bytes are worth."""
    allowed_s = TIMES * (LEAST_S + size * S_PER_BYTE)
    for _ in range(TRIES):
        begun_s = time.thread_time()
        attempt()
        took_s = time.thread_time() - begun_s
        if took_s <= allowed_s:
            return
        if took_s > SURE_TIMES * allowed_s:  # the next try may find it kept
            break
    raise Find(f"{took_s:.3f} s of CPU for {size:,} bytes, over {allowed_s:.3f}")


def memory(attempt: Callable[[], object], size: int) -> None:
    """Raises Find: it takes more memory than so many bytes are worth."""
    allowed = LEAST_BYTES + size * TIMES_AS_LARGE
    tracemalloc.start()
    try:
        attempt()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    if peak > allowed:
        raise Find(f"{peak:,} bytes of memory for {size:,}, over {allowed:,}")


def descriptors() -> int:
    """How many are open."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))
