"""Tables of a sweep: rows of equal settings become one, repeats a mean with its spread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from llama_load import tables
from llama_load.analysis.comparison.warnings import replaced_in
from llama_load.analysis.reports.request_table import RequestRow
from llama_load.ground.units import quantity
from llama_load.lab.sweep.column_cells import NOT_RANKED, column_cells, rows_where
from llama_load.lab.sweep.grammar import REQUESTS
from llama_load.lab.sweep.missing_notes import MissingNote, Note, RowNote, note_texts
from llama_load.lab.sweep.plan import Column, Plan, Table
from llama_load.lab.sweep.ranking import OF_SERVERS, row_name, side_of
from llama_load.lab.sweep.rows import Row
from llama_load.lab.sweep.sweep_words import sweep_words
from llama_load.lab.sweep.values import BY_GPU, OF_REQUESTS, describe
from llama_load.run_folder.observed.record import OK
from llama_load.run_folder.vocabulary.verdict_words import BLURRED, CLIENT_BOUND, VALID

NO_REQUESTS = "no request succeeded, or there were over 64"
DIMENSIONS = ("server", "workload", "load", "concurrency")
_PLACE_OF_REQUESTS = {value.key: place for place, value in enumerate(OF_REQUESTS)}


def make_tables(plan: Plan, rows: Sequence[Row]) -> list[tables.Table]:
    """All tables that the plan asks for."""
    made = []
    for table in plan.tables or (default_table(plan, rows),):
        make = _of_requests if table.rows == REQUESTS else _of_cells
        for name, part in _parts(rows_where(rows, table.where), table.group_by):
            title = (
                f"{table.title} - {name}"
                if table.title and name
                else table.title or name
            )
            shown = replace(table, columns=tuple(_columns(table, part, plan)))
            made.append(make(shown, title, part, plan))
    return made


def default_table(plan: Plan, rows: Sequence[Row]) -> Table:
    """All that varies, then the main figures: those of tests if there are tests."""
    names = _varying(plan, rows) or ["server"]
    if plan.has_tests:
        names.append("ts")
    elif not all(load.search is not None for load in plan.loads):
        names += ["success_rate", "request_throughput", "output_throughput"]
        names += ["mean_ttft_ms", "mean_tpot_ms"]
    if any(load.search is not None for load in plan.loads):
        names += ["capacity", "capacity_interval", "binds"]
    if plan.perplexity:
        names += ["perplexity", "bits_per_byte"]
    return Table(tuple(Column(name) for name in names), title=plan.title)


def _varying(plan: Plan, rows: Sequence[Row]) -> list[str]:
    """The facts in which rows differ."""
    names = []
    if len(plan.servers) > 1:
        names.append("server")
    names += plan.setting_names
    if len(plan.workloads) > 1:
        names.append("workload")

    if plan.has_tests:
        names.append("test")
        return names
    if len(plan.loads) > 1:
        names.append("load")
    if len({row.facts.get("concurrency") for row in rows}) > 1:
        names.append("concurrency")
    return names


def _parts(rows: Sequence[Row], name: str) -> Iterable[tuple[str, list[Row]]]:
    """The rows by this fact, each value a table; all in one without a name."""
    if not name:
        return [("", list(rows))]
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(row.fact(name), []).append(row)
    return parts.items()


def _of_requests(
    table: Table, title: str, rows: Sequence[Row], plan: Plan
) -> tables.Table:
    """A row per request. Their figures are texts already."""
    lines = []
    notes: list[Note] = []
    for place, row in enumerate(rows):
        if not row.requests:
            stage = row.fact("concurrency") if row.is_stage and not row.reason else ""
            name = row_name(replace(row, is_stage=False), plan)
            notes.append(MissingNote(place, name, stage, "", row.reason or NO_REQUESTS))
        if not row.reason:
            notes += _notes_of_requests(row, plan)
        for request in row.requests:
            lines.append(
                [_request_text(column, row, request) for column in table.columns]
            )

    values = [column.value for column in table.columns]
    for name in reversed(table.sort_by):
        if name in values:
            place = values.index(name)
            lines.sort(key=lambda texts: texts[place])

    cells = []
    for texts in lines:
        cells.append([tables.Cell(text) for text in texts])
    return _made(
        table, title, cells, note_texts(notes, len(rows), sweep_words(plan.language))
    )


def _request_text(column: Column, row: Row, request: RequestRow) -> str:
    place = _PLACE_OF_REQUESTS.get(column.value)
    if place is None:
        text = row.fact(column.value)
    elif place == 0:
        text = request.task
    else:
        text = request.figures[place - 1].text  # in the order of `values.OF_REQUESTS`

    text = column.labels.get(text, text)
    if place == 0 and request.status != OK:
        text += f" ({request.status})"
    return text


def _notes_of_requests(row: Row, plan: Plan) -> Iterable[str]:
    """What a reader of the requests of one run must know.

    How many failed, what the verdict is, and what the run found.
    """
    name = row_name(row, plan)
    failed = sum(request.status != OK for request in row.requests)
    if failed:
        requests = quantity(len(row.requests), "request")
        yield f"{name}: {failed} of {requests} failed: {row.fact('reasons')}"
    if row.cause and row.fact("verdict") != VALID:
        yield f"{name}: {row.cause}"
    yield from replaced_in([side_of(plan, [row])])
    good_rps = row.number("request_goodput")
    all_rps = row.number("request_throughput")
    completed = int(row.number("completed") or 0)
    if good_rps is not None and all_rps:
        good = round(completed * good_rps / all_rps)
        answers = quantity(completed, "answered request")
        yield f"{name}: {good} of {answers} met the objectives of --goodput"
    yield from _found(row, plan)


def _found(row: Row, plan: Plan) -> Iterable[str]:
    """What the run found, such as what most of a request's time was."""
    sentences = []
    for sentence in row.sentences:
        sentences.append(f"{row_name(row, plan)}: {sentence}")

    return sentences


