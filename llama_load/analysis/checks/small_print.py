"""What a valid run could not have seen: the small print beneath its word."""

from __future__ import annotations

from collections.abc import Sequence

from llama_load.analysis.checks.statements import arranged
from llama_load.analysis.figures.check import Check
from llama_load.analysis.figures.check_limits import CHANGED
from llama_load.ground.languages import Translate
from llama_load.run_folder.vocabulary.verdict_words import AS_FAR_AS_SEEN, VALID

# Below this detection limit of a change a run is VALID, with the limit beneath the word. What is
# twice as slow for a third of the time moves a mean by a third; few requests show such a change in
# their gaps alone.
LEAST_UNSTATED = 2.0


def small_print(
    checks: Sequence[Check], requests: int, t: Translate = str
) -> tuple[str, list[str]]:
    """The word of a run without a failed check, and a sentence for each thing it could not see.

    `VALID`: a change is stated by the smallest that would have been named, and what the server does
    not show in one sentence. `VALID as far as seen`: a change would have had to be large, or the
    run itself gave no evidence of a main check (too few requests, a client that was not watched).
    `requests`: those answered.
    """
    word = VALID
    stated = []
    unjudged = []
    for statement in arranged(checks):
        for check in statement.open_questions:
            if check.unseen:
                continue
            if check.name != CHANGED or check.detects is None:
                unjudged.append(check)
                continue
            stated.append(_detection_limit(check, requests, t))
            if check.detects >= LEAST_UNSTATED:
                word = AS_FAR_AS_SEEN

    if unjudged:
        word = AS_FAR_AS_SEEN
        first, *others = unjudged
        stated.append(first.text)
        names = []
        for check in others:
            name = t(check.statement or "")
            if check.statement != first.statement and name not in names:
                names.append(name)
        if names:
            stated.append(f"{t('also not known')}: {', '.join(names)}")

    flaws = unseen_flaws(checks, t)
    if flaws:
        stated.append(flaws)

    return word, stated


def unseen_flaws(checks: Sequence[Check], t: Translate = str) -> str:
    """What no run of this server can show, in one sentence: `this server does not show other
    clients, cached prompts`; empty where there is nothing."""
    flaws = []
    for check in checks:
        flaw = t(check.unseen)
        if flaw and flaw not in flaws:
            flaws.append(flaw)
    if not flaws:
        return ""

    text = t("this server does not show {flaws}")
    return text.format(flaws=", ".join(flaws))


def _detection_limit(check: Check, requests: int, t: Translate) -> str:
    """The smallest change that would have been named."""
    text = t("with {count} requests a slowdown below {factor} x would not show")
    factor = f"{check.detects:.1f}"
    return text.format(count=requests, factor=factor)
