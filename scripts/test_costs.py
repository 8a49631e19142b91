"""What the tests cost: runs the default tests with `tests/costs.py` and writes the table of
benchmarks/test_costs.md.

    python -m scripts.test_costs [PYTEST ARGUMENTS…]
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

PAGE = Path(__file__).resolve().parent.parent / "benchmarks" / "test_costs.md"
TESTS = ("-n", "3", "--dist", "worksteal", "-m", "not heavy and not timing", "tests")
DEAREST = 100
PAGE_WIDTH = 120
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


def table(costs: Sequence[Cost], whole_s: float, wall_s: float) -> Iterator[str]:
    """The page's lines: sums, and a row for each of the dearest tests."""
    own_s = sum(cost.own_s for cost in costs)
    started_s = sum(cost.started_s for cost in costs)
    starts = sum(len(cost.started) for cost in costs)
    text = (
        f"{len(costs):,} tests: {whole_s:.0f} s of CPU time in {wall_s:.0f} s. The tests "
        f"themselves took {own_s:.0f} s, the {starts:,} processes that they started "
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
        began_s = time.monotonic()
        done = subprocess.run(
            [*command, *(sys.argv[1:] or TESTS)],
            env={**os.environ, "TEST_COSTS": folder, "PYTHONDONTWRITEBYTECODE": ""},
            check=False,
        )
        wall_s = time.monotonic() - began_s
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        lines = table(costs_in(Path(folder)), used.ru_utime + used.ru_stime, wall_s)
        head, _, _ = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        text = "\n".join([f"{head}{BEGIN}", *lines])
        PAGE.write_text(f"{text}\n", encoding="utf-8")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
