"""Runs the default tests again and again, five at a time, beside two busy processes, and lists
those that failed at least once.

    python -m scripts.find_flaky [RUNS] [PYTEST ARGUMENTS…]

Each run's report is in build/flaky. Exit code 1: a test failed; 3: a run of pytest did not end as
it should.
"""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = Path("build/flaky")
TESTS = ("-m", "not heavy and not timing", "--ignore", "tests/heavy")
SPIN = "while True: pass"
BUSY = 2
PYTEST_PASSED, PYTEST_FAILED = 0, 1
STEADY, FLAKY, BROKEN = 0, 1, 3


def failures(report: str) -> list[str]:
    """The tests of a run that failed, by its report in the format of JUnit."""
    return [
        f"{case.get('classname')}::{case.get('name')}"
        for case in ET.fromstring(report).iter("testcase")  # noqa: S314  # pytest wrote it
        if case.find("failure") is not None or case.find("error") is not None
    ]


def listed(reports: Iterable[str]) -> list[str]:
    """A line for each test that failed, the one that failed most often first."""
    counts: Counter[str] = Counter()
    runs = 0
    for report in reports:
        counts.update(failures(report))
        runs += 1
    return [f"{count} of {runs}  {name}" for name, count in counts.most_common()]


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes compute all the time."""
    started = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def main() -> int:
    """Run, and print what failed."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    tests = sys.argv[2:] or [*TESTS]
    FOLDER.mkdir(parents=True, exist_ok=True)
    reports = [FOLDER / f"{number}.xml" for number in range(1, runs + 1)]
    for report in reports:
        command = [sys.executable, "-m", "pytest", "-n", "5", "--dist", "worksteal"]
        with busy(BUSY):
            code = subprocess.run(
                [*command, f"--junitxml={report}", *tests], check=False
            ).returncode
        if code not in (PYTEST_PASSED, PYTEST_FAILED):
            return BROKEN

    lines = listed(report.read_text(encoding="utf-8") for report in reports)
    print("\n".join(lines) or f"No test failed in {runs} runs.")
    return FLAKY if lines else STEADY


if __name__ == "__main__":
    sys.exit(main())
