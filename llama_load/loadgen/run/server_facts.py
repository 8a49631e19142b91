"""What the servers of a run count while it is measured, and what has changed on them since before
it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import TypeVar

import gevent

from llama_load.ground.errors import UsageError
from llama_load.loadgen.preflight.change_rows import differences
from llama_load.loadgen.run.watcher import Watcher
from llama_load.run_folder import Manifest, RunWriter, StageRecord
from llama_load.run_folder.observed.server_counters import (
    RESTARTED,
    SAME_START_S,
    ServerCounters,
)
from llama_load.run_folder.observed.server_description import NO_ANSWER
from llama_load.servers.counters import read_counters
from llama_load.servers.probe import Probe
from llama_load.servers.target import Target
from llama_load.servers.tls import TlsOptions

# How long servers may take to report their counters between two measurements.
COUNTERS_WITHIN_S = 6.0
# Time limit for probing the servers again at the end.
IDENTITY_WITHIN_S = 5.0

T = TypeVar("T")


class CountersWatcher(Watcher):
    """What the servers counted while requests were measured: of a stage, and of all measurements
    together. `read` gives the counters of all servers since their start, added up; None where one
    of them reports none."""

    def __init__(
        self, manifest: Manifest, read: Callable[[], ServerCounters | None]
    ) -> None:
        self._manifest = manifest
        self._read = read
        self._before: ServerCounters | None = None
        self._is_first = True

    def before_measuring(self) -> None:
        """See `Watcher.before_measuring`."""
        self._before = self._read()

    def after_measuring(self, stages: Sequence[StageRecord]) -> None:
        """See `Watcher.after_measuring`. Noted at once: the manifest is written after each
        stage."""
        manifest = self._manifest
        part = self._part()
        if len(stages) == 1:
            stages[0].counters = part
        if self._is_first:
            self._is_first = False
            manifest.counters = part
        elif part is None or manifest.counters is None:
            manifest.counters = None
        else:
            manifest.counters = manifest.counters.plus(part)

    def _part(self) -> ServerCounters | None:
        """The increase in this measurement; None where it is unknown."""
        if self._before is None:
            return None
        after = self._read()
        if after is None:
            return None

        part = after.since(self._before)
        if part is None:
            self._manifest.server_changes.append(RESTARTED)
        return part


def counters_of(targets: Sequence[Target], tls: TlsOptions) -> ServerCounters | None:
    """The sum of the servers' counters; None unless every server has reported them."""
    if not all(target.has_counters for target in targets):
        return None

    calls = [partial(read_counters, target, tls) for target in targets]
    known = []
    for counters in _results_within(COUNTERS_WITHIN_S, calls):
        if counters is None:
            return None
        known.append(counters)
    return reduce(ServerCounters.plus, known)


def _results_within(seconds: float, calls: Sequence[Callable[[], T]]) -> list[T | None]:
    """What these calls return, all at once; None of one that takes longer or fails."""
    jobs = [gevent.spawn(call) for call in calls]
    gevent.joinall(jobs, timeout=seconds)
    gevent.killall(jobs, block=False)
    return [job.value if job.successful() else None for job in jobs]


class IdentityWatcher(Watcher):
    """What has changed on the servers: each is asked at the end of the run what it was asked before
    it."""

    def __init__(self, probes: Sequence[Probe], targets: Sequence[Target]) -> None:
        self._probes = probes
        self._targets = targets

    def facts(self, writer: RunWriter) -> None:
        """See `Watcher.facts`."""
        calls = [
            partial(changes_since, *pair)
            for pair in zip(self._probes, self._targets, strict=True)
        ]
        answers = _results_within(IDENTITY_WITHIN_S, calls)
        for target, changes in zip(self._targets, answers, strict=True):
            name = f"{target.address.url}: " if len(self._targets) > 1 else ""
            for change in [NO_ANSWER] if changes is None else changes:
                writer.manifest.server_changes.append(f"{name}{change}")


def changes_since(probe: Probe, before: Target) -> list[str]:
    """What differs from the probe before the run: `build b7522 -> b7600`, `restarted …`. Raises
    nothing that the server causes."""
    try:
        if gone := probe.unloaded(before):  # asking would load it again
            return [
                f"the router no longer holds {', '.join(gone)}: another model took its place "
                "(--models-max)"
            ]
        now = probe.ask()
    except UsageError as error:
        return [f"{NO_ANSWER}: {error}"]
    return [*_restart(before, now), *differences(before.described(), now.described())]


def _restart(before: Target, now: Target) -> list[str]:
    started_s = before.facts.started_s
    again_s = now.facts.started_s
    if started_s is None or again_s is None or abs(again_s - started_s) <= SAME_START_S:
        return []
    after_s = again_s - started_s - (before.facts.uptime_s or 0.0)
    return [f"restarted during the run, {after_s:.0f} s after its preparation"]
