"""A run that has just ended: judged, and its reports written."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from llama_load.analysis.reports.formats import write_csv
from llama_load.analysis.reports.show import show
from llama_load.analysis.reports.write import (
    RunReports,
    write_html,
    write_junit,
    write_reports,
)
from llama_load.analysis.results.earlier_runs import sent_before
from llama_load.analysis.results.results import analyze
from llama_load.run_folder import Run
from llama_load.run_folder.manifest import write_manifest


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """See `EndedRun`."""

    reports: RunReports

    @property
    def run(self) -> Run:
        """See `EndedRun.run`."""
        return self.reports.results.run

    @property
    def exit_code(self) -> int:
        """See `EndedRun.exit_code`."""
        return self.reports.results.exit_code

    @property
    def summary(self) -> dict[str, Any]:
        """See `EndedRun.summary`."""
        return self.reports.summary

    def show(self, out: TextIO, *, with_block: bool) -> None:
        """See `EndedRun.show`."""
        show(self.reports, out, with_block=with_block)

    def write_html(self) -> str | None:
        """See `EndedRun.write_html`."""
        return write_html(self.reports)

    def write_junit(self, file: Path) -> None:
        """See `EndedRun.write_junit`."""
        write_junit(self.reports.results, file)

    def write_csv(self, file: Path) -> None:
        """See `EndedRun.write_csv`."""
        write_csv(self.run.records, file)


def reported(
    run: Run, started_s: Mapping[str, float], *, has_page: bool
) -> ReportedRun:
    """See `Surroundings.report`."""
    _look_at_earlier_runs(run, started_s)
    return ReportedRun(write_reports(analyze(run), has_page=has_page))


def _look_at_earlier_runs(run: Run, started_s: Mapping[str, float]) -> None:
    """Note in the manifest which prompts were sent before. An unreadable folder is reported and
    otherwise ignored."""
    try:
        run.manifest.prompts_sent_before = sent_before(run.path, run.records, started_s)
        write_manifest(run.path, run.manifest)
    except Exception as error:
        print(
            f"earlier runs next to {run.path} cannot be read: {error}", file=sys.stderr
        )
