"""Tables of a sweep: rows of equal settings become one, repeats a mean with its spread, the best is marked, what is missing has a
reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from llama_load import tables
from llama_load.comparison.warnings import replaced_in
from llama_load.lab.sweep.estimate import Estimate, estimate, reach_of_cost
from llama_load.lab.sweep.grammar import REQUESTS
from llama_load.lab.sweep.plan import Column, Plan, Table
from llama_load.lab.sweep.ranking import (
    OF_SERVERS,
    Ranking,
    concerns,
    quality_reason,
    ranking_of,
    reasons_between,
    row_name,
    side_of,
    texts_of,
)
from llama_load.lab.sweep.rows import CLIENT_TIMES, Row
from llama_load.lab.sweep.values import BY_GPU, HIGHER, LOWER, OF_REQUESTS, describe
from llama_load.metrics.verdict_words import BLURRED, CLIENT_BOUND, VALID
from llama_load.observed.record import OK
from llama_load.reports.request_table import RequestRow
from llama_load.tables.numbers import fixed
from llama_load.units import quantity

MISSING = "NA"
NO_REQUESTS = "no request succeeded, or there were over 64"
NOT_RANKED = "†"
DIMENSIONS = ("server", "workload", "load", "concurrency")
_PLACE_OF_REQUESTS = {value.key: place for place, value in enumerate(OF_REQUESTS)}
_CLIENT_NOTE = f"{CLIENT_TIMES} from TTFT or TPOT, which include HTTP and the network: the server reports no timings of its own"


@dataclass(frozen=True, slots=True)
class _Missing:
    """A note: a figure of this row is missing, and why."""

    row: str
    heading: str
    why: str


Note = str | _Missing


def make_tables(plan: Plan, rows: Sequence[Row]) -> list[tables.Table]:
    """All tables that the plan asks for."""
    made = []
    for table in plan.tables or (default_table(plan, rows),):
        chosen = [row for row in rows if _is_in(row, table.where)]
        for name, part in _groups(chosen, table.group_by):
            title = " - ".join(filter(None, (table.title, name)))
            shown = replace(table, columns=tuple(_columns(table, part, plan)))
            made.append((_of_requests if table.rows == REQUESTS else _of_cells)(shown, title, part, plan))
    return made


def default_table(plan: Plan, rows: Sequence[Row]) -> Table:
    """All that varies, then the main figures: those of tests if there are tests."""
    names = [*(["server"] if len(plan.servers) > 1 else []), *(setting.name for setting in plan.settings)]
    names += ["workload"] if len(plan.workloads) > 1 else []
    is_test = any(load.test for load in plan.loads)
    names += ["test"] if is_test else ["load"] if len(plan.loads) > 1 else []
    if not is_test and len({row.facts.get("concurrency") for row in rows}) > 1:
        names.append("concurrency")
    searched = [load.search is not None for load in plan.loads]
    figures = (
        ["ts"]
        if is_test
        else []
        if all(searched)
        else ["success_rate", "request_throughput", "output_throughput", "mean_ttft_ms", "mean_tpot_ms"]
    )
    figures += ["capacity", "capacity_interval", "binds"] if any(searched) else []
    figures += ["perplexity", "bits_per_byte"] if plan.perplexity else []
    return Table(tuple(Column(name) for name in [*(names or ["server"]), *figures]), title=plan.title)


def _is_in(row: Row, where: Mapping[str, list[str]]) -> bool:
    return all(row.fact(name) in map(str, values) for name, values in where.items())


def _groups(rows: Sequence[Row], name: str) -> Iterable[tuple[str, list[Row]]]:
    if not name:
        return [("", list(rows))]
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.fact(name), []).append(row)
    return groups.items()


def _of_requests(table: Table, title: str, rows: Sequence[Row], plan: Plan) -> tables.Table:
    """A row per request. Their figures are texts already."""
    lines = []
    notes = []
    for row in rows:
        if not row.requests:
            notes.append(f"{MISSING}: {row_name(row, plan)}: {row.reason or NO_REQUESTS}")
        if not row.reason:
            notes += _notes_of_requests(row, plan)
        for request in row.requests:
            texts = []
            for column in table.columns:
                place = _PLACE_OF_REQUESTS.get(column.value)
                text = row.fact(column.value) if place is None else _texts_of(request)[place]
                text = column.labels.get(text, text)
                is_marked = column.value == OF_REQUESTS[0].key and request.status != OK
                texts.append(f"{text} ({request.status})" if is_marked else text)
            lines.append(texts)
    for name in reversed(table.sort_by):
        place = next((place for place, column in enumerate(table.columns) if column.value == name), None)
        if place is not None:
            lines.sort(key=lambda texts: texts[place])
    return _made(table, title, [[tables.Cell(text) for text in texts] for texts in lines], notes)


def _texts_of(request: RequestRow) -> list[str]:
    """A request's cells, in the order of `values.OF_REQUESTS`."""
    return [request.task, *(cell.text for cell in request.figures)]


