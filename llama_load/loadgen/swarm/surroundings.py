"""What a run is handed, because it knows neither reports nor pages: whoever starts runs hands it in
(`llama_load.cli.reports_and_pages`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TextIO

from llama_load.run_folder import Run


class EndedRun(Protocol):
    """The results of a run, whose reports are in its folder."""

    @property
    def run(self) -> Run:
        """Its records; `unwritten` says why the folder is incomplete."""

    @property
    def exit_code(self) -> int:
        """Of the process."""

    @property
    def summary(self) -> dict[str, Any]:
        """summary.json."""

    def show(self, out: TextIO, *, with_block: bool) -> None:
        """Print the results."""

    def write_html(self) -> str | None:
        """Write report.html; a sentence if that failed."""

    def write_junit(self, file: Path) -> None:
        """Write the thresholds as JUnit XML. Raises OSError."""

    def write_csv(self, file: Path) -> None:
        """Write a row per request. Raises OSError."""


class Guard(Protocol):
    """Decides what the form of the page may set."""

    def check(self, options: Any, host: str | None) -> None:
        """Raises UsageError for paths and servers that the form may not set."""


class Surroundings(Protocol):
    """Reports and pages. All of it is called on the side that controls the run."""

    def report(
        self, run: Run, started_s: Mapping[str, float], *, has_page: bool
    ) -> EndedRun:
        """The run has ended: judge it and write its reports but report.html. `started_s`: when each
        server was started (Unix time), by its URL, if known; `has_page`: there will be a
        report.html."""

    def open_pages(self, runs: Any) -> Guard:
        """Add our pages to Locust's."""

    def serve_metrics(
        self, address: tuple[str, int], metrics: Any, token: str | None
    ) -> None:
        """Serve /metrics at an address of its own. Raises UsageError."""
