"""Of which requests it is known how much of the prompt was processed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from llama_load.run_folder.observed.records import Records


def with_known_prompt(records: Records, intended: bool | None) -> NDArray[np.bool_]:
    """One bool per request: its server reports cached tokens, or nothing can be cached: the first
    turn of a conversation, where no cache is `intended`."""
    reported = _reporting(records)
    if intended:
        return reported
    later = records.numbers("turn") > 1
    return np.asarray(reported | ~later, dtype=np.bool_)


def _reporting(records: Records) -> NDArray[np.bool_]:
    """One bool per row: whether its server reports cached tokens."""
    hosts = records.strings("host")
    known = {
        host
        for host, has in zip(hosts, records.has("cached_tokens"), strict=True)
        if has
    }
    return np.array([host in known for host in hosts], dtype=np.bool_)
