"""The cells of a column: figures over the repeats, the best marked, reasons of what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from llama_load.analysis.comparison.reasons import Reason
from llama_load.analysis.figures.spoiled import SPOILED_MARK
from llama_load.lab.sweep.estimate import (
    Estimate,
    cost_of,
    estimate,
    reach_of_difference,
)
from llama_load.lab.sweep.missing_notes import MISSING, MissingNote, Note
from llama_load.lab.sweep.plan import Column, Plan
from llama_load.lab.sweep.ranking import (
    OF_SERVERS,
    concerns,
    quality_reason,
    ranking_of,
    reasons_between,
    row_name,
    texts_of,
)
from llama_load.lab.sweep.rows import CLIENT_TIMES, Row
from llama_load.lab.sweep.values import BY_GPU, HIGHER, LOWER, describe
from llama_load.tables import Cell
from llama_load.tables.numbers import fixed

NOT_RANKED = "†"
WITHOUT_INTERVAL = (
    "without an interval, because one of its two sides is a single value; repeat it"
)
_CLIENT_NOTE = (
    f"{CLIENT_TIMES} from TTFT or TPOT, which include HTTP and the network: "
    "the server reports no timings of its own"
)


def column_cells(
    plan: Plan, column: Column, groups: Sequence[Sequence[Row]], notes: list[Note]
) -> list[Cell]:
    """A cell for each group of rows; what a reader must know is added to `notes`."""
    if not describe(column.value).is_text:
        return _FigureColumn(plan, column, groups, notes).cells()

    cells = []
    for group in groups:
        chosen = rows_where(group, column.where)
        cells.append(Cell(_fact(column, chosen or group)))
    return cells


def rows_where(rows: Sequence[Row], where: Mapping[str, list[str]]) -> list[Row]:
    """The rows with these facts."""
    return [row for row in rows if _is_in(row, where)]


def _is_in(row: Row, where: Mapping[str, list[str]]) -> bool:
    return all(row.fact(name) in map(str, values) for name, values in where.items())


def _fact(column: Column, rows: Sequence[Row]) -> str:
    if column.value == "repeats":
        return str(len({row.repeat for row in rows}))

    texts: dict[str, None] = {}
    for row in rows:
        text = row.fact(column.value)
        if text:
            texts[column.labels.get(text, text)] = None
    return " / ".join(texts)


class _FigureColumn:
    """A column of figures. Places are those of the groups."""

    def __init__(
        self,
        plan: Plan,
        column: Column,
        groups: Sequence[Sequence[Row]],
        notes: list[Note],
    ) -> None:
        self._plan = plan
        self._column = column
        self._groups = groups
        self._notes = notes
        self._is_of_servers = column.value in OF_SERVERS
        chosen = []
        for group in groups:
            chosen.append(rows_where(group, column.where))

        self._chosen = chosen
        self._there = [self._rows_there(place) for place in range(len(groups))]
        self._figures = []
        for here, there in zip(chosen, self._there, strict=True):
            self._figures.append(_figure(column, here, there))
        self._ranking = ranking_of(plan, self._chosen)

    def cells(self) -> list[Cell]:
        best = self._best()
        self._notes += self._not_ranked()

        cells = []
        for place, figure in enumerate(self._figures):
            spoiled = None if figure is not None else self._spoiled(place)
            if spoiled is not None:
                cells.append(self._cell_of_spoiled(place, spoiled))
            elif figure is None:
                cells.append(self._cell_without_figure(place))
            else:
                cells.append(self._cell_of(place, figure, is_best=place in best))
        return cells

    def _rows_there(self, place: int) -> Sequence[Row]:
        """The rows that those at this place are compared with."""
        column = self._column
        if column.against:
            return rows_where(self._groups[place], column.against)
        if not column.difference_to:
            return ()

        names = ["server", *self._plan.setting_names]
        if not self._is_of_servers:
            names += ["workload", "load", "concurrency"]
        names = [name for name in names if name not in column.difference_to]
        rows = []
        for group in self._groups:
            for row in rows_where(group, column.difference_to):
                if row.facts_named(names) == self._groups[place][0].facts_named(names):
                    rows.append(row)
        return rows

    def _why_missing(self, place: int) -> str:
        """Why a figure of rows that are there is missing."""
        column = self._column
        chosen = self._chosen[place]
        if not column.difference_to or _estimate_of(column, chosen) is None:
            return chosen[0].why_missing(column.value)

        wanted = []
        for name, values in column.difference_to.items():
            wanted.append(f"{name}={' or '.join(map(str, values))}")
        of_it = ", ".join(wanted)
        there = self._there[place]
        if not there:
            return f"there is no cell with {of_it}"
        return f"of {of_it}: {there[0].why_missing(column.value)}"

    def _spoiled(self, place: int) -> Estimate | None:
        """The figure of rows in all of which a failed check spoils it."""
        column = self._column
        if column.against or column.difference_to:
            return None
        values = []
        for row in self._chosen[place]:
            if column.value in row.spoiled:
                value = row.spoiled[column.value]
                values.append(value * column.scale)
        return estimate(values)

    def _cell_of_spoiled(self, place: int, figure: Estimate) -> Cell:
        self._note_missing(place, SPOILED_MARK)
        text = f"{_figure_text(self._column, figure)} {SPOILED_MARK}"
        return Cell(text, figure.mean)

    def _cell_without_figure(self, place: int) -> Cell:
        value = self._column.value
        if value.startswith(f"{BY_GPU}.") and not value.endswith(".0"):
            return Cell("")  # it has fewer GPUs than another

        self._note_missing(place, MISSING)
        return Cell(MISSING)

    def _note_missing(self, place: int, mark: str) -> None:
        """Why a figure is missing, or has the mark."""
        chosen = self._chosen[place]
        row = chosen[0] if chosen else self._groups[place][0]
        why = "there is no such cell"
        heading = ""
        if chosen:
            why = self._why_missing(place)
            heading = "" if row.reason else self._column.name
        # of the server, or of a cell without a run, all stages lack it alike
        is_of_stage = row.is_stage and not self._is_of_servers and not row.reason
        stage = row.fact("concurrency") if is_of_stage else ""
        name = row_name(replace(row, is_stage=False), self._plan)
        self._notes.append(MissingNote(place, name, stage, heading, why, mark))

    def _cell_of(self, place: int, figure: Estimate, *, is_best: bool) -> Cell:
        column = self._column
        rows = self._chosen[place]
        is_ranked = self._may_be_ranked(rows) and not self._reasons(place)
        there = self._there[place]
        if there:
            apart = self._texts_apart(rows, there)
            for text in apart:
                self._notes.append(f"{NOT_RANKED} {column.name}: {text}")
            is_ranked = is_ranked and not apart and self._may_be_ranked(there)
            rows = [*rows, *there]
        if column.cost_against and figure.reach is None:
            name = row_name(self._groups[place][0], self._plan)
            self._notes.append(f"{name}: {column.name}: {WITHOUT_INTERVAL}")

        mark = next(
            (row.marks[column.value] for row in rows if column.value in row.marks), ""
        )
        if mark == CLIENT_TIMES:
            self._notes.append(_CLIENT_NOTE)
        if not is_ranked and describe(column.value).best:
            mark += NOT_RANKED
        text = _figure_text(column, figure)
        if mark:
            text += f" {mark}"
        return Cell(text, figure.mean, is_best=is_best)

    def _texts_apart(self, here: Sequence[Row], there: Sequence[Row]) -> list[str]:
        """Why the two sides of a difference are not compared."""
        value = self._column.value
        if self._is_of_servers:
            why = ""
            if value == "perplexity":
                why = quality_reason(self._plan, [here, there])
            return [why] if why else []

        reasons = reasons_between(self._plan, here, there)
        return texts_of([reason for reason in reasons if concerns(reason, value)])

    def _reasons(self, place: int) -> Sequence[Reason]:
        """Why a row is not ranked in this column; of a server alone no load is a reason."""
        if self._is_of_servers:
            return ()
        return self._ranking.against(place, self._column.value)

    def _may_be_ranked(self, rows: Sequence[Row]) -> bool:
        """What is of the server alone does not depend on the verdict of a load test."""
        for row in rows:
            is_known = self._is_of_servers and not row.reason
            if not is_known and not row.is_ranked_in(self._column.value):
                return False
        return True

    def _ranked(self, places: Sequence[int]) -> list[int]:
        """Those of these places that may be ranked in this column, each by itself."""
        ranked = []
        for place in places:
            if self._figures[place] is None or self._reasons(place):
                continue
            if self._may_be_ranked(self._chosen[place]):
                ranked.append(place)
        return ranked

    def _not_ranked(self) -> Iterable[str]:
        """Why rows are not ranked, and in a column that would have a best, not against each other.

        A figure of which more or less is better has its mark in a column without a best, too.
        """
        value = self._column.value
        has_best = self._column.best in (HIGHER, LOWER)
        if not describe(value).best or (self._is_of_servers and not has_best):
            return
        if self._is_of_servers:
            why = (
                quality_reason(self._plan, self._chosen)
                if value == "perplexity"
                else ""
            )
            if why:
                yield why
            return

        for places in self._ranking.classes:
            for place in places:
                if self._figures[place] is None or not self._may_be_ranked(
                    self._chosen[place]
                ):
                    continue
                for text in texts_of(self._ranking.against(place, value)):
                    yield f"{NOT_RANKED} {text}"
            if not has_best:
                continue
            for text in texts_of(self._ranking.between(self._ranked(places), value)):
                yield f"not ranked against each other: {text}"

    def _best(self) -> frozenset[int]:
        """The places with the best figure as it is printed.

        Of each class with two figures or more that may be ranked.
        """
        column = self._column
        if column.best not in (HIGHER, LOWER):
            return frozenset()
        if column.value == "perplexity" and quality_reason(self._plan, self._chosen):
            return frozenset()

        classes = self._ranking.classes
        if self._is_of_servers:
            classes = [range(len(self._groups))]
        best: set[int] = set()
        for places in classes:
            best |= self._best_of(places)
        return frozenset(best)

    def _best_of(self, places: Sequence[int]) -> set[int]:
        column = self._column
        ranked = self._ranked(places)
        if not self._is_of_servers and self._ranking.between(ranked, column.value):
            return set()

        means = {}
        for place in ranked:
            figure = self._figures[place]
            if figure is not None:
                means[place] = round(figure.mean, column.decimals)
        if len(set(means.values())) < 2:
            return set()
        if column.value == "duration" and not self._have_one_count(ranked):
            return set()

        choose = max if column.best == HIGHER else min
        top = choose(means.values())
        best = set()
        for place, mean in means.items():
            if mean == top:
                best.add(place)

        return best

    def _have_one_count(self, places: Sequence[int]) -> bool:
        """Whether the same number of requests was answered: durations of others are not ranked."""
        counts = set()
        for place in places:
            for row in self._chosen[place]:
                if row.is_ranked:
                    counts.add(row.figures.get("completed"))
        return len(counts) == 1


def _figure(
    column: Column, rows: Sequence[Row], rows_there: Sequence[Row]
) -> Estimate | None:
    """The figure of these rows, or its difference to that of those they are compared with."""
    here = _estimate_of(column, rows)
    if here is None or not (column.against or column.difference_to):
        return here
    there = _estimate_of(column, rows_there)
    if there is None:
        return None
    if column.difference_to:
        # The errors of two perplexities of one text are mostly the same one.
        reach = None
        if column.value not in OF_SERVERS:
            reach = reach_of_difference(here, there)
        return Estimate(here.mean - there.mean, reach=reach)
    if not there.mean or not here.mean:
        return None
    if column.loss_against:
        return Estimate(100 * (1 - here.mean / there.mean))
    cost = cost_of(here)
    cost_there = cost_of(there)
    reach = reach_of_difference(cost, cost_there)
    return Estimate(cost.mean - cost_there.mean, reach=reach)


def _estimate_of(column: Column, rows: Sequence[Row]) -> Estimate | None:
    """Over requests for values that have one per request, else over runs."""
    samples: list[float] = []
    of_runs = []
    errors = []
    for row in rows:
        if row.reason:
            continue
        samples += row.samples.get(column.value, [])
        of_runs.append(row.number(column.value))
        errors.append(row.number(f"{column.value}_error"))

    values = samples or [value for value in of_runs if value is not None]
    measured = estimate([value * column.scale for value in values])
    if measured is None or measured.std:
        return measured
    # A figure that is measured once may have an error by itself: `perplexity_error` of perplexity.
    for error in errors:
        if error is not None:
            return replace(measured, std=error * column.scale)
    return measured


def _figure_text(column: Column, figure: Estimate) -> str:
    decimals = column.decimals or 0
    text = fixed(figure.mean, decimals)
    if column.difference_to:
        rounded = round(figure.mean, decimals) + 0.0  # -0.0 becomes 0.0
        text = f"{rounded:+.{decimals}f}"
    if column.spread is not False and figure.std is not None and not column.against:
        text += f" ± {fixed(figure.std, decimals)}"
    if figure.reach is not None:
        low = fixed(figure.mean - figure.reach, decimals)
        high = fixed(figure.mean + figure.reach, decimals)
        text += f" ({low} to {high})"
    return text + column.unit
