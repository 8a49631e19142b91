"""What runs are handed: reports, and pages, which are imported only where there is one."""

from __future__ import annotations

from collections.abc import Mapping

from llama_load.analysis.reports.ended_run import reported
from llama_load.loadgen.live.run_metrics import RunMetrics
from llama_load.loadgen.swarm.lifecycle import Lifecycle
from llama_load.loadgen.swarm.surroundings import EndedRun, Guard
from llama_load.run_folder import Run


class ReportsAndPages:
    """See `Surroundings`."""

    def report(
        self, run: Run, started_s: Mapping[str, float], *, has_page: bool
    ) -> EndedRun:
        """See `Surroundings.report`."""
        return reported(run, started_s, has_page=has_page)

    def open_pages(self, runs: Lifecycle) -> Guard:
        """See `Surroundings.open_pages`."""
        from llama_load.page.open_pages import open_pages

        return open_pages(runs)

    def serve_metrics(
        self, address: tuple[str, int], metrics: RunMetrics, token: str | None
    ) -> None:
        """See `Surroundings.serve_metrics`."""
        from llama_load.page.metrics_page import serve_metrics

        serve_metrics(address, metrics, token)
