"""What the tests cost: runs the default tests with `tests/costs.py` and writes the table of
benchmarks/test_costs.md.

    python -m scripts.test_costs [PYTEST ARGUMENTS…]
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PAGE = Path(__file__).resolve().parent.parent / "benchmarks" / "test_costs.md"
TESTS = ("-n", "3", "--dist", "worksteal", "-m", "not heavy and not timing", "tests")
DEAREST = 100
PAGE_WIDTH = 120
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
BEGIN = "<!-- from scripts/test_costs.py -->\n"


@dataclass(frozen=True)
class Cost:
    """CPU seconds of a test."""

    name: str
    own_s: float
    started_s: float
    started: Sequence[str]

    @property
    def total_s(self) -> float:
        """Both."""
        return self.own_s + self.started_s


def costs_in(folder: Path) -> list[Cost]:
    """What the processes of pytest have written, the dearest first."""
    lines = [
        line
        for file in folder.iterdir()
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    costs = [Cost(*json.loads(line)) for line in lines]
    return sorted(costs, key=lambda cost: -cost.total_s)


def adopt_orphans() -> None:
    """From now on: a server of forks ends after the process of pytest that started it."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def run_to_the_last(command: Sequence[str], **how: Any) -> tuple[int, float, float]:
    """The exit code of a command, its CPU seconds with those of the processes that it waited for,
    and those of its orphans. Each is waited for when it ends, as init would."""
    process = subprocess.Popen(command, **how)
    code = 0
    own_s = 0.0
    orphans_s = 0.0
    with suppress(ChildProcessError):  # none is left
        while True:
            pid, status, used = os.wait4(-1, 0)
            used_s = used.ru_utime + used.ru_stime
            if pid == process.pid:
                code = os.waitstatus_to_exitcode(status)
                own_s = used_s
            else:
                orphans_s += used_s
    return code, own_s, orphans_s


def table(
    costs: Sequence[Cost], shown_s: float, whole_s: float, wall_s: float
) -> Iterator[str]:
    """The page's lines: sums, and a row for each of the dearest tests."""
    own_s = sum(cost.own_s for cost in costs)
    started_s = sum(cost.started_s for cost in costs)
    starts = sum(len(cost.started) for cost in costs)
    text = (
        f"{len(costs):,} tests: {whole_s:.0f} s of CPU time in {wall_s:.0f} s, of which `time` "
        f"shows {shown_s:.0f} s: servers of forks end after pytest, which does not wait for them. "
        f"The tests themselves took {own_s:.0f} s, the {starts:,} processes that they started "
        f"{started_s:.0f} s; the rest is what each process of pytest imports and collects."
    )
    yield from textwrap.wrap(text, PAGE_WIDTH)
    yield ""
    yield "| test | own, s | started, s | what it starts |"
    yield "|---|---:|---:|---|"
    for cost in costs[:DEAREST]:
        counted = Counter(cost.started).most_common()
        started = ", ".join(f"{count} x {what}" for what, count in counted)
        name = cost.name.removeprefix("tests/").replace("|", "\\|")
        yield f"| `{name}` | {cost.own_s:.2f} | {cost.started_s:.2f} | {started} |"


def main() -> int:
    """Run, and write the page."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.costs"]
        adopt_orphans()
        began_s = time.monotonic()
        code, shown_s, orphans_s = run_to_the_last(
            [*command, *(sys.argv[1:] or TESTS)],
            env={**os.environ, "TEST_COSTS": folder, "PYTHONDONTWRITEBYTECODE": ""},
        )
        wall_s = time.monotonic() - began_s
        lines = table(costs_in(Path(folder)), shown_s, shown_s + orphans_s, wall_s)
        head, _, _ = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        text = "\n".join([f"{head}{BEGIN}", *lines])
        PAGE.write_text(f"{text}\n", encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
