"""The figures that a failed check spoils, and the stages that it is about."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol, TypeVar

from llama_load.analysis.statistics.statistics import Distribution
from llama_load.run_folder.vocabulary.definitions import LATENCIES
from llama_load.run_folder.vocabulary.definitions import RATES as RATE_KEYS

TTFT = "TTFT"
TPOT = "TPOT"
ITL = "ITL"
E2EL = "E2EL"
RATES = "rates"  # requests and tokens per second
UPPER = "upper percentiles"  # p90 and above, of every latency
COUNTS = "counts"  # of tokens
PROBES = "probes"  # the figures of probes alone
# with other runs: another load, another server or other answers were measured
COMPARISON = "comparisons"
ALL = "all figures"
OF_SPEED = (TTFT, TPOT, ITL, E2EL, RATES)  # what a slower server changes
# Stands beside a spoiled figure, in every output.
SPOILED_MARK = "!"

# The latencies of `definitions.LATENCIES` that each of them stands for.
_KEYS = {
    TTFT: ("ttft", "scheduled_ttft", "answer_ttft"),
    TPOT: ("tpot",),
    ITL: ("itl",),
    E2EL: ("e2el", "scheduled_e2el", "e2el_per_token"),
}
# And those that are spoiled with it, of which it is more than the name.
_LATENCIES_BESIDE = {COUNTS: ("e2el_per_token",)}
_COUNT_KEYS = (
    "total_input_tokens",
    "total_output_tokens",
    "total_token_throughput",
    "output_throughput",
)
LEAST_UPPER = 90.0  # upper percentiles are those from here on
_RATE_OF_CHARS = "output_chars_per_s"  # no metric that runs are compared by
_WORDS = ("mean", "median", "std")
# What a proxy or a count does in one stage, it does in all, where it may be below the limit.
_LASTING = frozenset(
    (
        "unexplained_ratio",
        "buffered_ratio",
        "held_back_ratio",
        "stretched_stream_ratio",
        "early_first_ratio",
        "second_group_ratio",
        "count_gap_ratio",
        "uncounted_ratio",
    )
)


# A check of the run about stages that did not end: the others have their figures.
OF_MISSING_STAGES = "missing_stages"


class Judged(Protocol):
    """A check: its name, whether it is good, and its stage, None for the whole run."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def ok(self) -> bool: ...  # noqa: D102
    @property
    def stage(self) -> str | None: ...  # noqa: D102


C = TypeVar("C", bound=Judged)


def are_whole(spoils: Collection[str]) -> bool:
    """Whether the run as a whole is spoiled, and not only some of its figures."""
    return ALL in spoils or COMPARISON in spoils


def spoiled_latencies(spoils: Collection[str]) -> tuple[str, ...]:
    """The latencies, by their keys, whose every figure is spoiled: TTFT: ttft, scheduled_ttft,
    answer_ttft."""
    latencies = _KEYS | _LATENCIES_BESIDE
    return tuple(key for name in spoils for key in latencies.get(name, ()))


def named(
    spoils: Collection[str], distributions: Mapping[str, Distribution]
) -> list[str]:
    """Those of the spoiled figures that the run has: answers that were not streamed, or are
    vectors, have no TTFT."""
    names = []
    for name in spoils:
        counts = [distributions[key].count for key in _KEYS.get(name, ())]
        if name not in _KEYS or any(counts):
            names.append(name)
    return names


def spoiled_keys(spoils: Collection[str], percentiles: Iterable[float]) -> list[str]:
    """The keys of summary.json that are spoiled, for these percentiles; none for `ALL` and
    `COMPARISON`, which the word says."""
    keys: list[str] = []
    percentiles = list(percentiles)
    words = [*_WORDS, *(f"p{p:g}" for p in percentiles)]
    for key in spoiled_latencies(spoils):
        keys += [f"{word}_{key}_ms" for word in words]
    if UPPER in spoils:
        upper = [f"p{p:g}" for p in percentiles if p >= LEAST_UPPER]
        for latency in LATENCIES:
            keys += [f"{word}_{latency.key}_ms" for word in upper]
    if RATES in spoils:
        keys += RATE_KEYS
        keys.append(_RATE_OF_CHARS)
    if COUNTS in spoils:
        keys += _COUNT_KEYS
    return list(dict.fromkeys(keys))


def failed_in(checks: Iterable[C], stage: str) -> list[C]:
    """The failed checks about a stage, the same in summary.json, sweeps and comparisons: its own,
    those of the whole run, and those of what lasts.

    Where a check of the whole run failed in single stages, its failure is theirs: 12 of 20 requests
    that failed at 16 users are a tenth of the run, and nothing at 1 user.
    """
    failed = [check for check in checks if not check.ok]
    of_stages = {check.name for check in failed if check.stage is not None}
    of_stages.add(OF_MISSING_STAGES)
    about = []
    for check in failed:
        is_of_run = check.stage is None and check.name not in of_stages
        is_own = check.stage == stage
        lasts = check.name in _LASTING
        if is_of_run or is_own or lasts:
            about.append(check)
    return about
