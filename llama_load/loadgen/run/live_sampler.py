"""What is in flight, and the gauges of the live page, sampled while a run goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from llama_load.loadgen.dispatch.leases import Lease
from llama_load.loadgen.live.groups import GroupKey
from llama_load.loadgen.run.host import RunHost
from llama_load.loadgen.run.live_meters import present_values
from llama_load.loadgen.run.live_telemetry import LiveTelemetry
from llama_load.loadgen.run.watcher import LoopWatcher, RunUnderWay
from llama_load.run_folder.observed.record import RequestRecord

if TYPE_CHECKING:
    import pyarrow as pa

# Half the width of the shortest steps of `TimeSeries`, so that none is left out.
SAMPLE_EVERY_S = 0.5


class LiveSampler(LoopWatcher):
    """Adds each record to the live figures, and twice a second what is in flight on the servers at
    `urls`."""

    every_s = SAMPLE_EVERY_S

    def __init__(
        self,
        run: RunUnderWay,
        host: RunHost,
        urls: Sequence[str],
        telemetry: LiveTelemetry,
    ) -> None:
        super().__init__(run)
        self._host = host
        self._urls = urls
        self._telemetry = telemetry

    def add_record(self, record: RequestRecord) -> None:
        """See `Watcher.add_record`."""
        self.run.live.add(record)

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """See `Watcher.add_batch`."""
        self.run.live.add_batch(batch)

    def look(self) -> None:
        """See `LoopWatcher.look`."""
        leases = self.run.dispatcher.ledger.requests_under_way()
        by_group = Counter(
            GroupKey(lease.workload, lease.stage, self._urls[lease.replica])
            for lease in leases
        )
        measured = [lease.stage for lease in leases if not lease.warmup]
        if measured:
            self.run.live.stage_begins(max(measured))

        gauges: dict[str, float] = {
            "in_flight": len(leases),
            "waiting": self.run.dispatcher.assigner.overdue,
            "users": self._host.users_asked(),
            "workers": self._host.workers(),
        }
        conversations = sum(_is_of_conversation(lease) for lease in leases)
        if conversations:
            gauges["conversations"] = conversations

        gauges |= self._host.gauges() | present_values(self._telemetry.series())
        self.run.live.sample(self.run.phase, by_group, gauges)

    def stop(self) -> None:
        """See `Watcher.stop`."""
        super().stop()
        self.run.live.sample("ended", {}, {})

    def _watch(self) -> None:
        while True:  # also while the last requests end
            self.look()
            self.run.clock.sleep(self.every_s)


def _is_of_conversation(lease: Lease) -> bool:
    return lease.prompt is not None and (lease.prompt.turns or 1) > 1
