"""--end-below during a run: counts the requests that missed the objectives, until the share can no
longer be reached."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from llama_load.loadgen.preflight.prepare import Prepared
from llama_load.loadgen.run.watcher import RunUnderWay, Watcher, report_end
from llama_load.run_folder import RunWriter
from llama_load.run_folder.observed.record import OK, UNFINISHED
from llama_load.run_folder.vocabulary.definitions import BY_KEY
from llama_load.run_folder.vocabulary.slo import Slo


class EndBelowWatcher(Watcher):
    """Ends a run of `total` measured requests, of which `share` must meet all objectives, once that
    is out of reach.

    Of 100 requests with a share of 0.9, the eleventh that misses decides: whatever the others do,
    89 meet at most. The bound is exact, so that a run which it ends would have missed the share in
    any case.
    """

    def __init__(
        self, run: RunUnderWay, slos: Sequence[Slo], share: float, total: int
    ) -> None:
        self._run = run
        self._limits = [(BY_KEY[slo.metric].columns, slo.limit_ms) for slo in slos]
        self.columns = ("warmup", "status")
        for names, _ in self._limits:
            self.columns += tuple(names)
        self._share = share
        self._total = total
        self._missed = 0
        self._shortfall: str | None = None

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        """See `Watcher.add`."""
        for row in rows:
            self._missed += self._misses(dict(zip(self.columns, row, strict=True)))
        allowed = self._total - self._total * self._share
        if self._missed > allowed + 1e-9 and self._run.end_reason is None:
            missed = f"{self._missed} of {self._total} requests missed the objectives"
            self._shortfall = (
                f"{missed}: {100 * self._share:g} % can no longer meet them"
            )
            report_end(f"--end-below: {self._shortfall}")
            self._run.end_early()

    def facts(self, writer: RunWriter) -> None:
        """See `Watcher.facts`."""
        writer.manifest.ended_below = self._shortfall

    def _misses(self, record: dict[str, Any]) -> bool:
        """A failed request misses; a latency that a request does not have (TPOT of one token) is
        met, as in `run_folder.vocabulary.slo`."""
        if record["warmup"] or record["status"] in UNFINISHED:
            return False
        if record["status"] != OK:
            return True

        for names, limit_ms in self._limits:
            parts = [record[name] for name in names]
            if None not in parts and sum(parts) > limit_ms:
                return True
        return False


def end_below_watcher(prepared: Prepared, run: RunUnderWay) -> EndBelowWatcher | None:
    """The watcher of a run with --end-below."""
    goals = prepared.options.goals
    total = prepared.load.segments[0].total
    if goals.end_below is None or total is None:
        return None
    return EndBelowWatcher(run, goals.slos, goals.end_below, total)
