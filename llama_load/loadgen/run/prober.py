"""Sends probes beside the load (--probe-rate), and a few before it, while the server is idle. They
are in no count of the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count

from llama_load.ground.units import NS_PER_S, s_to_ns
from llama_load.loadgen.preflight.prepare import Prepared
from llama_load.loadgen.run.run_clock import Task
from llama_load.loadgen.run.watcher import LoopWatcher, RunUnderWay
from llama_load.loadgen.schedule.schedule import probe_times_s
from llama_load.loadgen.users.probe_sender import ProbeSender
from llama_load.run_folder import RunWriter, StageRecord
from llama_load.run_folder.observed.probe_names import ALONE, BESIDE, SETTLING
from llama_load.run_folder.probe_file import ProbeJournal

# Probes of each server before the load, one after the other. The first is discarded: it opens the
# way.
ALONE_PROBES = 9
# A server that answers slowly gets fewer of them.
ALONE_WITHIN_S = 30.0
# After a measurement, probes in flight have this long to end: the servers' counters are read next.
ENDED_WITHIN_S = 5.0
LOOK_EVERY_S = 0.02


class Prober(LoopWatcher):
    """Sends probes at their scheduled times while requests are measured, to all servers in turn,
    however many are in flight."""

    def __init__(
        self,
        run: RunUnderWay,
        rate_rps: float,
        seed: int,
        servers: int,
        *,
        sender: ProbeSender,
        journal: ProbeJournal,
    ) -> None:
        super().__init__(run)
        self._rate_rps = rate_rps
        self._seed = seed
        self._servers = servers
        self._sender = sender
        self._journal = journal
        self._numbers = count()
        self._in_flight: Counter[int] = Counter()
        self._is_first = True
        self._pauses = False
        self._skipped = 0

    def in_flight(self, replica: int) -> int:
        """Probes that this server has to answer now."""
        return self._in_flight[replica]

    def before_measuring(self) -> None:
        """See `Watcher.before_measuring`. The first time: probe the idle servers. (The warm-up is
        over then, if there is one.)"""
        if self._is_first:
            self._is_first = False
            end_s = self.run.clock.now_s + ALONE_WITHIN_S
            for replica in range(self._servers):
                self._probe_alone(replica, end_s)
        self._pauses = False

    def after_measuring(self, stages: Sequence[StageRecord]) -> None:
        """See `Watcher.after_measuring`. Nothing is in flight when the counters are read."""
        self._pauses = True
        self._wait(ENDED_WITHIN_S)

    def stop(self) -> None:
        """See `Watcher.stop`."""
        super().stop()
        self._sender.close()
        self._wait(1.0)  # for the records of those that were cut

    def facts(self, writer: RunWriter) -> None:
        """See `Watcher.facts`."""
        writer.manifest.probes_skipped = self._skipped
        writer.manifest.probes_unwritten = self._journal.close()

    def _watch(self) -> None:
        clock = self.run.clock
        interval_ns = s_to_ns(1 / self._rate_rps)
        begun_ns = clock.now_ns()
        for at_s in probe_times_s(self._rate_rps, self._seed):
            scheduled_ns = begun_ns + s_to_ns(at_s)
            clock.sleep(max(0.0, (scheduled_ns - clock.now_ns()) / NS_PER_S))
            if self.run.end_reason is not None:
                return
            if self._pauses or not self.run.dispatcher.assigner.measuring:
                continue
            # this process stood still: no burst of what it missed
            if clock.now_ns() - scheduled_ns > interval_ns:
                self._skipped += 1
                continue
            self._begin(BESIDE, scheduled_ns=scheduled_ns)

    def _begin(
        self, name: str, replica: int | None = None, scheduled_ns: int | None = None
    ) -> Task:
        number = next(self._numbers)
        replica = number % self._servers if replica is None else replica
        self._in_flight[replica] += 1
        return self.run.clock.spawn(self._probe, number, replica, name, scheduled_ns)

    def _probe(
        self, number: int, replica: int, name: str, scheduled_ns: int | None
    ) -> None:
        try:
            record = self._sender.send(number, replica, name, scheduled_ns)
        finally:
            self._in_flight[replica] -= 1
        self._journal.add(record)

    def _probe_alone(self, replica: int, end_s: float) -> None:
        for number in range(1 + ALONE_PROBES):
            left_s = end_s - self.run.clock.now_s
            if left_s <= 0 or self.run.end_reason is not None:
                return
            self._begin(ALONE if number else SETTLING, replica)
            if not self._wait(left_s):
                self._sender.close()

    def _wait(self, within_s: float) -> bool:
        """Wait until no probe is in flight; False: some still are."""
        clock = self.run.clock
        end_s = clock.now_s + within_s
        while self._in_flight.total() and clock.now_s < end_s:
            clock.sleep(LOOK_EVERY_S)
        return not self._in_flight.total()


def prober(prepared: Prepared, run: RunUnderWay, rate_rps: float) -> Prober:
    """A prober of this run's servers, in this process: the only one, or the swarm's master."""
    options = prepared.options
    writer = prepared.writer
    sender = ProbeSender(
        prepared.targets, prepared.body_options, options.timeouts, options.tls, "prober"
    )
    return Prober(
        run,
        rate_rps,
        options.seed,
        len(prepared.targets),
        sender=sender,
        journal=ProbeJournal(writer.path),
    )
