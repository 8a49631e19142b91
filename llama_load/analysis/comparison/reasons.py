"""Why sides must not be ranked.

What spoils a side by itself, and what differs between two besides their speed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from llama_load.analysis.comparison.common_requests import is_partial
from llama_load.analysis.comparison.compared_metrics import Metric
from llama_load.analysis.comparison.side import MeasuredRun, Side
from llama_load.ground.units import quantity
from llama_load.run_folder.vocabulary.verdict_words import BLURRED, CLIENT_BOUND

# Longer prompts and answers take longer: sides are not ranked if their mean lengths differ by more.
# So are shares of cached tokens.
MOST_UNLIKE = 0.02
# The share of the smaller side's prompts that the larger side must have sent too.
LEAST_SHARED_PROMPTS = 0.98
# Where neither hashes nor plans of the prompts are known: mean prompt lengths this close are those
# of the same prompts. (Servers with one tokenizer count the same prompts alike; other samples of
# ShareGPT differ by some percent.)
MOST_UNEQUAL = 0.001
# Sides that open a connection for a different share of their requests: not ranked by TTFT if that
# makes more of it than this.
MOST_CONNECT = 0.01
# Flags that give both sides the load of the first.
_LOAD_FLAGS = {
    "concurrency": "-u",
    "request rate": "--request-rate",
    "burstiness": "--burstiness",
}
# Latencies that the network to the server is a large part of.
_WITH_NETWORK = ("ttft", "scheduled_ttft", "answer_ttft")
RATES = "rates"  # of a reason that spoils no latency


@dataclass(frozen=True, slots=True)
class Reason:
    """Why the sides with these indices are not ranked: one by itself, or two against each other.

    `latency`: only by this one's figures (RATES: by rates and durations; empty: by none). `flags`:
    those of llama-load that would avoid it. `kind`: what differs between two.
    """

    text: str
    sides: tuple[int, ...]
    latency: str = ""
    flags: tuple[str, ...] = ()
    kind: str = ""

    def concerns(self, metric: Metric) -> bool:
        """Whether it spoils this metric.

        What spoils TTFT or ITL spoils no other latency by more than the limits here.
        """
        if self.latency == RATES:
            return metric.latency is None
        return not self.latency or self.latency == metric.latency


def reasons_against(sides: Sequence[Side]) -> list[Reason]:
    """Every reason, those of single sides first."""
    reasons: list[Reason] = []
    for index, side in enumerate(sides):
        reasons += _of_one(index, side)

    good = set(range(len(sides)))
    for reason in reasons:
        if not reason.latency:
            good.discard(reason.sides[0])

    for a, b in combinations(sorted(good), 2):
        pair = _Pair(sides[a], sides[b], (a, b))
        reasons += pair.reasons()

    return reasons


def is_against(metric: Metric, index: int, reasons: Iterable[Reason]) -> bool:
    """Whether the side at this place must not be compared with the first by this metric."""
    for reason in reasons:
        is_about = set(reason.sides) <= {0, index}
        if is_about and reason.concerns(metric):
            return True

    return False


# ---------------------------------------------------------------------- one side


def _of_one(index: int, side: Side) -> Iterator[Reason]:
    partial = []
    flawed = []
    blurred: dict[str, list[MeasuredRun]] = {}  # by latency
    for run in side.runs:
        if is_partial(run):
            partial.append(run)
        elif set(run.words) - {BLURRED}:
            flawed.append(run)
        elif run.words:
            for latency in run.spoiled or ("itl",):
                blurred.setdefault(latency, []).append(run)

    if partial:
        completed = partial[0].count("completed")
        requests = quantity(completed + partial[0].failed, "request")
        why = "these may be the short ones, and the others left the server idle"
        text = f"is partial: only {completed} of {requests} were answered; {why}"
        named = _side_with_runs(side, partial)
        yield Reason(f"{named} {text}", (index,))

    if flawed:
        is_client = any(CLIENT_BOUND in run.words for run in flawed)
        flags: tuple[str, ...] = ()
        if is_client:
            flags = ("--processes", "2")

        why = flawed[0].why or " and ".join(flawed[0].words)
        text = f"{_side_with_runs(side, flawed)}: {why}"
        yield Reason(text, (index,), flags=flags)

    for latency, runs in blurred.items():
        named = _side_with_runs(side, runs)
        text = f"{named} is {BLURRED}: {_blurred(latency, runs[0])}"
        yield Reason(text, (index,), latency)


def _blurred(latency: str, run: MeasuredRun) -> str:
    """Why this latency of a run is not ranked."""
    if latency == "itl":
        return "single gaps between its tokens cannot be told apart"
    return f"its {latency.upper()} is not what it seems ({run.why})"


def _side_with_runs(side: Side, runs: Sequence[MeasuredRun]) -> str:
    """The side, and how many of its runs these are."""
    if len(side.runs) == 1:
        return side.label

    first = runs[0].name
    share = f"{len(runs)} of {len(side.runs)} runs"

    return f"{side.label} ({share}, first {first})"


# ---------------------------------------------------------------------- two sides


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two sides, each good by itself, with their indices."""

    a: Side
    b: Side
    indices: tuple[int, int]

    @property
    def names(self) -> str:
        return f"{self.a.label} and {self.b.label}"

    def reasons(self) -> Iterator[Reason]:
        """All reasons against ranking one against the other."""
        yield from self._common_runs()
        yield from self._other_load()
        yield from self._other_prompts()
        yield from self._other_lengths("prompts", "mean_input")
        yield from self._other_lengths("answers", "mean_output")
        yield from self._other_cache()
        yield from self._connects()
        yield from self._other_clients()

    def _reason(
        self, text: str, kind: str, *, latency: str = "", flags: tuple[str, ...] = ()
    ) -> Reason:
        return Reason(text, self.indices, latency, flags, kind)

    def _common_runs(self) -> Iterator[Reason]:
        common = (self.a.identities & self.b.identities) - {""}
        if common:
            runs = quantity(len(common), "run")
            text = (
                f"{self.names} have {runs} in common: a run does not differ from itself"
            )
            yield self._reason(text, "runs in common")

    def _other_load(self) -> Iterator[Reason]:
        """Another endpoint, or another load.

        8 users have larger latencies and throughputs than 4 on one server.
        """
        endpoints_a = self.a.endpoints - {""}
        endpoints_b = self.b.endpoints - {""}
        if endpoints_a and endpoints_b and endpoints_a != endpoints_b:
            listed = f"{_listed(endpoints_a)} and {_listed(endpoints_b)}"
            text = f"{self.names} were sent to different endpoints: {listed}"
            same = ("--endpoint", min(endpoints_a))
            yield self._reason(text, "different endpoints", flags=same)

        names: dict[str, None] = {}
        for run in (*self.a.runs, *self.b.runs):
            names |= dict.fromkeys(run.load)

        for name in names:
            loads_a = _loads(self.a, name)
            loads_b = _loads(self.b, name)
            if not loads_a or not loads_b or loads_a == loads_b:
                continue
            listed = f"{name} {_listed(loads_a)} and {_listed(loads_b)}"
            text = f"{self.names} had different loads: {listed}"
            flag = _LOAD_FLAGS.get(name)
            flags: tuple[str, ...] = ()
            if flag is not None and "inf" not in loads_a:
                flags = (flag, min(loads_a))
            yield self._reason(text, "different loads", flags=flags)

    def _other_prompts(self) -> Iterator[Reason]:
        text = self._why_prompts_differ()
        if text is not None:
            flags = ("--dataset-path", "FILE", "--seed", "0")
            yield self._reason(text, "different prompts", flags=flags)

    def _why_prompts_differ(self) -> str | None:
        """Why the prompts are not the same, or not known to be.

        By their hashes, else by their plans, else by their mean length.
        """
        different = f"{self.names} were sent different prompts"
        share = _shared_prompts(self.a.runs, self.b.runs)
        if share is not None:
            if share >= LEAST_SHARED_PROMPTS:
                return None
            return f"{different} ({share:.0%} in common)"

        plans_a = self.a.plans
        plans_b = self.b.plans
        if plans_a and plans_b and "" not in plans_a | plans_b:
            if plans_a == plans_b:
                return None
            return f"{different}, by their data sets, seeds and flags"

        unknown = f"whether {self.names} were sent the same prompts is not known"
        mean_a = self.a.mean_of("mean_input")
        mean_b = self.b.mean_of("mean_input")
        if mean_a is None or mean_b is None:
            return f"{unknown}: neither their hashes nor their lengths are"
        if _apart(mean_a, mean_b) > MOST_UNEQUAL and _alike(mean_a, mean_b):
            lengths = (
                f"their mean lengths differ ({mean_a:.1f} and {mean_b:.1f} tokens)"
            )
            return f"{unknown}: their hashes are not, and {lengths}"
        return None

    def _other_lengths(self, what: str, figure: str) -> Iterator[Reason]:
        """`what`: prompts or answers, whose mean length is this figure."""
        mean_a = self.a.mean_of(figure)
        mean_b = self.b.mean_of(figure)
        kind = f"lengths of {what}"
        if mean_a is None and mean_b is not None:
            yield self._reason(_unknown_lengths(what, self.a, self.b), kind)
        if mean_b is None and mean_a is not None:
            yield self._reason(_unknown_lengths(what, self.b, self.a), kind)
        if not mean_a or not mean_b or _alike(mean_a, mean_b):
            return

        shorter = min(mean_a, mean_b)
        apart = max(mean_a, mean_b) / shorter - 1
        lengths = f"{what} of {mean_a:.0f} and {mean_b:.0f} tokens in the mean"
        flags: tuple[str, ...] = ()
        if what == "answers":
            flags = ("--sharegpt-output-len", f"{shorter:.0f}", "--ignore-eos")
        text = f"{self.names}: {lengths}, {apart:.1%} apart"
        yield self._reason(text, kind, flags=flags)

    def _other_cache(self) -> Iterator[Reason]:
        cached_a = self.a.mean_of("cached_ratio")
        cached_b = self.b.mean_of("cached_ratio")
        if (
            cached_a is None
            or cached_b is None
            or abs(cached_a - cached_b) <= MOST_UNLIKE
        ):
            return
        text = (
            f"{self.names}: {cached_a:.0%} and {cached_b:.0%} of the prompt tokens "
            "came from a cache, which costs no prefill"
        )
        yield self._reason(text, "cached prompts", flags=("--bust-prefix-cache",))

    def _connects(self) -> Iterator[Reason]:
        """TTFT with connecting against TTFT without, where that makes a difference."""
        reused_a = self.a.mean_of("reused_ratio")
        reused_b = self.b.mean_of("reused_ratio")
        connect_ms = self.a.mean_of("connect_ms")
        if connect_ms is None:
            connect_ms = self.b.mean_of("connect_ms")
        if reused_a is None or reused_b is None or connect_ms is None:
            return

        means_ms = [self.a.mean("mean_ttft_ms"), self.b.mean("mean_ttft_ms")]
        ttfts_ms = list(filter(None, means_ms))
        if not ttfts_ms:
            return

        difference_ms = abs(reused_a - reused_b) * connect_ms
        if difference_ms > MOST_CONNECT * min(ttfts_ms):
            text = (
                f"TTFT includes connecting ({connect_ms:.1f} ms) "
                f"for {1 - reused_a:.0%} of the requests of {self.a.label} "
                f"and {1 - reused_b:.0%} of those of {self.b.label}"
            )
            flags = ("--connection-reuse", "off")
            yield self._reason(text, "connections", latency="ttft", flags=flags)

    def _other_clients(self) -> Iterator[Reason]:
        """Another machine of the client has another network to the server.

        That is part of every first token and of no gap.
        """
        clients_a = self.a.clients
        clients_b = self.b.clients
        if (
            not clients_a
            or not clients_b
            or "" in clients_a | clients_b
            or clients_a == clients_b
        ):
            return
        where_a = f"{self.a.label} on {_listed(clients_a)}"
        where_b = f"{self.b.label} on {_listed(clients_b)}"
        text = (
            f"the client ran on different machines ({where_a}, {where_b}): "
            "its way to the server is part of TTFT"
        )
        for latency in _WITH_NETWORK:
            yield self._reason(text, "different clients", latency=latency)


