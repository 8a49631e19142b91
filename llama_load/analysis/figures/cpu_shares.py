"""Who used the CPU of the client's machine while the client measured: the client, the servers under
test, other programs.

This is the account by time used. What the kernel says of time spent waiting for a CPU belongs here
too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llama_load.analysis.figures.check_limits import OTHERS_WAY_ON
from llama_load.run_folder.observed.worker_health import WorkerHealth

CLIENT = "client"
SERVER = "server"
OTHERS = "others"
# A machine with more idle time than this was not taken by anybody.
LEAST_BUSY = 0.8


@dataclass(frozen=True, slots=True)
class CpuShares:
    """Shares of all cores' time of the busiest client machine, 0 to 1. `server` is None where none
    runs on it."""

    machine: float
    client: float
    server: float | None

    @classmethod
    def of(cls, workers: Sequence[WorkerHealth]) -> CpuShares | None:
        """The shares on the machine of these workers, by the one that saw it busiest; None where
        none measured them.

        The client's share: what a worker saw of all the client's processes there, and at least the
        sum of the workers' own."""
        known = [worker for worker in workers if worker.machine_busy is not None]
        if not known:
            return None
        busiest = max(known, key=lambda worker: worker.machine_busy or 0.0)
        own = sum(worker.own_share or 0.0 for worker in known)
        seen = max(worker.client_share or 0.0 for worker in known)
        return cls(busiest.machine_busy or 0.0, max(own, seen), busiest.server_share)

    @property
    def others(self) -> float:
        """The share of all other programs."""
        return max(0.0, self.machine - self.client - (self.server or 0.0))

    @property
    def taken_by(self) -> str | None:
        """Who used most of a busy machine: `client`, `server` or `others`; None where it was not
        busy."""
        if self.machine < LEAST_BUSY:
            return None
        shares = {CLIENT: self.client, SERVER: self.server or 0.0, OTHERS: self.others}
        return max(shares, key=shares.__getitem__)

    @property
    def text(self) -> str:
        """`its machine: 97% busy (client 40%, server 50%, others 7%)`."""
        server = [] if self.server is None else [f"server {self.server:.0%}"]
        parts = [f"client {self.client:.0%}", *server, f"others {self.others:.0%}"]
        return f"its machine: {self.machine:.0%} busy ({', '.join(parts)})"

    @property
    def advice(self) -> str | None:
        """What to do where other programs or the servers took the machine; None where it was the
        client, or nobody."""
        if self.taken_by == OTHERS:
            return f"other programs took {self.others:.0%} of the client's machine: {OTHERS_WAY_ON}"
        if self.taken_by == SERVER:
            return f"the servers under test took {self.server:.0%} of the client's machine: run the client on another one"
        return None


def cpu_shares(health: Sequence[WorkerHealth]) -> CpuShares | None:
    """The shares on the busiest machine of the workers; None where they were not measured."""
    every = [
        shares
        for workers in machines(health)
        if (shares := CpuShares.of(workers)) is not None
    ]
    return max(every, key=lambda shares: shares.machine, default=None)


def machines(health: Sequence[WorkerHealth]) -> list[list[WorkerHealth]]:
    """The workers of each machine."""
    groups: dict[str, list[WorkerHealth]] = {}
    for worker in health:
        groups.setdefault(_machine_of(worker), []).append(worker)
    return list(groups.values())


def _machine_of(worker: WorkerHealth) -> str:
    """The host in a worker's name, host_12345678."""
    return worker.worker.rpartition("_")[0]
