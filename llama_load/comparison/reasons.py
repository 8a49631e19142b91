"""Why sides must not be ranked: what spoils a side by itself, and what differs between two besides their speed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from llama_load.comparison.compared_metrics import Metric
from llama_load.comparison.side import MeasuredRun, Side
from llama_load.metrics.check_limits import LIMITS
from llama_load.metrics.verdict_words import BLURRED, CLIENT_BOUND
from llama_load.units import quantity

# Longer prompts and answers take longer: sides are not ranked if their mean lengths differ by more. So are shares of cached tokens.
MOST_UNLIKE = 0.02
# The share of the smaller side's prompts that the larger side must have sent too.
LEAST_SHARED_PROMPTS = 0.98
# Where neither hashes nor plans of the prompts are known: mean prompt lengths this close are those of the same prompts. (Servers
# with one tokenizer count the same prompts alike; other samples of ShareGPT differ by some percent.)
MOST_UNEQUAL = 0.001
# Sides that open a connection for a different share of their requests: not ranked by TTFT if that makes more of it than this.
MOST_CONNECT = 0.01
# Flags that give both sides the load of the first.
_LOAD_FLAGS = {"concurrency": "-u", "request rate": "--request-rate", "burstiness": "--burstiness"}
# Latencies that the network to the server is a large part of.
_WITH_NETWORK = ("ttft", "scheduled_ttft", "answer_ttft")
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
    good = [index for index, side in enumerate(sides) if index not in spoilt]
    return own + [reason for a, b in combinations(good, 2) for reason in _between(a, sides[a], b, sides[b])]


# ---------------------------------------------------------------------- one side


def _own(index: int, side: Side) -> Iterator[Reason]:
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
    blurred = [run for run in side.runs if BLURRED in run.words and run not in partial + flawed]
    for latency in dict.fromkeys(key for run in blurred for key in run.spoiled or ("itl",)):
        runs = [run for run in blurred if latency in (run.spoiled or ("itl",))]
        yield Reason(f"{_named(side, runs)} is {BLURRED}: {_blurred(latency, runs[0])}", (index,), latency)


def _blurred(latency: str, run: MeasuredRun) -> str:
    """Why this latency of a run is not ranked."""
    if latency == "itl":
        return "single gaps between its tokens cannot be told apart"
    return f"its {latency.upper()} is not what it seems ({run.why})"


def _named(side: Side, runs: Sequence[MeasuredRun]) -> str:
    """The side, and how many of its runs these are."""
    return side.label if len(side.runs) == 1 else f"{side.label} ({len(runs)} of {len(side.runs)} runs, first {runs[0].name})"


# ---------------------------------------------------------------------- two sides


def _between(a: int, side_a: Side, b: int, side_b: Side) -> Iterator[Reason]:
    pair, names = (a, b), f"{side_a.label} and {side_b.label}"
    if both := {run.identity for run in side_a.runs if run.identity} & {run.identity for run in side_b.runs}:
        text = f"{names} have {quantity(len(both), 'run')} in common: a run does not differ from itself"
        yield Reason(text, pair, kind="runs in common")
    yield from _other_load(pair, names, side_a.runs, side_b.runs)
    if (why := _other_prompts(names, side_a, side_b)) is not None:
        yield Reason(why, pair, flags=("--dataset-path", "FILE", "--seed", "0"), kind="different prompts")
    for what, name in (("prompts", "mean_input"), ("answers", "mean_output")):
        mean_a, mean_b = side_a.mean_of(name), side_b.mean_of(name)
        if (mean_a is None) is not (mean_b is None):
            known, unknown = (side_a, side_b) if mean_b is None else (side_b, side_a)
            text = f"the lengths of the {what} of {unknown.label} are not known, those of {known.label} are"
            yield Reason(text, pair, kind=f"lengths of {what}")
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
    yield from _other_clients(pair, side_a, side_b)


def _other_clients(pair: tuple[int, int], side_a: Side, side_b: Side) -> Iterator[Reason]:
    """Another machine of the client has another network to the server, which is part of every first token and of no gap."""
    clients = [{run.client for run in side.runs} for side in (side_a, side_b)]
    if any("" in names for names in clients) or not all(clients) or clients[0] == clients[1]:
        return
    where = f"{side_a.label} on {_listed(clients[0])}, {side_b.label} on {_listed(clients[1])}"
    text = f"the client ran on different machines ({where}): its way to the server is part of TTFT"
    for latency in _WITH_NETWORK:
        yield Reason(text, pair, latency, kind="different clients")


def _other_load(pair: tuple[int, int], names: str, a: Sequence[MeasuredRun], b: Sequence[MeasuredRun]) -> Iterator[Reason]:
    """Another endpoint, or another load: 8 users have larger latencies and throughputs than 4 on one server."""
    endpoints = [{run.endpoint for run in runs if run.endpoint} for runs in (a, b)]
    if all(endpoints) and endpoints[0] != endpoints[1]:
        text = f"{names} were sent to different endpoints: {' and '.join(map(_listed, endpoints))}"
        yield Reason(text, pair, flags=("--endpoint", min(endpoints[0])), kind="different endpoints")
    for name in dict.fromkeys(name for run in (*a, *b) for name in run.load):
        values = [{run.load[name] for run in runs if name in run.load} for runs in (a, b)]
        if all(values) and values[0] != values[1]:
            text = f"{names} had different loads: {name} {' and '.join(map(_listed, values))}"
            flag = _LOAD_FLAGS.get(name)
            flags = () if flag is None or "inf" in values[0] else (flag, min(values[0]))
            yield Reason(text, pair, flags=flags, kind="different loads")


def _listed(values: set[str]) -> str:
    return "/".join(sorted(values))


def _other_prompts(names: str, side_a: Side, side_b: Side) -> str | None:
    """Why the prompts are not the same, or not known to be: by their hashes, else by their plans, else by their mean length."""
    share = _shared_prompts(side_a.runs, side_b.runs)
    if share is not None:
        return f"{names} were sent different prompts ({share:.0%} in common)" if share < LEAST_SHARED_PROMPTS else None
    plans = [{run.plan for run in side.runs} for side in (side_a, side_b)]
    if all(plans) and not any("" in plan for plan in plans):
        same = plans[0] == plans[1]
        return None if same else f"{names} were sent different prompts, by their data sets, seeds and flags"
    mean_a, mean_b = side_a.mean_of("mean_input"), side_b.mean_of("mean_input")
    if mean_a is None or mean_b is None:
        return f"whether {names} were sent the same prompts is not known: neither their hashes nor their lengths are"
    if _apart(mean_a, mean_b) > MOST_UNEQUAL and _alike(mean_a, mean_b):
        lengths = f"their mean lengths differ ({mean_a:.1f} and {mean_b:.1f} tokens)"
        return f"whether {names} were sent the same prompts is not known: their hashes are not, and {lengths}"
    return None


def _apart(a: float, b: float) -> float:
    return abs(a - b) / max(a, b) if max(a, b) else 0.0


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
