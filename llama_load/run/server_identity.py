"""Whether a server has changed during the run: it is probed again at the end."""

from __future__ import annotations

from llama_load.errors import UsageError
from llama_load.observed.server_counters import SAME_START_S
from llama_load.observed.server_description import NO_ANSWER
from llama_load.preflight.checks import differences
from llama_load.targets.probe import Probe
from llama_load.targets.target import Target


def changes_since(probe: Probe, before: Target) -> list[str]:
    """What differs from the probe before the run: `build b7522 -> b7600`, `restarted …`. Raises nothing that the server causes."""
    try:
        if gone := probe.unloaded(before):  # asking would load it again
            return [f"the router no longer holds {', '.join(gone)}: another model took its place (--models-max)"]
        now = probe.ask()
    except UsageError as error:
        return [f"{NO_ANSWER}: {error}"]
    return [*_restart(before, now), *differences(before.described(), now.described())]


def _restart(before: Target, now: Target) -> list[str]:
    started_s, again_s = before.facts.started_s, now.facts.started_s
    if started_s is None or again_s is None or abs(again_s - started_s) <= SAME_START_S:
        return []
    after_s = again_s - started_s - (before.facts.uptime_s or 0.0)
    return [f"restarted during the run, {after_s:.0f} s after its preparation"]
