"""The block that people post: Markdown whose first line has a version, written and read back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from llama_load.ground.errors import UsageError
from llama_load.ground.units import quantity
from llama_load.lab.bench.bench_figures import AloneFigure, UsersFigure
from llama_load.lab.bench.head import Head
from llama_load.lab.bench.served import Objective, Served
from llama_load.lab.sweep.mean_interval import MeanInterval
from llama_load.outside.foreign_files import read_foreign
from llama_load.outside.foreign_text import markdown, printable
from llama_load.tables import LEFT, Column, Table, markdown_lines

VERSION = 1
FIRST_LINE = f"<!-- llama-load bench {VERSION} -->"
_FIRST = re.compile(r"<!-- llama-load bench (\d{1,4}) -->")
_NUMBER = re.compile(r"(?:≥ )?(\d[\d.]{0,20})(?: ± (\d[\d.]{0,20}))?")
ALONE_HEADS = ("test", "tok/s")
BESIDE_HEADS = (*ALONE_HEADS, "llama-bench")
USERS_HEADS = ("context", "users", "TTFT (ms)", "tok/s each", "tok/s all")
MOST_BYTES = 1 << 20
MOST_ROWS = 1000
MOST_NAME = 60
MOST_SOURCE = 200
INTERVALS = "± is half the 95 % interval"
CLIENTS = "by the client's times: the server reports none, so HTTP and the network are in them"
LEAST = "≥: the server does not say how many prompt tokens it took from its cache"


@dataclass(frozen=True, slots=True)
class BenchResult:
    """All that a bench found."""

    head: Head
    alone: Sequence[AloneFigure]
    users: Sequence[UsersFigure]
    served: Sequence[Served]
    objective: Objective
    notes: Sequence[str]  # what was not run, and what a reader must know
    verdict: str
    date: str
    version: str
    command: str
    beside: Mapping[str, float] = field(
        default_factory=dict
    )  # llama-bench's tok/s by test


def block_lines(result: BenchResult) -> list[str]:
    """The block."""
    head = result.head
    lines = [
        FIRST_LINE,
        f"**{markdown(head.model)}**",
        markdown(head.server),
        markdown(head.machine),
    ]
    # two blanks at the end break a line in Markdown
    lines[1:3] = [f"{line}  " for line in lines[1:3]]

    for table in tables_of(result):
        lines += ["", *markdown_lines(table)]
    lines.append("")
    if result.served:
        lines.append(f"**{_served_sentence(result)}**  ")
    lines.append(f"{markdown(result.verdict)}  ")
    for note in _notes_below(result):
        lines.append(f"{markdown(note)}  ")
    command = result.command.replace("`", "")
    lines.append(f"`{command}` · llama-load {result.version} · {result.date}")
    return lines


def tables_of(result: BenchResult) -> list[Table]:
    """The tables: one user, and several."""
    tables = []
    if result.alone:
        tables.append(_alone_table(result))

    if result.users:
        rows = []
        for found in result.users:
            row = [str(found.context), str(found.users)]
            for part in (found.ttft_ms, found.one, found.together):
                row.append(text_of_estimate(part))
            rows.append(row)
        tables.append(_posted_table(USERS_HEADS, rows))
    return tables


def _alone_table(result: BenchResult) -> Table:
    """A row for each test, with llama-bench's own speed where it was measured."""
    rows = []
    for figure in result.alone:
        least = "≥ " if figure.is_least else ""
        row = [figure.name, least + text_of_estimate(figure.rate)]
        if result.beside:
            row.append(_text_of_theirs(result.beside.get(figure.name)))
        rows.append(row)
    return _posted_table(BESIDE_HEADS if result.beside else ALONE_HEADS, rows)


def _text_of_theirs(rate: float | None) -> str:
    """llama-bench's tokens per second, as exact as its own table; empty if not known."""
    if rate is None:
        return ""
    digits = _decimals_for(rate / 100)
    return f"{rate:.{digits}f}"


def _posted_table(heads: Sequence[str], rows: list[list[str]]) -> Table:
    first, *rest = heads
    right = [Column(head) for head in rest]
    return Table("", [Column(first, LEFT), *right], list(rows))