def _notes_of_requests(row: Row, plan: Plan) -> Iterable[str]:
    """What a reader of the requests of one run must know: how many failed, what the verdict is, and what the run found."""
    failed = sum(request.status != OK for request in row.requests)
    if failed:
        yield f"{row_name(row, plan)}: {failed} of {quantity(len(row.requests), 'request')} failed: {row.fact('reasons')}"
    if row.cause and row.fact("verdict") != VALID:
        yield f"{row_name(row, plan)}: {row.cause}"
    yield from replaced_in([side_of(plan, [row])])
    yield from _found(row, plan)


def _found(row: Row, plan: Plan) -> Iterable[str]:
    """What the run found, such as what most of a request's time was."""
    return [f"{row_name(row, plan)}: {sentence}" for sentence in row.sentences]


def _of_cells(table: Table, title: str, rows: Sequence[Row], plan: Plan) -> tables.Table:
    """A row per combination of settings, with repeats merged; settings that a column fixes by `where` are merged too."""
    fixed = {name for column in table.columns for where in (column.where, column.against) for name in where} | {"repeat"}
    names = [name for name in (*DIMENSIONS, *(setting.name for setting in plan.settings)) if name not in fixed]
    merged: dict[tuple[str, ...], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.place):
        merged.setdefault(tuple(row.fact(name) for name in names), []).append(row)
    groups = list(merged.values())
    for name in reversed(table.sort_by):
        groups.sort(key=lambda group: _natural(group[0].fact(name)))
    notes: list[Note] = []
    columns = [_column(column, groups, plan, notes) for column in table.columns]
    cells = list(dict.fromkeys(zip(*columns, strict=True))) if groups else []  # what is of the server alone is there once
    unranked = [group for group in groups if not all(row.is_ranked or row.reason for row in group)]
    if any(describe(column.value).best and column.value not in OF_SERVERS for column in table.columns):
        for group in unranked:
            causes = dict.fromkeys(row.cause for row in group if not row.is_ranked and not row.reason)
            notes.append(f"{NOT_RANKED} {row_name(group[0], plan)}: not ranked: {'; '.join(causes)}")
    if any(not describe(column.value).is_text and column.value not in OF_SERVERS for column in table.columns):
        notes += [note for group in groups for note in _doubts(group, plan)]
    return _made(table, title, cells, notes)


def _columns(table: Table, rows: Sequence[Row], plan: Plan) -> Iterable[Column]:
    """The columns, with what they leave open; one for each GPU of the row that has most, numbered from 0."""
    gpus = max((sum(name.startswith(f"{BY_GPU}.") for name in row.figures) for row in rows), default=0)
    for column in table.columns:
        several = [replace(column, value=f"{BY_GPU}.{n}", name=column.name and f"{column.name} {n}") for n in range(max(1, gpus))]
        for each in several if column.value == BY_GPU else [column]:
            value = describe(each.value)
            decimals = (2 if each.loss_against else 3) if each.against else value.decimals
            yield replace(
                each,
                name=each.name or value.heading(plan.language),
                best=each.best or ("" if each.against else value.best),
                decimals=decimals if each.decimals is None else each.decimals,
                align=each.align or (tables.LEFT if value.is_text else tables.RIGHT),
            )


def _doubts(group: Sequence[Row], plan: Plan) -> Iterable[str]:
    """What a reader of a row must know: repeats that are not in its figures, and figures that are partly the client's."""
    failed = [row for row in group if row.reason]
    if failed and len(failed) < len(group):
        reasons = dict.fromkeys(row.reason for row in failed)
        left_out = f"{len(failed)} of {len(group)} runs are not in its figures"
        yield f"{NOT_RANKED} {row_name(group[0], plan)}: {left_out}: {'; '.join(reasons)}"
    yield from replaced_in([side_of(plan, group)])
    for row in group:
        if row.common_note:
            yield f"{row_name(row, plan)}: {row.common_note}; {row.cause}"
    for row in [row for row in group if row.is_ranked][:1]:
        yield from _found(row, plan)
    # Tests use the server's own times where it reports them.
    words = (BLURRED,) if all(row.run is not None for row in group) else (CLIENT_BOUND, BLURRED)  # else it is not ranked
    limited = [row for row in group if row.is_ranked and row.fact("verdict") in words and not row.fact("test")]
    if limited:
        yield f"{row_name(group[0], plan)}: {'; '.join(dict.fromkeys(row.cause for row in limited))}"


