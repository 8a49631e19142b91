"""Servers' counters that dropped while requests were measured.

The process behind them was restarted. The counters of a run are read before and after it. A process
that was killed and started again in between, such as that of a router's model, may have counted
more than before by then: only the samples of telemetry show that it began again at 0.
"""

from __future__ import annotations

from dataclasses import replace

from llama_load.run_folder import Run
from llama_load.run_folder.observed.server_counters import RESTARTED
from llama_load.run_folder.observed.telemetry_series import Series
from llama_load.run_folder.observed.window import Window
from llama_load.servers.kinds import kind_named


def without_resets(run: Run) -> Run:
    """The run without counters of restarted processes, of the whole run and of each stage.

    The restart is among the changes of the servers.
    """
    manifest = run.manifest
    measured = run.records.measured()
    if not len(measured):
        return run

    begun_ns = int(measured.instants("started_mono_ns").min())
    ended_ns = int(measured.instants("ended_mono_ns").max())
    whole = Window(begun_ns, ended_ns)
    dropped = []
    for series in run.telemetry.series:
        if _is_token_counter(series, manifest.targets) and series.resets(whole):
            dropped.append(series)

    if not dropped:
        return run

    stages = []
    for stage in manifest.stages:
        window = Window(
            stage.begun_mono_ns or begun_ns, stage.ended_mono_ns or ended_ns
        )
        if any(series.resets(window) for series in dropped):
            stage = replace(stage, counters=None)

        stages.append(stage)

    changes = list(dict.fromkeys([*manifest.server_changes, RESTARTED]))
    changed = replace(manifest, counters=None, stages=stages, server_changes=changes)

    return replace(run, manifest=changed)


def _is_token_counter(series: Series, targets: list[dict[str, object]]) -> bool:
    """Whether this counts the tokens of prompts or answers that a server of the run processes."""
    for target in targets:
        metrics = kind_named(str(target.get("backend"))).metrics
        if metrics is None:
            continue

        for name in (metrics.prompt_tokens, metrics.output_tokens):
            if name and series.metric == f"{metrics.prefix}{name}_total":
                return True

    return False
