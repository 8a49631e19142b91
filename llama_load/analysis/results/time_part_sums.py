"""Where the time of a run went: of all its measured requests, and of its workloads and stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from llama_load.analysis.figures.stage_figures import completed_within_mask
from llama_load.analysis.figures.time_parts import RequestParts, request_parts
from llama_load.analysis.figures.time_sums import TimeParts, sum_up
from llama_load.run_folder import Manifest, Run
from llama_load.run_folder.observed.records import Records


@dataclass(frozen=True, slots=True)
class RunTimeParts:
    """The parts of the requests' time, and their sums.

    `requests` has one row per record of the run, warm-ups included; the sums are of measured
    requests (None: none has an E2EL), by stage without those that ended after their stage.
    """

    requests: RequestParts = field(repr=False, compare=False)
    total: TimeParts | None
    by_workload: dict[str, TimeParts | None]
    by_stage: dict[str, TimeParts | None]


def time_parts(run: Run) -> RunTimeParts:
    """The parts of all requests of the run, and their sums."""
    records = run.records
    manifest = run.manifest
    parts = request_parts(
        _with_probes(run), _slots_by_host(manifest), _slots_by_model(manifest)
    )
    parts = parts.where(np.arange(len(parts)) < len(records))
    measured = ~records.equals("warmup", True)

    by_workload = {}
    for workload in records.values_of("workload"):
        of_workload = records.equals("workload", workload)
        by_workload[workload] = sum_up(parts.where(measured & of_workload))

    by_stage = {}
    for number, stage in enumerate(run.manifest.stages):
        of_stage = completed_within_mask(records, number, stage.ended_mono_ns)
        by_stage[stage.name] = sum_up(parts.where(measured & of_stage))

    return RunTimeParts(parts, sum_up(parts.where(measured)), by_workload, by_stage)


def _with_probes(run: Run) -> Records:
    """All requests that used the servers.

    Those of the run first, then the probes, which others may have waited for.
    """
    if run.probes is None or not len(run.probes):
        return run.records
    import pyarrow as pa

    return Records(pa.concat_tables([run.records.table, run.probes.table]))


def _slots_by_model(manifest: Manifest) -> dict[str, dict[str, int]]:
    """The slots of each model of a router, by the router's URL."""
    by_host = {}
    for target in manifest.targets:
        slots = target.get("slots_by_model")
        if isinstance(slots, dict) and len(slots) > 1:
            by_host[str(target.get("url"))] = _whole_numbers_of(slots)
    return by_host


def _whole_numbers_of(slots: Mapping[str, object]) -> dict[str, int]:
    found = {}
    for model, count in slots.items():
        if isinstance(count, int) and not isinstance(count, bool) and count > 0:
            found[str(model)] = count
    return found


def _slots_by_host(manifest: Manifest) -> dict[str, int]:
    """The slots of each replica that reports them."""
    by_host = {}
    for target in manifest.targets:
        slots = target.get("slots")
        if isinstance(slots, int) and not isinstance(slots, bool) and slots > 0:
            by_host[str(target.get("url"))] = slots
    return by_host
