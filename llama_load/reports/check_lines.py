"""The checks of a verdict as lines of text, arranged by the six statements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llama_load.metrics.check import Check
from llama_load.metrics.statements import Statement, arranged, limit_text, mark, remarks
from llama_load.reports.layout import wrapped


def check_lines(checks: Sequence[Check], width: int) -> Iterator[str]:
    """A line per statement, its checks below it, and the limit and what to do below a check that failed; then the notes."""
    for statement in arranged(checks):
        yield from _wrapped(f"{statement.mark} {statement.name}: {statement.text}", width)
        for check in statement.checks:
            yield from _wrapped(f"  {mark(check)} {where(check)}{check.text}", width)
            if not check.ok:
                yield from _wrapped(f"    {limit_and_remedy(check)}", width)
    if found := remarks(checks):
        yield "  Notes"
        for check in found:
            yield from _wrapped(f"    {where(check)}{check.text}", width)


def where(check: Check) -> str:
    """The stage that a check belongs to, in front of its sentence."""
    return "" if check.stage is None else f"stage {check.stage}: "


def limit_and_remedy(check: Check) -> str:
    """What a failed check adds to its sentence: `limit 0.01; add --ignore-eos`."""
    return "; ".join([f"limit {limit_text(check)}", *([check.remedy] if check.remedy else [])])


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
