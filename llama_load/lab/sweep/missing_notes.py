"""Notes on figures that a table lacks: one for all rows, columns and stages of one reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

MISSING = "NA"


@dataclass(frozen=True, slots=True)
class MissingNote:
    """A figure of a row is missing, and why.

    `place`: of the row in its table; `row`: its name without its stage; `heading`: of the column,
    empty if the row has no figure at all.
    """

    place: int
    row: str
    stage: str
    heading: str
    why: str


Note = str | MissingNote


def note_texts(notes: Sequence[Note], rows: int) -> list[str]:
    """The notes of a table of this many rows as texts, each once.

    Where all rows lack a figure for one reason, none is named. Figures of one row that are missing
    for one reason share a note, and so do the stages of a run.
    """
    notes = _without_rows(notes, rows)
    headings = _headings_of_rows(notes)
    stages = _stages_of_runs(notes, headings)

    texts = []
    for note in notes:
        if isinstance(note, str):
            texts.append(note)
            continue
        shared = headings[_of_row(note)]
        of_run = stages[_of_run(note), tuple(shared)]
        name = ", ".join(part for part in (note.row, *of_run) if part)
        parts = (MISSING, name, ", ".join(shared), note.why)
        texts.append(": ".join(part for part in parts if part))
    return list(dict.fromkeys(texts))


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
            found.append(
                replace(
                    note,
                    row="",
                    stage="",
                )
                if is_of_all
                else note
            )
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
    return replace(
        note,
        place=0,
        heading="",
    )


def _of_run(note: MissingNote) -> MissingNote:
    return replace(
        note,
        place=0,
        heading="",
        stage="",
    )