def _natural(text: str) -> tuple[int, float, str]:
    """Numbers by value, before texts."""
    try:
        return 0, float(text.removeprefix("c=")), text
    except ValueError:
        return 1, 0.0, text


def _column(column: Column, groups: Sequence[Sequence[Row]], plan: Plan, notes: list[Note]) -> list[tables.Cell]:
    value = describe(column.value)
    if value.is_text:
        return [tables.Cell(_fact(column, [row for row in group if _is_in(row, column.where)] or group)) for group in groups]
    results = [_figure(column, group) for group in groups]
    chosen = [[row for row in group if _is_in(row, column.where)] for group in groups]
    ranking = ranking_of(plan, chosen)
    best = _best(column, chosen, results, ranking, plan)
    notes += _not_ranked(column, chosen, results, ranking, plan)
    cells = []
    for place, (group, result) in enumerate(zip(groups, results, strict=True)):
        own = chosen[place]
        if result is None and column.value.startswith(f"{BY_GPU}.") and not column.value.endswith(".0"):
            cells.append(tables.Cell(""))  # it has fewer GPUs than another
            continue
        if result is None:
            cells.append(tables.Cell(MISSING))
            row = (own or group)[0]
            why = row.why_missing(column.value) if own else "there is no such cell"
            heading = column.name if own and not row.reason else ""
            name = row_name(replace(row, is_stage=False) if column.value in OF_SERVERS else row, plan)
            notes.append(_Missing(name, heading, why))
            continue
        may_be_ranked = _may_be_ranked(own, column) and not _reasons(column, ranking, place)
        if column.against:
            there = [row for row in group if _is_in(row, column.against)]
            apart = [reason for reason in reasons_between(plan, own, there) if concerns(reason, column.value)]
            notes += [f"{NOT_RANKED} {column.name}: {text}" for text in texts_of(apart)]
            may_be_ranked = may_be_ranked and _may_be_ranked(there, column) and not apart
            own = own + there
        mark = next((row.marks[column.value] for row in own if column.value in row.marks), "")
        if mark == CLIENT_TIMES:
            notes.append(_CLIENT_NOTE)
        if not mark and value.best and not may_be_ranked:
            mark = NOT_RANKED
        text = " ".join(filter(None, (_text(column, result), mark)))
        cells.append(tables.Cell(text, result.mean, is_best=place in best))
    return cells


def _not_ranked(
    column: Column,
    groups: Sequence[Sequence[Row]],
    results: Sequence[Estimate | None],
    ranking: Ranking,
    plan: Plan,
) -> Iterable[str]:
    """Why rows of a column that would have a best are not ranked, or not against each other."""
    if column.best not in (HIGHER, LOWER):
        return
    if column.value in OF_SERVERS:
        if column.value == "perplexity" and (why := quality_reason(plan, groups)):
            yield why
        return
    for places in ranking.classes:
        for place in places:
            if results[place] is not None and _may_be_ranked(groups[place], column):
                yield from (f"{NOT_RANKED} {text}" for text in texts_of(ranking.against(place, column.value)))
        ranked = _ranked(column, groups, results, ranking, places)
        yield from (f"not ranked against each other: {text}" for text in texts_of(ranking.between(ranked, column.value)))


def _reasons(column: Column, ranking: Ranking, place: int) -> Sequence[object]:
    """Why a row is not ranked in this column; of a server alone no load is a reason."""
    return () if column.value in OF_SERVERS else ranking.against(place, column.value)


def _fact(column: Column, rows: Sequence[Row]) -> str:
    if column.value == "repeats":
        return str(len({row.repeat for row in rows}))
    texts = dict.fromkeys(column.labels.get(text, text) for row in rows if (text := row.fact(column.value)))
    return " / ".join(texts)


