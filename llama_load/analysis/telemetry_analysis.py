"""The telemetry of a run and of its stages, from its series and the figures of its requests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain

import numpy as np

from llama_load.metrics.measured_telemetry import Measured
from llama_load.metrics.stage_figures import StageFigures
from llama_load.metrics.summary import Summary
from llama_load.metrics.telemetry_figures import TelemetryFigures, telemetry_figures
from llama_load.observed.records import Records
from llama_load.observed.server_description import ServerDescription
from llama_load.observed.window import Window
from llama_load.run_folder import Run

# CPU, CPU_Mapped, CPU_REPACK, AMX and BLAS are names of llama.cpp for host memory, CUDA_Host for the part of it that CUDA reads.
_IN_HOST_MEMORY = re.compile(r"(CPU|AMX|BLAS)|.*_Host$")


def run_telemetry(
    run: Run, measured: Records, total: Summary, window: Window, stages: Sequence[StageFigures]
) -> tuple[TelemetryFigures, list[TelemetryFigures]]:
    """The figures of the whole measurement (with stages: of all their windows together), and of each stage."""
    if not len(run.records):
        return TelemetryFigures(0.0), [TelemetryFigures(0.0) for _ in stages]
    idle_ns, logged = int(run.records.instants("started_mono_ns").min()), logged_mib(run.manifest.servers)

    def figures(parts: Sequence[tuple[Window, Summary]], requests: Records) -> TelemetryFigures:
        """Of windows with the figures of each; `requests`: those of all of them."""
        rated = [part for _, part in parts]
        output_tokens, all_tokens = _within(rated, "output_throughput"), _within(rated, "total_token_throughput")
        return telemetry_figures(
            Measured(
                telemetry=run.telemetry,
                windows=[window for window, _ in parts],
                idle_ns=idle_ns,
                input_tokens=None if all_tokens is None or output_tokens is None else all_tokens - output_tokens,
                output_tokens=output_tokens,
                requests=_within(rated, "request_throughput"),
                prefill_share=prefill_share(requests),
                price_per_hour=run.manifest.price_per_hour,
                logged_mib=logged,
            )
        )

    if not stages:
        return figures([(window, total)], measured), []
    windows = [stage_window(run, measured, number) for number in range(len(stages))]
    parts = [[] if own is None else [(own, stage.figures)] for own, stage in zip(windows, stages, strict=True)]
    by_stage = [
        figures(part, measured.where(measured.equals("stage", number))) if part else TelemetryFigures(0.0)
        for number, part in enumerate(parts)
    ]
    return figures(list(chain.from_iterable(parts)), measured), by_stage


def stage_window(run: Run, measured: Records, number: int) -> Window | None:
    """The time that a stage's rates are of: its whole time where that ended it, else from its first start to its last end. None
    where nothing was sent."""
    record = run.manifest.stages[number]
    if record.is_timed and record.begun_mono_ns is not None and record.ended_mono_ns is not None:
        return Window(record.begun_mono_ns, record.ended_mono_ns, is_cut=True)
    own = measured.where(measured.equals("stage", number))
    if not len(own):
        return None
    return Window(int(own.instants("started_mono_ns").min()), int(own.instants("ended_mono_ns").max()))


def logged_mib(servers: Sequence[ServerDescription]) -> dict[str, float]:
    """Model, KV and compute buffers by device, MiB, RPC workers' included; not those in the server's own host memory."""
    return {
        f"{server.url} {buffers.device}" if len(servers) > 1 else buffers.device: buffers.total_mib
        for server in servers
        for buffers in server.buffers
        if buffers.total_mib and not _IN_HOST_MEMORY.match(buffers.device)
    }


def prefill_share(measured: Records) -> float | None:
    """Σ prefill time / Σ (prefill + decode time), 0 to 1, of the successful requests, as llama-server reports them; None where one
    does not."""
    ok = measured.ok()
    prefill, decode = float(ok.numbers("server_prompt_ms").sum()), float(ok.numbers("server_predict_ms").sum())
    whole = prefill + decode
    return prefill / whole if np.isfinite(whole) and whole > 0 else None


def _within(parts: Sequence[Summary], rate: str) -> float | None:
    """How many there were in the windows: Σ rate x time."""
    rates = [(getattr(part, rate), part.duration_s) for part in parts]
    return None if not rates or any(number is None for number, _ in rates) else float(sum(number * s for number, s in rates))
