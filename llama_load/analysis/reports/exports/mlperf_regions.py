"""The points of MLPerf Endpoints, and the region of each point.

A point is the throughput of the system against tokens/s of one user. They are those of a folder of
closed-loop runs, such as that of a search over users. Formulas and regions: MLPerf Endpoints'
submission rules 4.1 and 5.5 as endpoints-submission-cli 1.5 has them
(submission_checker/models/regions.py, models/file/point_summary.py):

    system_tps      output tokens / duration
    tps_per_user    1000 / p90 of TPOT in ms
    regions         with C_max the most and C_min the fewest users, s = log2(C_max - C_min) / 3:
                    low latency up to C_min, low concurrency up to C_min + 2^s,
                    medium up to C_min + 2^2s, high up to C_max (halves are rounded to even)

It makes no submission: that has rules on systems, data sets and accuracy that no client can know.
What a point lacks is in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from llama_load.analysis.reports.exports.export_samples import (
    latency_sample,
    ok_records,
)
from llama_load.analysis.results.results import Results, analyze
from llama_load.ground.errors import UsageError
from llama_load.ground.units import NS_PER_MS, NS_PER_S
from llama_load.run_folder import MANIFEST, load_run
from llama_load.run_folder.observed.records import Records

MOST_RUNS = 1000
# Concurrency up to which a point counts as ultra low; C_max must be beyond it, C_min within it.
ULTRA_LOW = 32
# The least durations of points up to it and beyond it (section 6.2).
SHORT_MS = 600_000
LONG_MS = 1_200_000
_PERCENTILES = (50.0, 90.0, 95.0, 99.0)


def regions_json(folder: Path) -> dict[str, Any]:
    """The points of the runs in this folder by concurrency, and the bounds of the regions.

    Raises UsageError, RunError.
    """
    manifests = sorted(islice(folder.glob(f"**/{MANIFEST}"), MOST_RUNS + 1))
    if not manifests:
        raise UsageError(
            f"{folder} contains no run folder: "
            "name the folder of a search, or one with runs of several -u"
        )

    if len(manifests) > MOST_RUNS:
        raise UsageError(
            f"{folder} contains over {MOST_RUNS} runs: name a folder with fewer"
        )

    points = []
    left_out: dict[str, int] = {}
    for manifest in manifests:
        results = analyze(load_run(manifest.parent))
        why = _why_no_point(results)
        if why:
            left_out[why] = left_out.get(why, 0) + 1
        else:
            points.append(_point(results))

    points.sort(key=lambda point: point["concurrency"])
    bounds, why = region_bounds([point["concurrency"] for point in points])
    for point in points:
        point["region"] = region_of(point["concurrency"], bounds)

    return {
        "benchmark": "MLPerf Endpoints",
        "is_submission": False,
        "regions": bounds,
        "no_regions_because": why or None,
        "points": points,
        "runs_left_out": left_out,
    }


def region_bounds(levels: Sequence[int]) -> tuple[dict[str, list[int]], str]:
    """Of each region its first and last concurrency; or no region, and why."""
    if not levels:
        return {}, "there is no point"

    least = min(levels)
    most = max(levels)
    if most <= ULTRA_LOW:
        return {}, f"the most users are {most}; regions need over {ULTRA_LOW}"
    if least > ULTRA_LOW:
        return (
            {},
            f"the fewest users are {least}; regions need a point of at most {ULTRA_LOW}",
        )

    step = math.log2(most - least) / 3
    low = round(least + 2**step)
    medium = round(least + 2 ** (2 * step))
    bounds = {
        "low_latency": [1, least],
        "low_concurrency": [least + 1, low],
        "med_concurrency": [low + 1, medium],
        "high_concurrency": [medium + 1, most],
    }

    return bounds, ""


def region_of(level: int, bounds: dict[str, list[int]]) -> str | None:
    """The region of a concurrency; None where there are none."""
    for name, (first, last) in bounds.items():
        if first <= level <= last:
            return name
    return None


def _why_no_point(results: Results) -> str:
    manifest = results.run.manifest
    total = results.total
    if manifest.arrival is not None:
        return "an open loop has no concurrency"
    if manifest.stages:
        return "runs in stages"
    if not total.completed or total.total_output_tokens is None:
        return "no request was answered, or its tokens are unknown"

    return ""


def _point(results: Results) -> dict[str, Any]:
    manifest = results.run.manifest
    total = results.total
    ok = ok_records(results)
    tpot_ms = _p90(ok, "tpot")
    least_ms = SHORT_MS if manifest.users <= ULTRA_LOW else LONG_MS
    duration_ms = total.duration_s * 1e3
    system_tps = (
        total.known_output_tokens / total.duration_s if total.duration_s else None
    )

    return {
        "concurrency": manifest.users,
        "region": None,
        "system_tps": system_tps,
        "tps_per_user": 1e3 / tpot_ms if tpot_ms else None,
        "ttft_p90_ms": _p90(ok, "ttft"),
        "tpot_p90_ms": tpot_ms,
        "duration_ms": duration_ms,
        "min_duration_ms": least_ms,
        "is_long_enough": duration_ms >= least_ms,
        "verdict": results.verdict.shown,
        "headline": results.verdict.headline,
        "run": results.run.path.name,
        "results_summary": _summary(results, ok),
    }


def _p90(ok: Records, key: str) -> float | None:
    sample = latency_sample(ok, key)
    if sample is None:
        return None
    return sample.of.percentile(90.0)


def _summary(results: Results, ok: Records) -> dict[str, Any]:
    """A point in the shape of its results_summary.json, whose times are in ns."""
    total = results.total
    output = ok.numbers("output_tokens")
    return {
        "n_samples_issued": total.completed
        + total.failed
        + total.cancelled
        + total.aborted,
        "n_samples_completed": total.completed,
        "n_samples_failed": total.failed,
        "duration_ns": total.duration_s * NS_PER_S,
        "ttft": _spread(ok.numbers("ttft_ms") * NS_PER_MS),
        "tpot": _spread(ok.numbers("tpot_ms") * NS_PER_MS),
        "latency": _spread(ok.numbers("e2el_ms") * NS_PER_MS),
        "output_sequence_lengths": _spread(output),
    }


def _spread(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> dict[str, Any]:
    known = values[np.isfinite(values)]
    percentiles = {}
    if len(known):
        for p in _PERCENTILES:
            percentiles[f"{p:g}"] = float(np.percentile(known, p))
    return {"total": float(known.sum()), "percentiles": percentiles}
