"""What differs between the checks of a run and those of the last good run like it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llama_load.analysis.results.run_summary import SummaryCheck
from llama_load.page.run_files import RunFiles
from llama_load.page.run_list_page import ListedRun, listed_runs
from llama_load.page.run_view import summary_in
from llama_load.run_folder.vocabulary.verdict_words import VALID

# More differences are counted.
MOST_SHOWN = 8
NOT_THERE = "not checked"


@dataclass(frozen=True, slots=True)
class LastGoodRun:
    """The last run like this one that was VALID, if only as far as seen.

    `changed`: checks that fail now, each with its text now and then; `more`: how many others.
    """

    run: ListedRun
    changed: Sequence[tuple[str, str]]
    more: int


def last_good_run(files: RunFiles, name: str) -> LastGoodRun | None:
    """The newest earlier VALID run with the same label, workload, load and model.

    None where there is none, or where a verdict cannot be read.
    """
    runs = listed_runs(files)
    this = next((run for run in runs if run.name == name), None)
    if this is None:
        return None

    for run in runs:
        is_like = (run.title, run.about) == (this.title, this.about)
        if is_like and run.verdict.startswith(VALID) and run.date < this.date:
            return _against_good(files, name, run)
    return None


def _against_good(files: RunFiles, name: str, good: ListedRun) -> LastGoodRun | None:
    checks = _checks_of(files, name)
    before = _checks_of(files, good.name)
    if checks is None or before is None:
        return None

    changed = []
    for key, check in checks.items():
        if not check.ok and (key not in before or before[key].ok):
            then = before[key].text if key in before else NOT_THERE
            changed.append((_text_of(check), then))

    more = max(0, len(changed) - MOST_SHOWN)
    return LastGoodRun(good, changed[:MOST_SHOWN], more)


def _checks_of(
    files: RunFiles, name: str
) -> dict[tuple[str, str | None], SummaryCheck] | None:
    """The checks of a run by their names and stages."""
    summary = summary_in(files, name)
    if summary is None or summary.verdict is None:
        return None
    return {(check.name, check.stage): check for check in summary.verdict.checks}


def _text_of(check: SummaryCheck) -> str:
    if check.stage:
        return f"stage {check.stage}: {check.text}"
    return check.text
