"""The telemetry of a run and of its stages, from its series and the figures of its requests."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from llama_load.analysis.figures.measured_telemetry import Measured
from llama_load.analysis.figures.stage_figures import StageFigures
from llama_load.analysis.figures.summary import Summary
from llama_load.analysis.figures.telemetry_figures import (
    TelemetryFigures,
    telemetry_figures,
)
from llama_load.run_folder import Run
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.observed.server_description import ServerDescription
from llama_load.run_folder.observed.window import Window

# CPU, CPU_Mapped, CPU_REPACK, AMX and BLAS are names of llama.cpp for host memory, CUDA_Host for
# the part of it that CUDA reads.
_IN_HOST_MEMORY = re.compile(r"(CPU|AMX|BLAS)|.*_Host$")


def run_telemetry(
    run: Run,
    measured: Records,
    total: Summary,
    window: Window,
    stages: Sequence[StageFigures],
) -> tuple[TelemetryFigures, list[TelemetryFigures]]:
    """The figures of the whole measurement, and of each stage.

    With stages the measurement is all their windows together.
    """
    if not len(run.records):
        return TelemetryFigures(0.0), [TelemetryFigures(0.0) for _ in stages]
    if not stages:
        return _telemetry_in(run, [(window, total)], measured), []

    parts = []
    by_stage = []
    for number, stage in enumerate(stages):
        own_window = stage_window(run, measured, number)
        if own_window is None:
            by_stage.append(TelemetryFigures(0.0))
            continue

        part = (own_window, stage.figures)
        parts.append(part)
        requests = measured.where(measured.equals("stage", number))
        by_stage.append(_telemetry_in(run, [part], requests))

    return _telemetry_in(run, parts, measured), by_stage


def _telemetry_in(
    run: Run, parts: Sequence[tuple[Window, Summary]], requests: Records
) -> TelemetryFigures:
    """Of windows with the figures of each; `requests`: those of all of them."""
    windows = []
    rated = []
    for window, figures in parts:
        windows.append(window)
        rated.append(figures)

    output_tokens = _total_in_windows(rated, "output_throughput")
    all_tokens = _total_in_windows(rated, "total_token_throughput")
    input_tokens = None
    if all_tokens is not None and output_tokens is not None:
        input_tokens = all_tokens - output_tokens

    return telemetry_figures(
        Measured(
            telemetry=run.telemetry,
            windows=windows,
            idle_ns=int(run.records.instants("started_mono_ns").min()),
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            requests=_total_in_windows(rated, "request_throughput"),
            prefill_share=prefill_share(requests),
            price_per_hour=run.manifest.price_per_hour,
            gpus=run.manifest.gpus,
            logged_mib=logged_mib(run.manifest.servers),
        )
    )


def stage_window(run: Run, measured: Records, number: int) -> Window | None:
    """The time that a stage's rates are of; None where nothing was sent.

    Its whole time where that ended it, else from its first start to its last end.
    """
    record = run.manifest.stages[number]
    if (
        record.is_timed
        and record.begun_mono_ns is not None
        and record.ended_mono_ns is not None
    ):
        return Window(record.begun_mono_ns, record.ended_mono_ns, is_cut=True)

    own = measured.where(measured.equals("stage", number))
    if not len(own):
        return None

    first_ns = int(own.instants("started_mono_ns").min())
    last_ns = int(own.instants("ended_mono_ns").max())

    return Window(first_ns, last_ns)


def logged_mib(servers: Sequence[ServerDescription]) -> dict[str, float]:
    """Model, KV and compute buffers by device, MiB, RPC workers' included.

    Not those in the server's own host memory.
    """
    by_device = {}
    for server in servers:
        for buffers in server.buffers:
            if not buffers.total_mib or _IN_HOST_MEMORY.match(buffers.device):
                continue

            name = buffers.device
            if len(servers) > 1:
                name = f"{server.url} {name}"

            by_device[name] = buffers.total_mib

    return by_device


def prefill_share(measured: Records) -> float | None:
    """Σ prefill time / Σ (prefill + decode time), 0 to 1, of the successful requests.

    As llama-server reports them; None where one does not.
    """
    ok = measured.ok()
    prefill_ms = float(ok.numbers("server_prompt_ms").sum())
    decode_ms = float(ok.numbers("server_predict_ms").sum())
    both_ms = prefill_ms + decode_ms
    if not np.isfinite(both_ms) or both_ms <= 0:
        return None

    return prefill_ms / both_ms


def _total_in_windows(parts: Sequence[Summary], rate: str) -> float | None:
    """How many there were in the windows: Σ rate x time. None where a rate is not known."""
    if not parts:
        return None

    total = 0.0
    for part in parts:
        per_s = getattr(part, rate)
        if per_s is None:
            return None

        total += per_s * part.duration_s

    return total
