"""How far a client's figures are from what a server with a known schedule logged (see `llama_load.serving.simulated`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

COLUMNS = ["request_id", "ttft_ms", "itl_ms"]


def errors_ms(
    rows: Iterable[Mapping[str, Any]], log: Iterable[Mapping[str, Any]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Errors of TTFT (one a request) and of ITL (one a gap), ms: the client's figure - the server's. `rows` have `COLUMNS`.

    The server's TTFT runs from the kernel's receipt of the request to the instant before the first token is handed to the
    kernel. Requests whose events came merged have no gaps to compare.
    """
    truth = {entry["request_id"]: entry for entry in log}
    ttft, itl = [], [np.zeros(0)]
    for row in rows:
        entry = truth[row["request_id"]]
        sent = np.array(entry["sent_mono_ns"]) / 1e6
        ttft.append(row["ttft_ms"] - (sent[0] - entry["received_mono_ns"] / 1e6))
        if len(row["itl_ms"]) == len(sent) - 1:
            itl.append(np.array(row["itl_ms"]) - np.diff(sent))
    return np.array(ttft), np.concatenate(itl)
