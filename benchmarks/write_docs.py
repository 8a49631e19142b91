"""Measures what benchmarks/README.md and the paper say about cost, accuracy, start and end, and
writes it there: one measurement, one number for one thing.

    .venv/bin/python -m benchmarks.write_docs            # about 8 minutes, on a quiet machine
    .venv/bin/python -m benchmarks.write_docs clients    # one of: clients, startup

A table stands between `<!-- measured: NAME -->` and `<!-- end -->`, with the date and the machine
above it. The paper's table, a sentence of docs/why.md and rows of docs/distributed.md are parts of
the first one.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
BENCHMARKS = REPOSITORY / "benchmarks" / "README.md"
PAPER = REPOSITORY / "docs" / "paper" / "paper.md"
WHY = REPOSITORY / "docs" / "why.md"
DISTRIBUTED = REPOSITORY / "docs" / "distributed.md"
PAPER_STREAMS = "400"
PAPER_CLIENTS = ("HttpUser", "llama-load")
PAPER_COLUMNS = (
    "streams x 50 tok/s",
    "client",
    "TTFT error p50 / p99 (ms)",
    "ITL error p50 / p99 (ms)",
)


@dataclass(frozen=True)
class Measurement:
    """A benchmark whose table is in benchmarks/README.md: its arguments, and how often each cell is
    measured, in words."""

    module: str
    arguments: Sequence[str]
    repeats: str


MEASUREMENTS: Mapping[str, Measurement] = {
    "clients": Measurement(
        "benchmarks.clients", ("--repeat", "2"), "the better of two runs of each cell"
    ),
    "startup": Measurement(
        "benchmarks.startup", ("--repeat", "3"), "the least of three each"
    ),
}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names",
        nargs="*",
        choices=[[], *MEASUREMENTS],
        default=[],
        metavar=" | ".join(MEASUREMENTS),
    )
    names = parser.parse_args().names or list(MEASUREMENTS)
    for name in names:
        measurement = MEASUREMENTS[name]
        printed = measured(measurement)
        machine, table = parts(printed)
        text = (
            f"{machine};\n{measurement.repeats}, with nothing else running.\n\n{table}"
        )
        replace_block(BENCHMARKS, name, text)
        if name == "clients":
            replace_block(PAPER, name, paper_table(table))
            replace_block(WHY, name, sentence(table))
            DISTRIBUTED.write_text(with_rows(DISTRIBUTED.read_text(), table))


def measured(measurement: Measurement) -> str:
    """What the benchmark prints; it is printed here, too."""
    command = [sys.executable, "-m", measurement.module, *measurement.arguments]
    process = subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line)
    if process.wait():
        raise SystemExit(f"{measurement.module} failed")
    return "".join(lines)


def parts(printed: str) -> tuple[str, str]:
    """Date and machine, and the table."""
    lines = printed.splitlines()
    rows = [line for line in lines if line.startswith("|")]
    return lines[0], "\n".join(rows)


def paper_table(table: str) -> str:
    """The rows and columns of the table that the paper shows."""
    head, rule, *rows = [cells(row) for row in table.splitlines()]
    places = [head.index(name) for name in PAPER_COLUMNS]
    shown = [row for row in rows if row[0] == PAPER_STREAMS and row[1] in PAPER_CLIENTS]
    lines = [head, rule, *shown]
    return "\n".join(
        "| " + " | ".join(row[place] for place in places) + " |" for row in lines
    )


def sentence(table: str) -> str:
    """What docs/why.md says of the table."""
    head, _, *rows = [cells(row) for row in table.splitlines()]
    place = head.index(PAPER_COLUMNS[2])
    p99 = {
        row[1]: row[place].rpartition("/")[2].strip()
        for row in rows
        if row[0] == PAPER_STREAMS
    }
    errors = ", ".join(f"{client} {p99[client]} ms" for client in PAPER_CLIENTS)
    return f"The error of the time to first token at {PAPER_STREAMS} streams, p99: {errors}."


def with_rows(page: str, table: str) -> str:
    """The page with what one worker carries: a row for each number of streams that it has."""
    head, _, *rows = [cells(row) for row in table.splitlines()]
    for row in rows:
        figures = dict(zip(head, row, strict=True))
        if figures["client"] != "llama-load":
            continue
        p99 = figures[PAPER_COLUMNS[2]].rpartition("/")[2].strip()
        beginning = rf"(\| {row[0]} streams of 50 tokens/s \| one worker \| )"
        page = re.sub(
            beginning + r"p99 TTFT error [\d.]+ ms",
            rf"\g<1>p99 TTFT error {p99} ms",
            page,
        )
        page = re.sub(
            beginning + r"(.* ms); [\d.]+ us of CPU per token; \d+ MiB",
            rf"\g<1>\g<2>; {figures['CPU us/token']} us of CPU per token; "
            f"{figures['memory (MiB)']} MiB",
            page,
        )
    return page


def cells(row: str) -> list[str]:
    """The cells of a row of a Markdown table."""
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def replace_block(page: Path, name: str, text: str) -> None:
    """Put the text between the page's marks of this name."""
    before = page.read_text()
    mark = re.compile(rf"(<!-- measured: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    after, count = mark.subn(lambda found: f"{found[1]}{text}\n{found[2]}", before)
    if count != 1:
        raise SystemExit(f"{page} has {count} places for the table {name}, not one")
    page.write_text(after)


if __name__ == "__main__":
    main()
