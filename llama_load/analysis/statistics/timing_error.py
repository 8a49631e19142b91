"""The error of the client's figures against the log of a server with a known schedule (see
`llama_load.servers.serving.simulated`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

COLUMNS = ["request_id", "ttft_ms", "itl_ms"]


def errors_ms(
    rows: Iterable[Mapping[str, Any]], log: Iterable[Mapping[str, Any]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Errors of TTFT (one per request) and of ITL (one per gap), ms: client's figure - server's.
    `rows` have `COLUMNS`.

    The server's TTFT runs from the kernel's receipt of the request until just before the first
    token is handed to the kernel. Requests with merged events have no gaps to compare.
    """
    truth = {entry["request_id"]: entry for entry in log}
    ttft = []
    itl = [np.zeros(0)]
    for row in rows:
        entry = truth[row["request_id"]]
        sent = np.array(entry["sent_mono_ns"]) / 1e6
        ttft.append(row["ttft_ms"] - (sent[0] - entry["received_mono_ns"] / 1e6))
        if len(row["itl_ms"]) == len(sent) - 1:
            itl.append(np.array(row["itl_ms"]) - np.diff(sent))
    return np.array(ttft), np.concatenate(itl)
