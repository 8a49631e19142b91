"""The watchers of a run, by its options."""

from __future__ import annotations

from functools import partial

from llama_load.loadgen.preflight.prepare import Prepared
from llama_load.loadgen.run.end_below_watcher import end_below_watcher
from llama_load.loadgen.run.end_watchers import AbortWatcher, IdleWatcher
from llama_load.loadgen.run.hang_ups_watcher import hang_ups_watcher, no_probes
from llama_load.loadgen.run.host import RunHost
from llama_load.loadgen.run.live_sampler import LiveSampler
from llama_load.loadgen.run.prober import ALONE_WITHIN_S, prober
from llama_load.loadgen.run.server_controls_watcher import ServerControlsWatcher
from llama_load.loadgen.run.server_facts import (
    CountersWatcher,
    IdentityWatcher,
    counters_of,
)
from llama_load.loadgen.run.servers_watcher import ServersWatcher
from llama_load.loadgen.run.telemetry_process import TelemetryRun
from llama_load.loadgen.run.until_watcher import until_watcher
from llama_load.loadgen.run.watcher import RunUnderWay, Watcher


def watchers_of(prepared: Prepared, host: RunHost, run: RunUnderWay) -> list[Watcher]:
    """In the order of their starts: the sampler of telemetry first, because it needs a while."""
    options = prepared.options
    targets = prepared.targets
    telemetry = TelemetryRun(prepared)
    patience_s = 0.0
    scheduled_s = prepared.load.segments[0].scheduled_s
    if scheduled_s is not None:
        patience_s += float(scheduled_s[0])

    # Before the counters: probes alone are sent before these are read, and none is in flight when
    # they are read again.
    probes = []
    if options.probe_rate_rps is not None:
        probes.append(prober(prepared, run, options.probe_rate_rps))
        patience_s += ALONE_WITHIN_S

    controls = []
    if options.reset_prefix_cache or options.profile_server:
        controls.append(
            ServerControlsWatcher(
                run,
                targets,
                options.tls,
                resets_cache=options.reset_prefix_cache,
                profiles=options.profile_server,
            )
        )

    watchers: list[Watcher] = [
        *probes,
        *controls,
        telemetry,
        CountersWatcher(
            prepared.writer.manifest, partial(counters_of, targets, options.tls)
        ),
        IdleWatcher(run, host.sending, prepared.load.run_time_s, patience_s),
        LiveSampler(
            run, host, [target.address.url for target in targets], telemetry.live
        ),
        ServersWatcher(run, prepared.local_servers, options.server_grace_s),
        IdentityWatcher(prepared.probes, targets),
    ]
    if options.hang_ups is not None:
        in_flight = probes[0].in_flight if probes else no_probes
        watchers.append(
            hang_ups_watcher(run, targets, options.hang_ups, options.tls, in_flight)
        )
    if options.goals.abort_if:
        watchers.append(AbortWatcher(run, options.goals.abort_if))
    for watcher in (until_watcher(prepared, run), end_below_watcher(prepared, run)):
        if watcher is not None:
            watchers.append(watcher)
    return watchers