def _figure(column: Column, group: Sequence[Row]) -> Estimate | None:
    here = _estimate_of(column, group, column.where)
    if not column.against or here is None:
        return here
    there = _estimate_of(column, group, column.against)
    if there is None or not there.mean or not here.mean:
        return None
    if column.loss_against:
        return Estimate(100 * (1 - here.mean / there.mean))
    return Estimate(1e3 / here.mean - 1e3 / there.mean, reach=reach_of_cost(here, there))


def _estimate_of(column: Column, group: Sequence[Row], where: Mapping[str, list[str]]) -> Estimate | None:
    """Over requests for values that have one per request, else over runs."""
    rows = [row for row in group if _is_in(row, where) and not row.reason]
    values = [value for row in rows for value in row.samples.get(column.value, [])]
    if not values:
        values = [value for row in rows if (value := row.number(column.value)) is not None]
    measured = estimate([value * column.scale for value in values])
    # A figure that is measured once may have an error by itself: `perplexity_error` of perplexity.
    own = next((error for row in rows if (error := row.number(f"{column.value}_error")) is not None), None)
    return measured if measured is None or own is None or measured.std else replace(measured, std=own * column.scale)


def _ranked(
    column: Column, groups: Sequence[Sequence[Row]], results: Sequence[Estimate | None], ranking: Ranking, places: Sequence[int]
) -> list[int]:
    """Those of these places that may be ranked in this column, each by itself."""
    return [
        place for place in places
        if results[place] is not None and _may_be_ranked(groups[place], column) and not _reasons(column, ranking, place)
    ]  # fmt: skip


def _best(
    column: Column, groups: Sequence[Sequence[Row]], results: Sequence[Estimate | None], ranking: Ranking, plan: Plan
) -> frozenset[int]:
    """The places with the best figure as it is printed, of each class with two figures or more that may be ranked."""
    if column.best not in (HIGHER, LOWER) or (column.value == "perplexity" and quality_reason(plan, groups)):
        return frozenset()
    is_of_servers = column.value in OF_SERVERS
    best: set[int] = set()
    for places in [range(len(groups))] if is_of_servers else ranking.classes:
        ranked = _ranked(column, groups, results, ranking, places)
        if not is_of_servers and ranking.between(ranked, column.value):
            continue
        means = {place: round(result.mean, column.decimals) for place in ranked if (result := results[place]) is not None}
        if len(set(means.values())) < 2 or (column.value == "duration" and not _same_count(groups, ranked)):
            continue
        top = max(means.values()) if column.best == HIGHER else min(means.values())
        best |= {place for place, mean in means.items() if mean == top}
    return frozenset(best)


def _same_count(groups: Sequence[Sequence[Row]], places: Sequence[int]) -> bool:
    """Whether the same number of requests was answered: durations of others are not ranked."""
    return len({row.figures.get("completed") for place in places for row in groups[place] if row.is_ranked}) == 1


def _may_be_ranked(rows: Sequence[Row], column: Column) -> bool:
    """What is of the server alone does not depend on the verdict of a load test."""
    return all(row.is_ranked_in(column.value) or (column.value in OF_SERVERS and not row.reason) for row in rows)


def _text(column: Column, result: Estimate) -> str:
    text = fixed(result.mean, column.decimals or 0)
    if column.spread is not False and result.std is not None and not column.against:
        text += f" ± {fixed(result.std, column.decimals or 0)}"
    if result.reach is not None:
        low, high = [fixed(end, column.decimals or 0) for end in (result.mean - result.reach, result.mean + result.reach)]
        text += f" ({low} to {high})"
    return text + column.unit


def _made(table: Table, title: str, cells: Sequence[tables.Row], notes: Sequence[Note]) -> tables.Table:
    """The table with its headings and notes. Figures of one row that are missing for one reason share a note."""
    headings: dict[_Missing, list[str]] = {}
    for note in notes:
        if isinstance(note, _Missing):
            headings.setdefault(replace(note, heading=""), []).append(note.heading)
    texts = []
    for note in notes:
        if isinstance(note, _Missing):
            named = ", ".join(dict.fromkeys(filter(None, headings[replace(note, heading="")])))
            texts.append(": ".join(filter(None, (MISSING, note.row, named, note.why))))
        else:
            texts.append(note)
    heads = [tables.Column(column.name, column.align, width=column.width) for column in table.columns]
    return tables.Table(title, heads, cells, tuple(dict.fromkeys(filter(None, [*texts, table.note]))), table.style)
