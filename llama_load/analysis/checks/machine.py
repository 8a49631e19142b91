"""The check that nothing else computed on the machine of the servers under test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llama_load.analysis.figures.check import SLOWER, Check, information, limited
from llama_load.analysis.figures.check_limits import LIMITS, OTHERS_WAY_ON
from llama_load.analysis.figures.cpu_shares import CpuShares, machines
from llama_load.analysis.figures.evidence import Evidence
from llama_load.run_folder.observed.worker_health import WorkerHealth

NAME = "other_programs_ratio"
WAITS = "server_wait_ratio"
ON_GPUS = "other_gpu_ratio"
# What other programs did to the server: such a run says nothing of it, in none of its figures.
OF_OTHERS = (NAME, WAITS, ON_GPUS)
# Of a server that uses less than this share of its machine's CPU time, other programs slow down
# little (it computes on a GPU): they matter from this share on.
LEAST_COMPUTING = 0.1
LIMIT_BESIDE_GPU = 0.5


def other_programs(evidence: Evidence) -> Iterator[Check]:
    """CPU time of programs that are neither the client (its workers, master, telemetry) nor the
    servers under test, on a machine with a server: share of all cores' time while the client
    measured.

    Evidence: the kernel's account of each machine and process, in ticks of 10 ms: no statistics.
    Unknown for servers on machines without a client, and for servers whose processes cannot be seen
    (a container, another user).
    """
    with_server = []
    for workers in machines(evidence.health):
        servers = [worker for worker in workers if worker.is_server_here]
        if servers:
            with_server.append(workers)
    known = [
        (shares, workers)
        for workers in with_server
        if (shares := CpuShares.of(workers)) is not None
    ]
    if not known:
        yield limited(NAME, None, "what else ran on the server's machine is not known")
        return
    if any(shares.server is None for shares, _ in known):
        text = "the server's processes on this machine cannot be seen (a container, another user): what else used it is not known"
        yield limited(NAME, None, text)
        return
    shares, workers = max(known, key=lambda entry: entry[0].others)
    text = f"other programs used {shares.others:.0%} of the CPUs of the server's machine{_busiest_programs(workers)}"
    if evidence.shared_machine:
        declared = "as declared by --shared-machine"
        if evidence.is_ci:
            declared = "which is usual on a runner of CI (CI=true)"
        yield information(NAME, shares.others, f"{text}, {declared}")
        return
    is_computing = (shares.server or 0.0) >= LEAST_COMPUTING
    limit = LIMITS[NAME].limit if is_computing else LIMIT_BESIDE_GPU
    advice = None
    if not is_computing:
        advice = (
            f"{OTHERS_WAY_ON}: an engine behind a gateway, which cannot be seen, would"
        )
    yield limited(NAME, shares.others, text, limit=limit, advice=advice, bound=SLOWER)


def server_waits(evidence: Evidence) -> Iterator[Check]:
    """The share of its time in which the server was ready to compute but waited for a core that
    other programs had: min(its threads' waits, the others' CPU time) / the larger of its threads'
    time (running and waiting) and the time of the measurement.

    2 cores, 10 s: the server's threads ran 12 s and waited 3 s, others used 5 s: 3 / 15 = 20 %.
    Waits for cores that its own threads, or the client, had are no others': with more threads than
    cores it waits for itself. Evidence: the kernel's account of each thread, in ns: no statistics.
    Nothing where that is not known (see `other_programs`).
    """
    known = [entry for entry in map(_Waits.of, machines(evidence.health)) if entry]
    if not known:
        return

    worst = max(known, key=lambda entry: entry.ratio)
    text = f"the server waited for a core {worst.waited_ratio:.1%} of the time that it needed one"
    if worst.waited_ratio:
        text += f" (other programs: {worst.ratio:.1%})"
    if evidence.shared_machine:
        yield information(WAITS, worst.ratio, text)
        return
    yield limited(WAITS, worst.ratio, text, bound=SLOWER)


def others_on_gpus(evidence: Evidence) -> Iterator[Check]:
    """The part of the measurement in which programs that are no servers computed on a GPU that the
    servers use: the largest of these GPUs.

    Evidence: the driver's account of each process on a GPU, averages over a sixth of a second to a
    second: no statistics. Unknown where it does not tell processes apart (MIG, a container), or
    where the GPU is sampled by an exporter of others. Nothing where no GPU in use is sampled.
    """
    if not evidence.gpu_others:
        return
    known = [share for share in evidence.gpu_others if share is not None]
    if len(known) < len(evidence.gpu_others):
        text = "what else computed on the server's GPUs is not known"
        yield limited(ON_GPUS, None, text)
        return

    text = f"other programs computed on a GPU of the server for {max(known):.0%} of the time"
    if evidence.shared_machine:
        yield information(ON_GPUS, max(known), text)
        return
    yield limited(ON_GPUS, max(known), text, bound=SLOWER)


@dataclass(frozen=True, slots=True)
class _Waits:
    """Waits of the servers on one machine.

    `ratio`: those for others; `waited_ratio`: all, of the time in which it ran or waited.
    """

    ratio: float
    waited_ratio: float

    @classmethod
    def of(cls, workers: Sequence[WorkerHealth]) -> _Waits | None:
        """As seen by the worker there that saw most of it; None where none did."""
        shares = CpuShares.of(workers)
        seen = [worker for worker in workers if worker.server_waited_s is not None]
        if shares is None or shares.server is None or not seen:
            return None

        worker = max(seen, key=lambda each: each.server_seen_s or 0.0)
        waited_s = worker.server_waited_s or 0.0
        needed_s = waited_s + (worker.server_ran_s or 0.0)
        others_s = shares.others * (worker.machine_s or 0.0)
        time_s = max(needed_s, worker.server_seen_s or 0.0)
        if not time_s:
            return None
        waited_ratio = waited_s / needed_s if needed_s else 0.0
        return cls(min(waited_s, others_s) / time_s, waited_ratio)


def _busiest_programs(workers: list[WorkerHealth]) -> str:
    """` (yes 48%, cc1 12%)`: the busiest of them, as one of the workers saw them."""
    busiest = max((worker.busiest_others for worker in workers), key=len)
    return f" ({', '.join(busiest)})" if busiest else ""
