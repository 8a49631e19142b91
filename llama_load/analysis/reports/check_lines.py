"""The checks of a verdict, arranged by the six statements, and those before the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llama_load.analysis.checks.small_print import unseen_flaws
from llama_load.analysis.checks.statements import Statement, arranged, remarks
from llama_load.analysis.checks.verdict import Verdict
from llama_load.analysis.figures.check import UNKNOWN, Check
from llama_load.ground.languages import Translate
from llama_load.run_folder import PreflightRow
from llama_load.run_folder.vocabulary.thresholds import ThresholdResult
from llama_load.tables import LEFT, Cell, Column, Row, Table
from llama_load.tables.text_width import wrapped


def check_lines(checks: Sequence[Check], width: int) -> Iterator[str]:
    """A line per statement with its checks below it, one of what the server cannot show, the notes.

    Below a check that failed are its limit and what to do.
    """
    for statement in arranged(checks):
        title = f"{statement.mark} {statement.title}"
        yield from _wrapped_line(f"{title}: {statement.text}", width)
        for check in statement.checks:
            if check.unseen:
                continue
            yield from _wrapped_line(
                f"  {check.mark} {where(check)}{check.text}", width
            )
            if not check.ok:
                yield from _wrapped_line(f"    {limit_and_remedy(check)}", width)

    if flaws := unseen_flaws(checks):
        yield from _wrapped_line(f"{UNKNOWN} {flaws}", width)

    if notes := remarks(checks):
        yield "  Notes"
        for check in notes:
            yield from _wrapped_line(f"    {where(check)}{check.text}", width)


def check_table(
    verdict: Verdict, thresholds: Sequence[ThresholdResult], t: Translate
) -> Table:
    """A row per statement with a row per check below it, then notes and thresholds.

    A check that failed has its limit and what to do.
    """
    heads = [
        Column("", LEFT),
        Column(t("Check"), LEFT),
        Column(t("Limit")),
        Column(t("What to do"), LEFT, is_long=True),
    ]
    rows: list[Row] = []
    for statement in arranged(verdict.checks):
        rows.append(_statement_row(statement, t))
        rows += [_check_row(check, t) for check in statement.checks if not check.unseen]

    if flaws := unseen_flaws(verdict.checks, t):
        rows.append([UNKNOWN, flaws, "", ""])

    for note in remarks(verdict.checks):
        rows.append(["", note.text, "", ""])
    for threshold in thresholds:
        mark = Cell("!", tone="warning") if threshold.failed else Cell("✓")
        rows.append([mark, threshold.line, "", ""])

    return Table(t("Checks of the verdict"), heads, rows)


def _statement_row(statement: Statement, t: Translate) -> Row:
    name = t(statement.name)
    if statement.ok is None:
        name += f" ({t('not known')})"
    text = f"{name}: {t(statement.text)}"
    return [statement.mark, Cell(text, is_best=True), "", ""]


def _check_row(check: Check, t: Translate) -> Row:
    text = check.text
    if check.stage:
        text = f"{t('stage')} {check.stage}: {text}"

    remedy = ""
    if not check.ok:
        remedy = check.remedy or ""

    return [check.mark, text, check.limit_text, remedy]


def preflight_table(rows: Sequence[PreflightRow], t: Translate) -> Table | None:
    """What was checked before the run; None if nothing was."""
    if not rows:
        return None

    marks = {"ok": Cell("✓"), "note": Cell(""), "warning": Cell("!", tone="warning")}
    result = Column(t("Result"), LEFT, is_long=True)
    heads = [Column("", LEFT), Column(t("Check"), LEFT), result]
    cells: list[Row] = []
    for row in rows:
        mark = marks.get(row.level, Cell(""))  # run.json may be anybody's
        cells.append([mark, row.name, row.value])

    return Table(t("Before the run"), heads, cells)


def where(check: Check) -> str:
    """The stage that a check belongs to, in front of its sentence."""
    if check.stage is None:
        return ""
    return f"stage {check.stage}: "


def limit_and_remedy(check: Check) -> str:
    """What a failed check adds to its sentence: `limit 0.01; add --ignore-eos`."""
    limit = f"limit {check.limit_text}"
    if not check.remedy:
        return limit
    return f"{limit}; {check.remedy}"


def statements_json(checks: Sequence[Check]) -> list[dict[str, object]]:
    """The six statements for summary.json.

    Each with whether it holds (null: no evidence), the failed checks, and the missing evidence.
    """
    return [_statement_json(statement) for statement in arranged(checks)]


def _statement_json(statement: Statement) -> dict[str, object]:
    return {
        "name": statement.name,
        "text": statement.text,
        "ok": statement.ok,
        "failed": [check.name for check in statement.checks if not check.ok],
        "missing": statement.missing,
    }


def _wrapped_line(line: str, width: int) -> list[str]:
    """A line wrapped with its own indentation and two columns more."""
    text = line.lstrip()
    own = line.removesuffix(text)
    return list(wrapped(text, width, own, f"{own}  "))
