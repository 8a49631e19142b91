"""Why sides must not be ranked: what spoils a side by itself, and what differs between two besides their speed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from llama_load.comparison.metrics import Metric
from llama_load.comparison.side import SGLANG, MeasuredRun, Side
from llama_load.metrics.check import BLURRED, CLIENT_BOUND, LIMITS
from llama_load.units import quantity

# Longer prompts and answers take longer: sides are not ranked if their mean lengths differ by more. So are shares of cached tokens.
MOST_UNLIKE = 0.02
# The share of the smaller side's prompts that the larger side must have sent too.
LEAST_SHARED_PROMPTS = 0.98
# Sides that open a connection for a different share of their requests: not ranked by TTFT if that makes more of it than this.
MOST_CONNECT = 0.01
MOST_FAILED = LIMITS["failure_ratio"].limit


@dataclass(frozen=True, slots=True)
class Reason:
    """Why the sides with these indices are not ranked: one by itself, or two against each other. `latency`: only by this one's
    figures (empty: by none). `flags`: those of llama-load that would avoid it. `kind`: what differs between two."""

    text: str
    sides: tuple[int, ...]
    latency: str = ""
    flags: tuple[str, ...] = ()
    kind: str = ""

    def concerns(self, metric: Metric) -> bool:
        """Whether it spoils this metric. What spoils TTFT or ITL spoils no other latency by more than the limits here."""
        return not self.latency or self.latency == metric.latency


def reasons_against(sides: Sequence[Side]) -> list[Reason]:
    """Every reason, those of single sides first."""
    own = [reason for index, side in enumerate(sides) for reason in _own(index, side)]
    spoilt = {index for reason in own if not reason.latency for index in reason.sides}
    good = [index for index, side in enumerate(sides) if side.runs and index not in spoilt]
    return own + [reason for a, b in combinations(good, 2) for reason in _between(a, sides[a], b, sides[b])]


# ---------------------------------------------------------------------- one side


def _own(index: int, side: Side) -> Iterator[Reason]:
    if not side.runs:
        yield Reason(f"{side.label} was not measured{f': {side.note}' if side.note else ''}", (index,))
    partial = [run for run in side.runs if run.failed > MOST_FAILED * (run.count("completed") + run.failed)]
    if partial:
        run = partial[0]
        answered = f"only {run.count('completed')} of {quantity(run.count('completed') + run.failed, 'request')} were answered"
        why = "these may be the short ones, and the others left the server idle"
        yield Reason(f"{_named(side, partial)} is partial: {answered}; {why}", (index,))
    flawed = [run for run in side.runs if run not in partial and set(run.words) - {BLURRED}]
    if flawed:
        flags = ("--processes", "2") if any(CLIENT_BOUND in run.words for run in flawed) else ()
        why = flawed[0].why or " and ".join(flawed[0].words)
        yield Reason(f"{_named(side, flawed)}: {why}", (index,), flags=flags)
    if blurred := [run for run in side.runs if BLURRED in run.words and run not in partial + flawed]:
        text = f"{_named(side, blurred)} is {BLURRED}: single gaps between its tokens cannot be told apart"
        yield Reason(text, (index,), "itl")
    if others := [run for run in side.runs if run.tool == SGLANG]:
        text = f"{SGLANG} divides gaps by the tokens in an event, so its ITL is not the gap between events"
        yield Reason(f"{_named(side, others)}: {text}", (index,), "itl")


def _named(side: Side, runs: Sequence[MeasuredRun]) -> str:
    """The side, and how many of its runs these are."""
    return side.label if len(side.runs) == 1 else f"{side.label} ({len(runs)} of {len(side.runs)} runs, first {runs[0].name})"


# ---------------------------------------------------------------------- two sides


def _between(a: int, side_a: Side, b: int, side_b: Side) -> Iterator[Reason]:
    pair, names = (a, b), f"{side_a.label} and {side_b.label}"
    share = _shared_prompts(side_a.runs, side_b.runs)
    if share is not None and share < LEAST_SHARED_PROMPTS:
        text = f"{names} were sent different prompts ({share:.0%} in common)"
        yield Reason(text, pair, flags=("--dataset-path", "FILE", "--seed", "0"), kind="different prompts")
    for what, name in (("prompts", "mean_input"), ("answers", "mean_output")):
        mean_a, mean_b = side_a.mean_of(name), side_b.mean_of(name)
        if mean_a and mean_b and not _alike(mean_a, mean_b):
            flags = ("--sharegpt-output-len", f"{min(mean_a, mean_b):.0f}", "--ignore-eos") if name == "mean_output" else ()
            apart = f"{max(mean_a, mean_b) / min(mean_a, mean_b) - 1:.1%}"
            text = f"{names}: {what} of {mean_a:.0f} and {mean_b:.0f} tokens in the mean, {apart} apart"
            yield Reason(text, pair, flags=flags, kind=f"lengths of {what}")
    cached_a, cached_b = side_a.mean_of("cached_ratio"), side_b.mean_of("cached_ratio")
    if cached_a is not None and cached_b is not None and abs(cached_a - cached_b) > MOST_UNLIKE:
        text = f"{names}: {cached_a:.0%} and {cached_b:.0%} of the prompt tokens came from a cache, which costs no prefill"
        yield Reason(text, pair, flags=("--bust-prefix-cache",), kind="cached prompts")
    yield from _connects(pair, side_a, side_b)


def _alike(a: float, b: float) -> bool:
    return max(a, b) <= (1 + MOST_UNLIKE) * min(a, b)


def _shared_prompts(a: Sequence[MeasuredRun], b: Sequence[MeasuredRun]) -> float | None:
    """The share of the smaller side's prompts that the other side sent too; None where a run's are unknown. A run that a time limit
    ended sent fewer of the same prompts."""
    all_a, all_b = _prompts(a), _prompts(b)
    if not all_a or not all_b:
        return None
    return len(all_a & all_b) / min(len(all_a), len(all_b))


def _prompts(runs: Sequence[MeasuredRun]) -> set[str] | None:
    if any(run.prompts is None for run in runs):
        return None
    return set().union(*(run.prompts for run in runs if run.prompts is not None))


def _connects(pair: tuple[int, int], side_a: Side, side_b: Side) -> Iterator[Reason]:
    """TTFT with connecting against TTFT without, where that makes a difference."""
    reused_a, reused_b = side_a.mean_of("reused_ratio"), side_b.mean_of("reused_ratio")
    connect_ms = side_b.mean_of("connect_ms") if side_a.mean_of("connect_ms") is None else side_a.mean_of("connect_ms")
    ttft_ms = [mean for side in (side_a, side_b) if (mean := side.mean("mean_ttft_ms"))]
    if reused_a is None or reused_b is None or connect_ms is None or not ttft_ms:
        return
    if abs(reused_a - reused_b) * connect_ms > MOST_CONNECT * min(ttft_ms):
        shares = f"{1 - reused_a:.0%} of the requests of {side_a.label} and {1 - reused_b:.0%} of those of {side_b.label}"
        text = f"TTFT includes connecting ({connect_ms:.1f} ms) for {shares}"
        yield Reason(text, pair, "ttft", ("--connection-reuse", "off"), "connections")
