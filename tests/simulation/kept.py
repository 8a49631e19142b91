"""What the processes of a simulated swarm keep in memory: no more than what is not over yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.master_process import WatchedRun
    from tests.simulation.worker_process import WorkerProcess
    from tests.simulation.world import World

# In how many places a process may keep one request that is not over: begun, ended, held, in a
# batch.
PLACES = 5
# Leases that are handed out ahead of their time, and requests under way.
AHEAD = 60


def kept_too_much(world: World) -> list[str]:
    """Processes that keep more than that now."""
    run = world.master.active
    if run is None or world.master.machine.is_dead:
        return []
    stored = {request_id for _, _, _, request_id in run.prepared.writer.rows}
    unstored = sum(request.request_id not in stored for request in world.server.log)
    most = PLACES * unstored + AHEAD
    kept = {worker.name[-2:]: kept_by_worker(worker) for worker in world.workers}
    kept["master"] = kept_by_master(run)
    return [
        f"{name} keeps {count} things, {unstored} requests are not stored"
        for name, count in kept.items()
        if count > most
    ]


def kept_by_worker(worker: WorkerProcess) -> int:
    """Leases, open requests, reports and batches."""
    lifecycle = worker.lifecycle
    run = None if lifecycle is None else lifecycle._run
    if run is None:
        return 0
    reports = len(run._started) + len(run._ended)
    return (
        len(run._holding) + len(run._open) + len(run._outbox._unacknowledged) + reports
    )


def kept_by_master(run: WatchedRun) -> int:
    """Of each worker its leases, begun requests and batches; and what waits to be written."""
    kept = len(run._ingest._queue) + len(run._ingest._waiting)
    for name, worker in run._workers.items():
        held = run.controller.dispatcher.ledger.workers[name]
        kept += len(worker.started) + len(worker.early) + len(worker.open)
        kept += len(held.leases) + len(held.strays)
    return kept
