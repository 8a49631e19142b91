"""Reports of an existing run folder.

They are written again, or only printed while the run goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from llama_load.analysis.reports.block import block
from llama_load.analysis.reports.show import show
from llama_load.analysis.reports.write import write_html, write_reports
from llama_load.analysis.results.results import analyze
from llama_load.ground.errors import UsageError
from llama_load.ground.exit_codes import INCOMPLETE
from llama_load.outside.foreign_text import printable
from llama_load.outside.terminal import announce
from llama_load.run_folder import Run, load_run, lock_folder
from llama_load.run_folder.manifest import RUNNING, read_manifest
from llama_load.run_folder.reading import add_spool, recover

# How long to wait for the folder's lock: of another report or of a run that ends; and of a process
# that recovers a killed run.
FINISHED_WITHIN_S = 60.0
RECOVERED_WITHIN_S = 1.0


def report_again(
    folder: Path,
    spools: Sequence[Path] = (),
    language: str | None = None,
    *,
    with_block: bool = False,
) -> int:
    """Print the results of a run and write its reports; the exit code.

    If its process was killed, the run is finished first. The folder of a run in progress is not
    changed. `language`: of the headings (None: the run's). Raises UsageError and RunError.
    """
    is_running = read_manifest(folder).end == RUNNING
    wait_s = RECOVERED_WITHIN_S if is_running else FINISHED_WITHIN_S
    try:
        lock = lock_folder(folder, wait_s=wait_s)
    except OSError as error:
        raise UsageError(f"cannot open {folder}: {error.strerror}") from None

    if lock is None:
        return _snapshot(folder, spools)

    try:
        run = load_run(folder)
        announce("computing the figures", len(run.records))
        run, fault = _complete(run, spools)
        reports = write_reports(analyze(run), language)
        show(reports, sys.stdout, with_block=with_block)
        announce("writing report.html", len(run.records))
        fault = fault or reports.results.run.unwritten or write_html(reports, language)
    finally:
        lock.release()

    if fault is not None:
        print(f"llama-load: {fault}", file=sys.stderr)
        return INCOMPLETE

    return reports.results.exit_code


def _snapshot(folder: Path, spools: Sequence[Path]) -> int:
    if spools:
        raise UsageError(
            f"the run in {folder} is still in progress; add spools when it has ended"
        )

    results = analyze(load_run(folder))
    print(block(results), end="")
    shown = printable(str(folder), None)
    print(
        f"Run folder: {shown}. Another process is writing it: "
        "this is a snapshot, and nothing in the folder was changed."
    )

    return results.exit_code


def _complete(run: Run, spools: Sequence[Path]) -> tuple[Run, str | None]:
    """The run with the records of spools, and recovered if it was killed.

    And the error message where the folder cannot be written.
    """
    try:
        for spool in spools:
            run, added = add_spool(run, spool)
            print(f"{added} requests added from {spool}", file=sys.stderr)

        if run.recovered:
            run = recover(run)
    except OSError as error:
        why = error.strerror or error
        return run, f"cannot write to {run.path}: {why}; nothing in it was changed"

    return run, None
