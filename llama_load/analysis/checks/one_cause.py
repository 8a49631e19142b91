"""One cause, one remedy: where other programs took the machine, or prompts came from a cache, the
checks that this broke say what to do once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from llama_load.analysis.checks.machine import NAME as OTHERS_RATIO
from llama_load.analysis.checks.machine import OF_OTHERS
from llama_load.analysis.figures.check import Check
from llama_load.analysis.figures.check_limits import CHANGED, OTHERS_WAY_ON
from llama_load.analysis.figures.cpu_shares import OTHERS, cpu_shares
from llama_load.analysis.figures.evidence import Evidence
from llama_load.run_folder.vocabulary.verdict_words import ALONE, SEEN

# Of the statements Seen and Alone, what a busy machine does not cause: missing records, other
# clients, failed requests.
NOT_CAUSED = frozenset(
    (
        "missing_records",
        "lost_requests",
        "damaged_records",
        "crossing_ratio",
        "cut_shift",
        "failed_shift",
        "aborted_shift",
        "probe_cut_shift",
        "other_client_ratio",
        "probe_token_ratio",
        "tokens_per_event",
        "buffered_ratio",  # which knows whether the client was late
    )
)
# Prompts that came from a cache, and the checks that see what this does to latencies.
CACHED = frozenset(
    ("cached_prompt_ratio", "server_cache_hit_ratio", "repeated_prompt_ratio")
)
OF_CACHED = frozenset(
    (
        CHANGED,
        "second_group_ratio",
        "cold_start_ratio",
        "outlier_shift",
        "early_first_ratio",
        "in_flight_imbalance",
    )
)


def causes_first(bad: Sequence[Check]) -> list[Check]:
    """The failed checks, the gravest first; of those with the word of a check that found another
    program or cached prompts this one is the first, and what cached prompts explain has no remedy
    of its own."""
    causes = [check for check in bad if check.name in CACHED]
    causes = [check for check in bad if check.name == OTHERS_RATIO] or causes
    cause = next(iter(causes), None)
    if cause is None:
        return list(bad)
    others = []
    for check in bad:
        if check.name in OF_CACHED and cause.name in CACHED:
            check = replace(check, advice="")
        if check is not cause:
            others.append(check)

    words = [check.word for check in others]
    place = words.index(cause.word) if cause.word in words else bad.index(cause)
    others.insert(place, cause)
    return others


def with_one_remedy(bad: Sequence[Check], evidence: Evidence) -> list[Check]:
    """The failed checks, the gravest first; where others took the machine, the first one that this
    explains has the remedy, and the later ones have none."""
    remedy = _remedy(bad, evidence)
    if remedy is None:
        return list(bad)
    kept: list[Check] = []
    for check in bad:
        is_caused = check.statement in (SEEN, ALONE) and check.name not in NOT_CAUSED
        kept.append(replace(check, advice=remedy) if is_caused else check)
        if is_caused:
            remedy = ""
    return kept


def _remedy(bad: Sequence[Check], evidence: Evidence) -> str | None:
    """What to do about other programs; None where they did not take the machine."""
    shares = cpu_shares(evidence.health)
    if shares is None:
        return None
    if shares.taken_by == OTHERS or any(check.name in OF_OTHERS for check in bad):
        took = f"other programs took {shares.others:.0%} of the client's machine"
        if evidence.shared_machine:
            return f"{took}, as declared"
        is_said = bool(bad) and bad[0].name in OF_OTHERS
        return OTHERS_WAY_ON if is_said else f"{took}: {OTHERS_WAY_ON}"
    return None
