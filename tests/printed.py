"""What the commands of the documentation print: recordings, rendered by the code as it is. python
-m tests.printed NAME shows one."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from functools import cache
from pathlib import Path

os.environ.setdefault("LOCUST_SKIP_MONKEY_PATCH", "1")

from llama_load.analysis.reports.block import block
from llama_load.analysis.reports.first_screen import first_screen
from llama_load.analysis.reports.show import show
from llama_load.analysis.reports.write import RunReports
from llama_load.analysis.results.results import Results, analyze
from llama_load.loadgen.preflight.prepare import print_table
from llama_load.run_folder import load_run
from scripts.record_printed import PRINTED

COLUMNS = "80"


@cache
def analyzed(name: str) -> Results:
    """A recorded run; all tests of a process share it, and none changes it."""
    return analyze(load_run(PRINTED / name))


def printed(name: str) -> str:
    """What the command of this recording prints, the table before the run included."""
    if (text := PRINTED / f"{name}.txt").exists():
        return text.read_text(encoding="utf-8")
    results = analyzed(name)
    manifest = results.run.manifest
    out = io.StringIO()
    with contextlib.redirect_stderr(out):
        print_table(manifest.preflight)
    show(RunReports(results, block(results), {}, first_screen(results)), out)
    return out.getvalue().replace(
        str(PRINTED / name),
        f"runs/{manifest.date}-{manifest.label or manifest.workload}",
    )


if __name__ == "__main__":
    os.environ["COLUMNS"] = COLUMNS
    for recording in sys.argv[1:] or sorted(
        path.stem for path in Path(PRINTED).iterdir()
    ):
        print(printed(recording))
