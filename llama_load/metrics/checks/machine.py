"""The check that nothing else computed on the machine of the servers under test."""

from __future__ import annotations

from collections.abc import Iterator

from llama_load.metrics.check import Check, information, limited
from llama_load.metrics.check_limits import LIMITS
from llama_load.metrics.cpu_shares import CpuShares, machines
from llama_load.metrics.evidence import Evidence
from llama_load.observed.worker_health import WorkerHealth

NAME = "other_programs_ratio"
# Of a server that uses less than this share of its machine's CPU time, other programs slow down little (it computes on a GPU):
# they matter from this share on.
LEAST_COMPUTING, LIMIT_BESIDE_GPU = 0.1, 0.5


def other_programs(evidence: Evidence) -> Iterator[Check]:
    """CPU time of programs that are neither the client (its workers, master, telemetry) nor the servers under test, on a machine
    with a server: share of all cores' time while the client measured.

    Evidence: the kernel's account of each machine and process, in ticks of 10 ms: no statistics. Unknown for servers on machines
    without a client, and for servers whose processes cannot be seen (a container, another user).
    """
    with_server = [workers for workers in machines(evidence.health) if any(worker.is_server_here for worker in workers)]
    known = [(shares, workers) for workers in with_server if (shares := CpuShares.of(workers)) is not None]
    if not known:
        yield limited(NAME, None, "what else ran on the server's machine is not known")
        return
    if any(shares.server is None for shares, _ in known):
        text = "the server's processes on this machine cannot be seen (a container, another user): what else used it is not known"
        yield limited(NAME, None, text)
        return
    shares, workers = max(known, key=lambda entry: entry[0].others)
    text = f"other programs used {shares.others:.0%} of the CPUs of the server's machine{_named(workers)}"
    if evidence.shared_machine:
        yield information(NAME, shares.others, f"{text}, as declared by --shared-machine")
        return
    is_computing = (shares.server or 0.0) >= LEAST_COMPUTING
    limit = LIMITS[NAME].limit if is_computing else LIMIT_BESIDE_GPU
    if shares.others > limit:
        text += ": the figures are those of a shared machine"
    yield limited(NAME, shares.others, text, limit=limit)


def _named(workers: list[WorkerHealth]) -> str:
    """` (yes 48%, cc1 12%)`: the busiest of them, as one of the workers saw them."""
    busiest = max((worker.busiest_others for worker in workers), key=len)
    return f" ({', '.join(busiest)})" if busiest else ""