def text_of_estimate(value: MeanInterval) -> str:
    """`1408 ± 39`: to the digit that the interval leaves meaning."""
    digits = _decimals_for(value.mean if value.half is None else value.half)
    if value.half is None:
        return f"{value.mean:.{digits}f}"
    return f"{value.mean:.{digits}f} ± {value.half:.{digits}f}"


def _decimals_for(size: float) -> int:
    """Decimals of a number of about this size."""
    if size >= 10:
        return 0
    return 1 if size >= 1 else 2


def _served_sentence(result: BenchResult) -> str:
    texts: list[str] = []
    for served in result.served:
        number, _, rest = served.text.partition(" ")
        named = number if texts else quantity(served.users, "user")
        texts.append(f"{named} {rest}")
    objective = result.objective.text
    return (
        f"{objective[0].upper()}{objective[1:]}: {', '.join(texts)} tokens of context."
    )


def _notes_below(result: BenchResult) -> Iterator[str]:
    parts = [INTERVALS]
    if any(figure.is_clients for figure in result.alone):
        parts.append(CLIENTS)
    if any(figure.is_least for figure in result.alone):
        parts.append(LEAST)
    yield "; ".join(parts)
    yield from result.notes


@dataclass(frozen=True, slots=True)
class PostedBench:
    """What a block says, read back: each row's name with its figures by column."""

    model: str
    rows: dict[str, dict[str, MeanInterval]]


def read_block(text: str, source: str) -> PostedBench:
    """The first block in a text, such as a comment with more around it.

    UsageError: there is none, or it is of another version.
    """
    lines = iter(text.splitlines())
    for line in lines:
        match = _FIRST.fullmatch(line.strip())
        if match is None:
            continue
        if int(match[1]) != VERSION:
            raise UsageError(
                f"{source} is a block of version {match[1]}, and this llama-load reads version "
                f"{VERSION}; make it again with llama-load bench"
            )
        return _bench_of_lines(list(lines))
    raise UsageError(
        f"{source} has no block of llama-load bench, which begins with the line {FIRST_LINE}"
    )


def read_block_file(path: Path) -> PostedBench:
    """See `read_block`. UsageError: also where the file cannot be read."""
    try:
        text = read_foreign(path, MOST_BYTES).decode("utf-8", "replace")
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"{path} cannot be read: {why}") from None
    return read_block(text, printable(str(path), MOST_SOURCE))


def _bench_of_lines(lines: Sequence[str]) -> PostedBench:
    model = lines[0].strip().strip("*") if lines else ""
    rows: dict[str, dict[str, MeanInterval]] = {}
    heads: Sequence[str] = ()
    for line in lines:
        cells = _cells_of_line(line)
        if not cells:
            heads = ()
        elif tuple(cells) in (ALONE_HEADS, BESIDE_HEADS, USERS_HEADS):
            heads = cells
        elif heads and len(cells) == len(heads) and len(rows) < MOST_ROWS:
            _add_row(rows, heads, cells)
    return PostedBench(printable(model, MOST_NAME), rows)


def _cells_of_line(line: str) -> list[str]:
    """The cells of a line of a Markdown table; empty: it is none."""
    stripped = line.strip()
    if not stripped.startswith("|") or len(stripped) > MOST_BYTES:
        return []
    return [cell.strip() for cell in stripped.strip("|").split("|")]


def _add_row(
    rows: dict[str, dict[str, MeanInterval]], heads: Sequence[str], cells: Sequence[str]
) -> None:
    named = 2 if tuple(heads) == USERS_HEADS else 1
    figures = {}
    for head, cell in zip(heads[named:], cells[named:], strict=True):
        value = _estimate_of(cell)
        if value is not None:
            figures[head] = value
    if not figures:
        return  # the line below the heads

    name = cells[0]
    if named == 2:
        users = "user" if cells[1] == "1" else "users"
        name = f"{cells[1]} {users} at {cells[0]}"
    rows[printable(name, MOST_NAME)] = figures


def _estimate_of(cell: str) -> MeanInterval | None:
    match = _NUMBER.fullmatch(cell)
    if match is None:
        return None
    try:
        half = None if match[2] is None else float(match[2])
        return MeanInterval(float(match[1]), half)
    except ValueError:  # two points
        return None
