"""From where and for how long each search goes: `make search SECONDS=600 SEED=7`. CI takes a minute
and a fixed seed."""

from __future__ import annotations

import datetime
import itertools
import os
import time
from collections.abc import Iterator

SECONDS = float(os.environ.get("SEARCH_SECONDS", "60"))
# Another one each day.
SEED = int(os.environ.get("SEARCH_SEED", f"{datetime.date.today():%Y%m%d}"))


def seeds(first: int) -> Iterator[int]:
    """From the first one on, until the time is over; at least one."""
    until_s = time.monotonic() + SECONDS
    for seed in itertools.count(first):
        yield seed
        if time.monotonic() > until_s:
            return