def _unknown_lengths(what: str, unknown: Side, known: Side) -> str:
    return f"the lengths of the {what} of {unknown.label} are not known, those of {known.label} are"


def _loads(side: Side, name: str) -> set[str]:
    """The loads of this name that its runs had; empty where none is known."""
    return {run.load[name] for run in side.runs if name in run.load}


def _listed(values: set[str]) -> str:
    return "/".join(sorted(values))


def _apart(a: float, b: float) -> float:
    larger = max(a, b)
    if not larger:
        return 0.0
    return abs(a - b) / larger


def _alike(a: float, b: float) -> bool:
    return max(a, b) <= (1 + MOST_UNLIKE) * min(a, b)


def _shared_prompts(a: Sequence[MeasuredRun], b: Sequence[MeasuredRun]) -> float | None:
    """The share of the smaller side's prompts that the other side sent too.

    None where a run's are unknown. A run that a time limit ended sent fewer of the same prompts.
    """
    all_a = _prompts(a)
    all_b = _prompts(b)
    if not all_a or not all_b:
        return None

    common = all_a & all_b
    fewest = min(len(all_a), len(all_b))

    return len(common) / fewest


def _prompts(runs: Sequence[MeasuredRun]) -> set[str] | None:
    prompts: set[str] = set()
    for run in runs:
        if run.prompts is None:
            return None
        prompts |= run.prompts
    return prompts
