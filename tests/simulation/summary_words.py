"""What the summary of a simulated run says, against what happened: the counts, the verdict's word,
the lost requests that it names, and when requests began."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from llama_load.analysis.results.results import Results, analyze
from llama_load.run_folder import Run
from llama_load.run_folder.observed.record import CANCELLED, OK, schema
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.vocabulary.verdict_words import INCOMPLETE
from tests.simulation.machines import Request

if TYPE_CHECKING:
    from tests.simulation.master_process import WatchedRun
    from tests.simulation.world import World

NS_PER_MS = 1_000_000
# What the clocks' drift adds between two readings, beyond the uncertainty that is reported.
ROUNDING_MS = 0.1


def wrong_words(world: World, run: WatchedRun, log: Sequence[Request]) -> list[str]:
    """What the summary gets wrong."""
    writer = run.prepared.writer
    table = pa.Table.from_batches(writer.batches, schema())
    records = Records(table)
    results = analyze(Run(writer.path, writer.manifest, records, recovered=False))
    return [
        *_wrong_counts(results, writer.rows),
        *_wrong_losses(results, run),
        *_wrong_verdict(results, writer.rows, log),
        *_wrong_starts(world, table, log),
    ]


def _wrong_counts(results: Results, rows: Sequence[Any]) -> list[str]:
    """Completed, failed and cancelled requests, and dropped arrivals."""
    statuses: Counter[str] = Counter()
    for _, (is_warmup, _), status, _ in rows:
        if not is_warmup:
            statuses[status] += 1
    failed = statuses.total() - statuses[OK] - statuses[CANCELLED]
    happened = {
        "completed": statuses[OK],
        "failed": failed,
        "cancelled": statuses[CANCELLED],
    }
    total = results.total
    said = {
        "completed": total.completed,
        "failed": total.failed,
        "cancelled": total.cancelled,
    }
    return (
        [] if said == happened else [f"the summary says {said}, and it was {happened}"]
    )


def _wrong_losses(results: Results, run: WatchedRun) -> list[str]:
    """Each worker that was lost is named, with how many requests it may have sent."""
    checks = results.verdict.checks
    said = [check.value for check in checks if check.name == "lost_requests"]
    lost = run.controller.dispatcher.ledger.lost
    happened = [len(gone.possibly_sent) for gone in lost]
    if sorted(said) == sorted(happened):
        return []
    return [f"the verdict names {said} lost requests, and {happened} were lost"]


def _wrong_verdict(
    results: Results, rows: Sequence[Any], log: Sequence[Request]
) -> list[str]:
    """INCOMPLETE if a measured request was sent and is not on record, or a planned one is missing;
    else not."""
    recorded = {request_id for _, _, _, request_id in rows}
    unrecorded = [
        request.key
        for request in log
        if request.request_id not in recorded and not request.key[0]
    ]
    manifest = results.run.manifest
    ended = {key for _, key, status, _ in rows if status != CANCELLED and not key[0]}
    planned = manifest.num_prompts
    missing = 0
    if planned is not None:
        missing = planned - manifest.dropped - manifest.cut - len(ended)
    is_incomplete = results.verdict.word.split(",")[0] == INCOMPLETE
    if unrecorded and not is_incomplete:
        return [
            f"{unrecorded} have no record, and the verdict is {results.verdict.word}"
        ]
    if missing > 0 and not is_incomplete:
        return [
            f"{missing} planned requests did not end, and the verdict is {results.verdict.word}"
        ]
    is_whole = (
        manifest.end in ("complete", "time")
        and ended
        and not missing
        and not unrecorded
    )
    has_losses = any(gone.possibly_sent for gone in manifest.lost)
    if is_whole and is_incomplete and not has_losses:
        return ["all is on record, and the verdict is INCOMPLETE"]
    return []


def _wrong_starts(world: World, table: pa.Table, log: Sequence[Request]) -> list[str]:
    """When each request began, on the master's clock: as the server saw it, within what the
    summary reports as the uncertainty of the clocks. Lateness is computed from it."""
    run = world.master.finished[-1]
    uncertain_ms = max(
        (health.clock_uncertainty_ms or 0.0 for health in run.prepared.health),
        default=0.0,
    )
    began_ns = {request.request_id: request.begun_ns for request in log}
    machine = world.master.machine
    wrong = []
    ids = table.column("request_id").to_pylist()
    starts = table.column("started_mono_ns").to_pylist()
    for request_id, started_ns in zip(ids, starts, strict=True):
        if request_id not in began_ns:
            continue
        true_ns = machine.monotonic_ns(began_ns[request_id])
        off_ms = abs(started_ns - true_ns) / NS_PER_MS
        if off_ms > uncertain_ms + ROUNDING_MS:
            wrong.append(f"{request_id} began {off_ms:.3f} ms away from its record")
    return wrong[:3]