def _of_cells(
    table: Table, title: str, rows: Sequence[Row], plan: Plan
) -> tables.Table:
    """A row per combination of settings, with repeats merged.

    Settings that a column fixes by `where` are merged too.
    """
    groups = _groups(table, rows, plan)
    notes: list[Note] = []
    columns = []
    for column in table.columns:
        columns.append(column_cells(plan, column, groups, notes))

    # what is of the server alone is there once
    cells = list(dict.fromkeys(zip(*columns, strict=True))) if groups else []

    of_runs = []
    for column in table.columns:
        if column.value not in OF_SERVERS:
            of_runs.append(column)

    if any(describe(column.value).best for column in of_runs):
        notes += _unranked(groups, plan)
    if any(not describe(column.value).is_text for column in of_runs):
        for place, group in enumerate(groups):
            notes += _doubts(place, group, plan)
    return _made(
        table, title, cells, note_texts(notes, len(groups), sweep_words(plan.language))
    )


def _groups(table: Table, rows: Sequence[Row], plan: Plan) -> list[list[Row]]:
    """The rows of the plan by the row of the table that they are in, in its order."""
    fixed = {"repeat"}
    for column in table.columns:
        fixed.update(column.where)
        fixed.update(column.against)
    names = []
    for name in (*DIMENSIONS, *plan.setting_names):
        if name not in fixed:
            names.append(name)

    merged: dict[tuple[str, ...], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.place):
        merged.setdefault(row.facts_named(names), []).append(row)

    groups = list(merged.values())
    for name in reversed(table.sort_by):
        groups.sort(key=lambda group: _natural(group[0].fact(name)))
    return groups


def _unranked(groups: Sequence[Sequence[Row]], plan: Plan) -> Iterable[RowNote]:
    """Why rows are not ranked in any column."""
    for place, group in enumerate(groups):
        unranked = []
        for row in group:
            if not row.is_ranked and not row.reason:
                unranked.append(row)

        if unranked:
            causes = dict.fromkeys(row.cause for row in unranked)
            text = f"not ranked: {'; '.join(causes)}"
            yield RowNote(place, row_name(group[0], plan), text, NOT_RANKED)


def _columns(table: Table, rows: Sequence[Row], plan: Plan) -> Iterable[Column]:
    """The columns, with what they leave open.

    One for each GPU of the row that has most, numbered from 0.
    """
    for column in table.columns:
        if column.value != BY_GPU:
            yield _complete(column, plan.language)
            continue
        for number in range(max(1, _most_gpus(rows))):
            name = f"{column.name} {number}" if column.name else ""
            of_gpu = replace(column, value=f"{BY_GPU}.{number}", name=name)
            yield _complete(of_gpu, plan.language)


def _most_gpus(rows: Sequence[Row]) -> int:
    """The GPUs of the row that has most."""
    most = 0
    for row in rows:
        gpus = []
        for name in row.figures:
            if name.startswith(f"{BY_GPU}."):
                gpus.append(name)

        most = max(most, len(gpus))
    return most


def _complete(column: Column, language: str) -> Column:
    """The column with what the plan leaves open."""
    value = describe(column.value)
    best = value.best
    decimals = value.decimals
    heading = value.heading(language)
    if column.difference_to:
        best = ""
        heading = f"+{heading}"
    if column.against:
        best = ""
        decimals = 2 if column.loss_against else 3
    return replace(
        column,
        name=column.name or heading,
        best=column.best or best,
        decimals=decimals if column.decimals is None else column.decimals,
        align=column.align or (tables.LEFT if value.is_text else tables.RIGHT),
    )


def _doubts(place: int, group: Sequence[Row], plan: Plan) -> Iterable[Note]:
    """What a reader of a row must know.

    Repeats that are not in its figures, and figures that are partly the client's.
    """
    name = row_name(group[0], plan)
    failed = []
    for row in group:
        if row.reason:
            failed.append(row)

    if failed and len(failed) < len(group):
        reasons = "; ".join(dict.fromkeys(row.reason for row in failed))
        left_out = f"{len(failed)} of {len(group)} runs are not in its figures"
        yield f"{NOT_RANKED} {name}: {left_out}: {reasons}"

    yield from replaced_in([side_of(plan, group)])
    for row in group:
        if row.common_note:
            yield f"{row_name(row, plan)}: {row.common_note}; {row.cause}"

    ranked = [row for row in group if row.is_ranked]
    if ranked:
        yield from _found(ranked[0], plan)

    words = [BLURRED]
    if any(row.run is None for row in group):
        words.append(CLIENT_BOUND)  # else it is not ranked
    causes: dict[str, None] = {}
    for row in ranked:
        # Tests use the server's own times where it reports them.
        if row.fact("verdict") in words and not row.fact("test"):
            causes[row.cause] = None
    if causes:
        yield RowNote(place, name, "; ".join(causes))


def _natural(text: str) -> tuple[int, float, str]:
    """Numbers by value, before texts."""
    try:
        return 0, float(text.removeprefix("c=")), text
    except ValueError:
        return 1, 0.0, text


def _made(
    table: Table, title: str, cells: Sequence[tables.Row], notes: Sequence[str]
) -> tables.Table:
    """The table with its headings and notes."""
    heads = []
    for column in table.columns:
        heads.append(tables.Column(column.name, column.align, width=column.width))

    texts = dict.fromkeys([*notes, table.note])
    return tables.Table(
        title, heads, cells, tuple(text for text in texts if text), table.style
    )
