"""The steady part of a run with its figures, and the drift of a long run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from llama_load.metrics.checks.same import observed
from llama_load.metrics.evidence import Evidence
from llama_load.metrics.gpu_identity import vram_series
from llama_load.metrics.slo import Slo
from llama_load.metrics.soak import Soak, soak
from llama_load.metrics.stage_figures import with_window_rates
from llama_load.metrics.steady import SteadyPart, steady_part
from llama_load.metrics.summary import Summary, summarize
from llama_load.observed.telemetry_series import Series, Telemetry
from llama_load.observed.window import Window
from llama_load.units import ns_to_s


@dataclass(frozen=True, slots=True)
class SteadyFigures:
    """The steady part of a run."""

    part: SteadyPart
    figures: Summary | None  # of its requests; rates of all that happened in its time; None without a steady part
    origin_ns: int  # from which the run's seconds are counted

    def seconds(self, instant_ns: int | None) -> float | None:
        """An instant in seconds of the run."""
        return None if instant_ns is None else ns_to_s(instant_ns - self.origin_ns)


def steady_figures(evidence: Evidence, slos: tuple[Slo, ...]) -> SteadyFigures | None:
    """The steady part of a run whose configured load was constant; None for others."""
    records = evidence.records
    if not evidence.is_steady or not len(records):
        return None
    started_ns = records.instants("started_mono_ns")
    is_open = evidence.gap_ms is not None and bool(records.has("scheduled_mono_ns").all())
    at_ns = records.instants("scheduled_mono_ns") if is_open else started_ns
    part = steady_part(
        started_ns,
        records.instants("ended_mono_ns"),
        np.where(records.numbers("turn") > 1, np.nan, records.numbers("tpot_ms")),
        scheduled_ns=at_ns if is_open else None,
        concurrency=None if is_open else evidence.users,
    )
    figures = None
    if part.begin_ns is not None and part.end_ns is not None:
        window = Window(part.begin_ns, part.end_ns, is_cut=True)
        own = summarize(records.where(part.holds(at_ns)), evidence.percentiles, slos)
        figures = with_window_rates(own, records, window, slos)
    return SteadyFigures(part, figures, int(at_ns.min()))


def soak_of(evidence: Evidence, telemetry: Telemetry) -> Soak | None:
    """The drift of a run of an hour or more under constant load; None for others."""
    if not evidence.is_steady or not len(evidence.records):
        return None
    return soak(observed(evidence), dict(_memory(telemetry)))


def _memory(telemetry: Telemetry) -> Sequence[tuple[str, Series]]:
    """The memory of the servers' processes and of the GPUs, by the names to show."""
    servers = telemetry.find("server_memory_bytes")
    named = [(f"server memory {server.source}" if len(servers) > 1 else "server memory", server) for server in servers]
    for gpu_memory in telemetry.find("gpu_memory_used_bytes"):
        gpu = gpu_memory.labels.get("gpu", "")
        vram = vram_series(telemetry, gpu_memory.source, gpu)
        if vram is not None:
            named.append((f"VRAM {gpu_memory.source} {gpu}".rstrip(), vram))
    return named
