"""A run whose last server ended: its figures end with the server.

The run goes on for a while, in case the server is started again (--server-grace). What it sends
then is refused: requests that no server got are no slow answers, and no failures of the server's.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from llama_load.ground.failure_kind import FailureKind
from llama_load.run_folder import Run
from llama_load.run_folder.observed.record import CANCELLED
from llama_load.run_folder.observed.records import Bools, Records

_ARRIVALS = ("headers_mono_ns", "first_token_mono_ns", "last_token_mono_ns")
_UNREACHED = (
    FailureKind.CONNECT_REFUSED,
    FailureKind.CONNECT_FAILED,
    FailureKind.CONNECT_TIMEOUT,
    CANCELLED,
)


def until_the_servers_end(run: Run) -> Run:
    """The run without the requests that it sent when no server was left, and cut at the end of the
    last one that a server had."""
    if run.manifest.end != "server":
        return run
    last_ns = _last_arrival_ns(run.records)
    started_ns = run.records.instants("started_mono_ns")
    is_late = _is_unreached(run.records) & (started_ns > last_ns)
    if last_ns < 0 or not is_late.any():
        return run

    reached = run.records.where(~is_late)
    ended = reached.where(~reached.equals("status", CANCELLED))
    cut_ns = int(ended.instants("ended_mono_ns").max(initial=last_ns))
    cut = replace(run.manifest, cut_mono_ns=cut_ns)
    return replace(run, manifest=cut, records=reached)


def _last_arrival_ns(records: Records) -> int:
    """When the last headers or token came from a server; -1: none did."""
    last_ns = -1
    for name in _ARRIVALS:
        instants = records.optional_instants(name)
        latest_ns = int(instants.max(initial=-1))
        last_ns = max(last_ns, latest_ns)
    return last_ns


def _is_unreached(records: Records) -> Bools:
    """One bool per row: whether a server did not get the request, or need not have."""
    is_unreached = np.zeros(len(records), dtype=np.bool_)
    for status in _UNREACHED:
        is_unreached |= records.equals("status", str(status))
    return is_unreached
