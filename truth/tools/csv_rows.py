"""Rows of any client, as CSV: a line per request, with the names of columns in the first line.

`number` (the first word of the answer) or `request_id` (the X-Request-Id that was sent), `status`
(`ok` or what failed), `ttft_ms`, `tpot_ms`, `e2el_ms`, `itl_ms` (gaps with blanks between),
`output_tokens`, `prompt_tokens`, `late_ms` (behind the schedule). A column that is missing, or
empty, was not measured. Rows whose status is `cancelled` are those that the client itself ended.

Lines before the columns that begin with # are the client's own summary, a figure each, as
`# p99_ttft_ms = 12.5`, `# request_rps = 40`, and what it says against its figures, as
`# doubt = the client was late` or, about some of them, `# doubt times, load = …`.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from truth.foreign import lines_of, text_of
from truth.result import TOPICS, Doubt, Result, Seen
from truth.tools.tool import NoResult, Tool, total
from truth.work import Work

OK = "ok"
CANCELLED = "cancelled"
NAMING = ("number", "request_id", "e2el_ms")  # one of them there must be
COLUMNS = (
    *(*NAMING, "status", "ttft_ms", "tpot_ms", "itl_ms"),
    *("output_tokens", "prompt_tokens", "late_ms"),
)
Row = dict[str, str]


class CsvRows(Tool):
    name = "csv"
    title = "a client with rows in CSV"

    def commands(self, work: Work, folder: Path) -> list[list[str]]:
        raise ValueError("give the client's command after --")

    def result(self, folder: Path) -> Path:
        return folder / "result.csv"

    def read(self, path: Path) -> Result:
        lines = list(lines_of(text_of(path)))
        notes = [line for line in lines if line.startswith("#")]
        requests: list[Seen] = []
        others = Counter[str]()
        for row in _rows(lines[len(notes) :]):
            status = row.get("status", "").strip().lower() or OK
            if status == OK:
                requests.append(_seen(row))
            else:
                others[status] += 1

        reported, doubts = _summary(notes)
        return Result(
            requests=requests,
            reported=reported,
            doubts=doubts,
            completed=len(requests),
            failed=others.total() - others[CANCELLED],
            output_tokens=total([seen.output_tokens for seen in requests]),
            input_tokens=total([seen.prompt_tokens for seen in requests]),
        )


def _rows(lines: Iterable[str]) -> Iterator[Row]:
    """Of each row the columns that are read, however many others the file names. NoResult: it has
    none of `NAMING`."""
    rows = csv.reader(lines, skipinitialspace=True)
    heads = next(rows, [])
    places = {name: heads.index(name) for name in COLUMNS if name in heads}
    for cells in filter(None, rows):
        if places.keys().isdisjoint(NAMING):
            raise NoResult("no column number, request_id or e2el_ms")
        row: Row = {}
        for name, place in places.items():
            row[name] = cells[place] if place < len(cells) else ""
        yield row


def _summary(lines: list[str]) -> tuple[dict[str, float], list[Doubt]]:
    """Figures and doubts of the lines that begin with #."""
    figures: dict[str, float] = {}
    doubts: list[Doubt] = []
    for line in lines:
        name, mark, value = line.lstrip("# ").partition("=")
        if not mark:
            raise NoResult(f"{line!r} is no figure: write # name = value")
        words = name.replace(",", " ").split()
        if words[:1] != ["doubt"]:
            figures[name.strip()] = float(value)
            continue
        unknown = sorted(set(words[1:]) - set(TOPICS))
        if unknown:
            known = ", ".join(TOPICS)
            raise NoResult(f"no topic {', '.join(unknown)}: there are {known}")
        doubts.append(Doubt(value.strip(), tuple(words[1:]) or TOPICS))
    return figures, doubts


def _seen(row: Row) -> Seen:
    gaps = (row.get("itl_ms") or "").split()
    return Seen(
        number=_integer(row, "number"),
        request_id=row.get("request_id") or None,
        ttft_ms=_decimal(row, "ttft_ms"),
        tpot_ms=_decimal(row, "tpot_ms"),
        e2el_ms=_decimal(row, "e2el_ms"),
        itl_ms=[float(gap) for gap in gaps],
        output_tokens=_integer(row, "output_tokens"),
        prompt_tokens=_integer(row, "prompt_tokens"),
        late_ms=_decimal(row, "late_ms"),
    )


def _decimal(row: Row, name: str) -> float | None:
    text = row.get(name)
    return float(text) if text else None


def _integer(row: Row, name: str) -> int | None:
    text = row.get(name)
    return int(text) if text else None
