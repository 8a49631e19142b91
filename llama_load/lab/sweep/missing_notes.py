"""Notes on figures that a table lacks or doubts, and on its rows: one for all rows, columns and
stages of one reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from llama_load.ground.languages import Translate

MISSING = "NA"
MOST_NAMED = 3  # rows that share a note
# Notes of rows that differ in these alone are one. What is in brackets are details.
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_IN_BRACKETS = re.compile(r" ?\([^()]*\)")


@dataclass(frozen=True, slots=True)
class MissingNote:
    """A figure of a row is missing, or spoiled, and why.

    `place`: of the row in its table; `row`: its name without its stage; `heading`: of the column,
    empty if the row has no figure at all; `mark`: what stands in its place, or behind it.
    """

    place: int
    row: str
    stage: str
    heading: str
    why: str
    mark: str = MISSING


@dataclass(frozen=True, slots=True)
class RowNote:
    """What is to be known of a row. `place`: of the row in its table."""

    place: int
    row: str
    text: str
    mark: str = ""


Note = str | MissingNote | RowNote


def note_texts(notes: Sequence[Note], rows: int, t: Translate) -> list[str]:
    """The notes of a table of this many rows as texts, each once.

    Where all rows lack a figure for one reason, none is named. Figures of one row that are missing
    for one reason share a note, and so do the stages of a run.
    """
    notes = _without_rows(_of_several_rows(notes, rows, t), rows)
    headings = _headings_of_rows(notes)
    stages = _stages_of_runs(notes, headings)

    texts = []
    for note in notes:
        if not isinstance(note, MissingNote):
            texts.append(str(note))
            continue
        shared = headings[_of_row(note)]
        of_run = stages[_of_run(note), tuple(shared)]
        name = ", ".join(part for part in (note.row, *of_run) if part)
        parts = (note.mark, name, ", ".join(shared), note.why)
        texts.append(": ".join(part for part in parts if part))
    return list(dict.fromkeys(texts))


def _of_several_rows(notes: Sequence[Note], rows: int, t: Translate) -> list[Note]:
    """The notes, in which those of rows that differ in numbers alone are one text."""
    alike: dict[tuple[str, str], list[RowNote]] = {}
    for note in notes:
        if isinstance(note, RowNote):
            alike.setdefault(_form_of(note), []).append(note)

    found: list[Note] = []
    for note in notes:
        if isinstance(note, RowNote):
            same = alike.pop(_form_of(note), [])
            if same:
                found.append(_text_of(same, rows, t))
        else:
            found.append(note)
    return found


def _form_of(note: RowNote) -> tuple[str, str]:
    return note.mark, _NUMBER.sub("#", _IN_BRACKETS.sub("", note.text))


def _text_of(same: Sequence[RowNote], rows: int, t: Translate) -> str:
    """`† all rows: other programs used 55 to 79 % …`."""
    first = same[0]
    names = list(dict.fromkeys(note.row for note in same))
    text = first.text
    if len(names) > 1:
        texts = []
        for note in same:
            short = _IN_BRACKETS.sub("", note.text)
            texts.append(short)
        text = _with_ranges(texts)
    name = ", ".join(names[:MOST_NAMED])
    more = len(names) - MOST_NAMED
    if more > 0:
        name += f" and {more} more"
    places = {note.place for note in same}
    if len(places) == rows > 1:
        name = t("all rows")
    return f"{first.mark} {name}: {text}".lstrip()


def _with_ranges(texts: Sequence[str]) -> str:
    """Texts that differ in their numbers alone as one: 3 of 10, 5 of 10: 3 to 5 of 10."""
    rows = []
    for text in texts:
        rows.append(_NUMBER.findall(text))
    ranges = []
    for numbers in zip(*rows, strict=True):
        least = min(numbers, key=float)
        most = max(numbers, key=float)
        text = least
        if float(most) > float(least):
            text += f" to {most}"
        ranges.append(text)
    of_place = iter(ranges)
    return _NUMBER.sub(lambda _: next(of_place), texts[0])


def _without_rows(notes: Sequence[Note], rows: int) -> list[Note]:
    """The notes; those that hold for all of several rows name none."""
    places: dict[tuple[str, str], set[int]] = {}
    for missing in _missing_figures(notes):
        places.setdefault((missing.heading, missing.why), set()).add(missing.place)

    found: list[Note] = []
    for note in notes:
        if isinstance(note, MissingNote):
            of_rows = len(places[note.heading, note.why])
            is_of_all = of_rows == rows > 1
            found.append(replace(note, row="", stage="") if is_of_all else note)
        else:
            found.append(note)
    return found


def _headings_of_rows(notes: Sequence[Note]) -> dict[MissingNote, list[str]]:
    """The columns that lack figures of one row for one reason."""
    headings: dict[MissingNote, list[str]] = {}
    for note in _missing_figures(notes):
        shared = headings.setdefault(_of_row(note), [])
        if note.heading and note.heading not in shared:
            shared.append(note.heading)
    return headings


def _stages_of_runs(
    notes: Sequence[Note], headings: dict[MissingNote, list[str]]
) -> dict[tuple[MissingNote, tuple[str, ...]], list[str]]:
    """The stages of a run that lack the same figures for one reason."""
    stages: dict[tuple[MissingNote, tuple[str, ...]], list[str]] = {}
    for note in _missing_figures(notes):
        key = _of_run(note), tuple(headings[_of_row(note)])
        shared = stages.setdefault(key, [])
        if note.stage and note.stage not in shared:
            shared.append(note.stage)
    return stages


def _missing_figures(notes: Sequence[Note]) -> Iterable[MissingNote]:
    return [note for note in notes if isinstance(note, MissingNote)]


def _of_row(note: MissingNote) -> MissingNote:
    return replace(note, place=0, heading="")


def _of_run(note: MissingNote) -> MissingNote:
    return replace(note, place=0, heading="", stage="")
