"""The probes of a run (--probe-rate) as their figures need them."""

from __future__ import annotations

from llama_load.metrics.probe_figures import ProbedRun, ProbeFigures, probe_figures
from llama_load.observed.records import Records
from llama_load.observed.window import Window
from llama_load.run_folder import Run


def probes_of(run: Run, measured: Records, window: Window) -> ProbeFigures | None:
    """The figures of the probes; None without --probe-rate. Where their file cannot be read, there are no probes in them."""
    manifest = run.manifest
    if manifest.probe_rate_rps is None:
        return None
    return probe_figures(
        run.records.where(~run.records.has("request_id")) if run.probes is None else run.probes,
        ProbedRun(
            rate_rps=manifest.probe_rate_rps,
            requests=run.records,
            measured=measured,
            window=window,
            stages=[(stage.name, stage.begun_mono_ns, stage.ended_mono_ns) for stage in manifest.stages],
            missing=manifest.probes_unwritten,
            skipped=manifest.probes_skipped,
            lost_neighbours=sum(len(gone.possibly_sent) + len(gone.possibly_sent_warmup) for gone in manifest.lost),
        ),
    )
