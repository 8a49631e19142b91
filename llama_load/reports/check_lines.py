"""The checks of a verdict, arranged by the six statements, and those before the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llama_load.metrics.check import Check
from llama_load.metrics.statements import Statement, arranged, remarks
from llama_load.metrics.thresholds import ThresholdResult
from llama_load.metrics.verdict import Verdict
from llama_load.reports.translations import Translate
from llama_load.run_folder import PreflightRow
from llama_load.tables import LEFT, Cell, Column, Row, Table
from llama_load.tables.text_width import wrapped


def check_lines(checks: Sequence[Check], width: int) -> Iterator[str]:
    """A line per statement, its checks below it, and the limit and what to do below a check that failed; then the notes."""
    for statement in arranged(checks):
        yield from _wrapped(f"{statement.mark} {statement.title}: {statement.text}", width)
        for check in statement.checks:
            yield from _wrapped(f"  {check.mark} {where(check)}{check.text}", width)
            if not check.ok:
                yield from _wrapped(f"    {limit_and_remedy(check)}", width)
    if notes := remarks(checks):
        yield "  Notes"
        for check in notes:
            yield from _wrapped(f"    {where(check)}{check.text}", width)


def check_table(verdict: Verdict, thresholds: Sequence[ThresholdResult], t: Translate) -> Table:
    """A row per statement and, below it, per check, with the limit and what to do where it failed; then notes and thresholds."""
    heads = [Column("", LEFT), Column(t("Check"), LEFT), Column(t("Limit")), Column(t("What to do"), LEFT, is_long=True)]
    rows: list[Row] = []
    for statement in arranged(verdict.checks):
        known = "" if statement.ok is not None else f" ({t('not known')})"
        rows.append([statement.mark, Cell(f"{t(statement.name)}{known}: {t(statement.text)}", is_best=True), "", ""])
        for check in statement.checks:
            stage = f"{t('stage')} {check.stage}: " if check.stage else ""
            rows.append([check.mark, stage + check.text, check.limit_text, "" if check.ok else check.remedy or ""])
    rows += [["", check.text, "", ""] for check in remarks(verdict.checks)]
    rows += [[Cell("!", tone="warning") if threshold.failed else "✓", threshold.line, "", ""] for threshold in thresholds]
    return Table(t("Checks of the verdict"), heads, rows)


def preflight_table(rows: Sequence[PreflightRow], t: Translate) -> Table | None:
    """What was checked before the run; None if nothing was."""
    marks = {"ok": Cell("✓"), "note": Cell(""), "warning": Cell("!", tone="warning")}
    heads = [Column("", LEFT), Column(t("Check"), LEFT), Column(t("Result"), LEFT, is_long=True)]
    cells: list[Row] = [[marks[row.level], row.name, row.value] for row in rows]
    return Table(t("Before the run"), heads, cells) if rows else None


def where(check: Check) -> str:
    """The stage that a check belongs to, in front of its sentence."""
    return "" if check.stage is None else f"stage {check.stage}: "


def limit_and_remedy(check: Check) -> str:
    """What a failed check adds to its sentence: `limit 0.01; add --ignore-eos`."""
    return "; ".join([f"limit {check.limit_text}", *([check.remedy] if check.remedy else [])])


def statements_json(checks: Sequence[Check]) -> list[dict[str, object]]:
    """The six statements for summary.json: whether each holds (null: no evidence), the failed checks, and the missing evidence."""
    return [_statement(statement) for statement in arranged(checks)]


def _statement(statement: Statement) -> dict[str, object]:
    return {
        "name": statement.name,
        "text": statement.text,
        "ok": statement.ok,
        "failed": [check.name for check in statement.checks if not check.ok],
        "missing": statement.missing,
    }


def _wrapped(line: str, width: int) -> list[str]:
    """A line wrapped with its own indentation and two columns more."""
    text = line.lstrip()
    own = line.removesuffix(text)
    return list(wrapped(text, width, own, f"{own}  "))
