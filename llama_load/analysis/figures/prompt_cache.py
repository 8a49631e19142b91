"""Unintended prompt cache hits: as the server reports them, else from what the client knows.

A cached prompt costs no prefill, so its TTFT is not comparable. Allowed to come from the cache: the
chat template's head, prefixes that all prompts share by design, the history of a conversation from
its second turn on, and beginnings that different prompts of the run have in common, which are the
traffic: TTFT is then marked with the share that the cache helped with (`cache_help`). A check for
each kind of evidence:

1. `cached_prompt_ratio`: cached tokens as the server reports them in each answer (llama-server;
   vLLM with --enable-prompt-tokens-details);
2. `server_cache_hit_ratio`: growth of the server's counters during the measurement (vLLM's
   prefix_cache_queries and prefix_cache_hits), where answers report nothing;
3. `common_beginning_ratio`: beginnings that different prompts of the plan have in common, where the
   server reports neither: for information;
4. `repeated_prompt_ratio`: prompts sent before, in this run or in an earlier one, where the server
   reports neither, or where they got their first token sooner than the first time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.figures.check import Check, information, limited
from llama_load.analysis.figures.check_limits import LIMITS
from llama_load.analysis.statistics.statistics import sign_test
from llama_load.ground.units import quantity
from llama_load.run_folder.observed.common_beginnings import CommonBeginnings
from llama_load.run_folder.observed.record import OK
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.observed.sent_before import SentBefore
from llama_load.run_folder.observed.server_counters import ServerCounters
from llama_load.servers.apis import NOT_CACHED, WITH_TEMPLATE

# Without a chat template a prompt begins with one special token at most.
BEGIN_TOKENS = 1
# A shared prefix is tokenized alone. In a prompt some more tokens may match: at the border of its
# last word, and up to the end of a cache block.
SLACK_TOKENS = 16
SLACK_RATIO = 0.02
# The error of an estimated number of tokens.
ESTIMATE_RATIO = 0.25
# The most prompts that a sentence names.
MOST_NAMED = 8
# First and repeated TTFT are compared for at least this many prompts, at this significance level.
LEAST_PAIRS = 10
CHANCE = 0.01
# Queueing alone makes the TTFT of one prompt vary by less than this share, in the median.
MOST_SAVING = 0.33
# What a cache computed of a run whose figures can be used.
CACHE_HELP = "cache_help_ratio"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEvidence:
    """What is known about the prompt cache besides the records."""

    intended: bool = False  # the user declared that caching is intended
    is_off: bool = False  # the requests turned the servers' caches off
    # by host: what the chat template puts before every prompt
    head_tokens: Mapping[str, int] = field(default_factory=dict)
    # of the text that begins every prompt of the run and makes it new
    prefix_tokens: int = 0
    # By workload: those that its prompts share at their beginning by design; None: all caching is
    # intended (a trace).
    shared_tokens: Mapping[str, int | None] = field(default_factory=dict)
    estimated: bool = False  # these are estimates, not a tokenizer's counts
    # planned prompt tokens include the chat template's, or there is none
    template_known: bool = False
    sent_before: SentBefore | None = None
    # beginnings that different prompts of the run have in common
    common: CommonBeginnings | None = None


def cache_checks(
    table: PromptTable, counters: ServerCounters | None = None, stage: int | None = None
) -> list[Check]:
    """The checks of the prompt cache, over the whole run or one stage. `counters`: those of this
    time."""
    prompts = table if stage is None else table.of_stage(stage)
    evidence = table.evidence
    if evidence.intended:
        return _as_intended(prompts)
    if not prompts.judged.any():
        return [_unknown("no prompt was answered that should be new to the cache")]
    checks: list[Check] = []
    silent = prompts.judged & ~prompts.is_reported
    if (prompts.judged & prompts.is_reported).any():
        checks += _reported(prompts)
    counted = (
        _counted_hits(prompts, counters)
        if silent.any() and not prompts.is_reported.any()
        else None
    )
    if counted is not None:
        text = "answers report no cached tokens; the server's counters do"
        if (again := prompts.sent_again(silent)).any():
            text += f"; {prompts.again_text(again, silent)}"
        is_known = counted.value is not None
        checks += [
            information("cached_prompt_ratio", None, text)
            if is_known
            else _unknown(text),
            counted,
            *_help(_hits_share(prompts, counters) if counted.ok else None),
        ]
    elif silent.any():
        checks.append(_unknown("the server does not report cached prompt tokens"))
    is_unseen = counted is None and not evidence.is_off
    before = None if stage is not None else evidence.sent_before
    if stage is None and is_unseen and silent.any():
        checks += _common_beginnings(evidence.common)
    repeated = _repeated_prompts(
        prompts,
        silent if is_unseen else np.zeros_like(silent),
        before if is_unseen and silent.any() else None,
    )
    return checks if repeated is None else [*checks, repeated]


class PromptTable:
    """The prompts of a run by row, for the checks of the run and of each stage. `judged` are the
    answered first turns that should not be cached. Records are all of the run, warm-ups included:
    they show which prompts were sent before."""

    def __init__(self, records: Records, evidence: CacheEvidence) -> None:
        self.evidence = evidence
        self.tokens = records.numbers("prompt_tokens")
        self.cached = records.numbers("cached_tokens")
        self.ttft_ms = records.numbers("ttft_ms")
        self.index = records.strings("prompt_index")
        self.hosts = records.strings("host")
        self.digests = records.strings("prompt_sha256")
        # A cached prompt is only of use to the same server, endpoint (which templates the text) and
        # model.
        caches: dict[
            tuple[Any, Any, Any], tuple[Any, Any, Any]
        ] = {}  # equal ones are one object
        keys = zip(
            self.hosts,
            records.strings("endpoint"),
            records.strings("model"),
            strict=True,
        )
        self.caches = [caches.setdefault(key, key) for key in keys]
        self.stages = records.numbers("stage")
        self.started_ns = records.instants("started_mono_ns")
        self.warmup = records.equals("warmup", True)
        turn = records.numbers("turn")
        reporting = set(compress(self.hosts, ~np.isnan(self.cached)))
        self.is_reported = np.array(
            [host in reporting for host in self.hosts], dtype=np.bool_
        )
        workloads = records.strings("workload")
        endpoints = records.strings("endpoint")
        shared = [evidence.shared_tokens.get(workload, 0) for workload in workloads]
        self.generates = np.array(
            [endpoint not in NOT_CACHED for endpoint in endpoints], dtype=np.bool_
        )
        chars = np.maximum(records.numbers("prompt_chars"), 1)
        # the share of a prompt's text that this process had sent before, of other prompts
        self.sent_share = np.nan_to_num(records.numbers("common_chars") / chars)
        self.answered = records.equals("status", OK) & ~self.warmup
        self.is_meant = (turn >= 2) | np.array(
            [tokens is None for tokens in shared], dtype=np.bool_
        )
        self.judged = self.answered & ~self.is_meant
        heads = (
            evidence.head_tokens.get(host, 0) if at in WITH_TEMPLATE else BEGIN_TOKENS
            for host, at in zip(self.hosts, endpoints, strict=True)
        )
        slack = [
            _with_slack(tokens or 0, estimated=evidence.estimated) for tokens in shared
        ]
        allowed = [
            evidence.prefix_tokens + head + more
            for head, more in zip(heads, slack, strict=True)
        ]
        self.allowed = np.array(allowed, dtype=np.float64)
        # The rows in the order in which they were sent.
        self.order = np.argsort(self.started_ns, kind="stable")
        # For each row the first earlier row with the same prompt to the same server, warm-ups
        # included; -1: none.
        self.earlier = np.full(len(self.digests), -1, dtype=np.int64)
        first: dict[tuple[object, str], int] = {}
        for row in self.order.tolist():
            if self.digests[row] is not None:
                before = first.setdefault((self.caches[row], self.digests[row]), row)
                self.earlier[row] = -1 if before == row else before

    def common(self, rows: NDArray[np.bool_]) -> CommonBeginnings:
        """What different prompts have in common: as planned, else, of prompts that the locustfile
        writes, as these rows were sent."""
        planned = self.evidence.common
        if planned is not None and planned.prompts:
            return planned
        shares = self.sent_share[rows]
        total = float(self.tokens[rows].sum())
        if not total:
            return CommonBeginnings()
        return CommonBeginnings(
            int(rows.sum()),
            float((shares * self.tokens[rows]).sum()) / total,
            float((shares > 1 / 2).mean()),
            int((shares > 0).sum()),
        )

    def named(self, rows: NDArray[np.bool_]) -> str:
        """These rows by their places in the plan: `prompts 3, 17, 42, …`."""
        return named(
            sorted({index for index in compress(self.index, rows) if index is not None})
        )

    def sent_again(self, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Those of these rows whose prompt was sent before in this run."""
        return rows & self.generates & (self.earlier >= 0)

    def again_text(self, again: NDArray[np.bool_], rows: NDArray[np.bool_]) -> str:
        """`2 of 9 prompts were sent before in this run (prompts 3, 5)`."""
        counts = f"{int(again.sum())} of {int(rows.sum())} prompts"
        return f"{counts} were sent before in this run ({self.named(again)})"

    def of_stage(self, stage: int) -> PromptTable:
        """The same table, which judges the requests of one stage."""
        own = copy(self)
        own.answered = self.answered & (self.stages == stage)
        own.judged = own.answered & ~self.is_meant
        return own


def named(indices: Sequence[int]) -> str:
    """Prompts by their places in the plan: `prompts 3, 17, 42, …`."""
    some = ", ".join(map(str, indices[:MOST_NAMED]))
    if len(indices) > MOST_NAMED:
        some += ", …"
    return f"prompt {some}" if len(indices) == 1 else f"prompts {some}"


def _with_slack(tokens: int, *, estimated: bool) -> float:
    """The most tokens that a shared prefix may have in the server's count."""
    return (
        tokens
        + max(SLACK_TOKENS, tokens * (ESTIMATE_RATIO if estimated else SLACK_RATIO))
        if tokens
        else 0.0
    )


def _unknown(text: str) -> Check:
    return limited("cached_prompt_ratio", None, text)


def cache_help(checks: Iterable[Check]) -> str | None:
    """What stands beside TTFT: `TTFT has the cache's help: 11% of prompt tokens`."""
    return next((check.text for check in checks if check.name == CACHE_HELP), None)


def _help(share: float | None, perhaps: str = "") -> list[Check]:
    """What stands beside TTFT where a cache computed some of the prompts; nothing of 2 % or
    less."""
    if share is None or share <= LIMITS["cached_prompt_ratio"].limit:
        return []
    text = f"TTFT has{perhaps} the cache's help: {share:.0%} of prompt tokens"
    return [information(CACHE_HELP, share, text)]


def _as_intended(prompts: PromptTable) -> list[Check]:
    known = prompts.answered & ~np.isnan(prompts.cached)
    cached = int(prompts.cached[known].sum())
    total = int(np.nansum(prompts.tokens[known]))
    text = (
        f"{cached} of {total} prompt tokens came from the cache, as intended"
        if known.any()
        else "cached prompts are intended"
    )
    check = information("cached_prompt_ratio", None, text)
    return [check, *_help(cached / total if total else None)]


def _reported(prompts: PromptTable) -> list[Check]:
    """From the answers' own counts, the larger share: of prompts that came mostly from the cache,
    or of cached prompt tokens.

    Cached / all tokens of each prompt, without chat template's head and shared prefix. An answer
    without a count has 0: vLLM leaves it out then.
    """
    rows = prompts.judged & prompts.is_reported & ~np.isnan(prompts.tokens)
    cached = np.maximum(0, np.nan_to_num(prompts.cached) - prompts.allowed)
    tokens = np.maximum(0, prompts.tokens - prompts.allowed)
    mostly = rows & (cached > tokens / 2)
    count = int(rows.sum())
    total = float(tokens[rows].sum())
    hits = float(cached[rows].sum())
    common = prompts.common(rows)
    value = None
    of_tokens = hits / total if total else 0.0
    if count:
        # Different prompts that begin alike are the traffic: what they have in common may come from
        # the cache.
        of_prompts = float(mostly.sum()) / count
        explained = common.ratio * (1 + ESTIMATE_RATIO)
        value = max(0.0, of_prompts - common.mostly, of_tokens - explained)
    text = f"{int(mostly.sum())} of {count} prompts came mostly from the cache, "
    text += f"{int(hits)} of {int(total)} prompt tokens"
    if hits and not mostly.any():
        text = f"{int(hits)} of {int(total)} prompt tokens came from the cache, "
        text += "though of no prompt more than half"
    if (allowed := int(np.nansum(prompts.cached[rows])) - int(hits)) > 0:
        text += f", besides {allowed} of chat templates and shared prefixes, which may"
    if value is not None and value > LIMITS["cached_prompt_ratio"].limit:
        text += f" ({prompts.named(mostly if mostly.any() else rows & (cached > 0))})"
    elif hits and common.sharing:
        text += f": {common.ratio:.0%} of the prompts' text is a beginning that they have in common"
    check = limited("cached_prompt_ratio", value, text)
    return [check, *_help(of_tokens if check.ok else None)]


def _common_beginnings(common: CommonBeginnings | None) -> list[Check]:
    """What a cache of which nothing is known may have reused of different prompts. The texts are
    counted: no error."""
    if common is None or not common.prompts:
        return []
    name = "common_beginning_ratio"
    if not common.sharing:
        return [
            information(
                name, 0.0, "no two prompts have their first 8 characters in common"
            )
        ]
    text = f"{common.sharing} of {quantity(common.prompts, 'different prompt')} begin as another one does, with {common.ratio:.0%} of "
    text += (
        "all text; the server does not report whether a cache answered these beginnings"
    )
    return [information(name, common.ratio, text), *_help(common.ratio, " perhaps")]


def _hits_share(prompts: PromptTable, counters: ServerCounters | None) -> float | None:
    """Hits / queries without tokens that may be cached; None where these are not known."""
    may = np.where(prompts.is_meant, prompts.tokens, prompts.allowed)[prompts.answered]
    if counters is None or not counters.cache_queries or np.isnan(may).any():
        return None
    allowed = float(may.sum())
    total = counters.cache_queries - allowed
    hits = (counters.cache_hits or 0) - allowed - counters.error("cache_hits")
    return max(0.0, hits) / total if total > 0 else None


def _counted_hits(
    prompts: PromptTable, counters: ServerCounters | None
) -> Check | None:
    """Hits / queries of the server's prompt cache in tokens, without tokens that may be cached;
    None where not counted.

    10,000 tokens looked up, 3,000 in the cache, 1,000 of them chat template heads: 2,000 / 9,000 =
    0.22. Tokens of other clients are included.
    """
    name = "server_cache_hit_ratio"
    if (
        counters is None
        or counters.cache_queries is None
        or counters.cache_hits is None
    ):
        return None
    queries = counters.cache_queries
    hits = counters.cache_hits
    if not queries:
        off = "the server looked up no prompt in a cache: prefix caching is off"
        return limited(name, 0.0, off) if counters.prompt_tokens else None
    may = np.where(prompts.is_meant, prompts.tokens, prompts.allowed)[prompts.answered]
    if np.isnan(may).any():
        return limited(
            name,
            None,
            f"{hits} of {queries} prompt tokens came from the server's cache; how many are allowed to is unknown",
        )
    allowed = float(may.sum())
    value = _hits_share(prompts, counters)
    if value is not None:
        # what prompts have in common is the traffic
        common = prompts.common(prompts.judged & ~np.isnan(prompts.tokens))
        value = max(0.0, value - common.ratio * (1 + ESTIMATE_RATIO))
    text = f"{hits} of {queries} prompt tokens came from the server's prefix cache, by its counters"
    if counters.external_hits:
        text += (
            f" ({counters.external_hits} of them from a cache outside of the engine)"
        )
    if allowed:
        text += f"; {min(int(allowed), hits)} of them are allowed (chat template, shared prefixes, later turns)"
    if value is not None and value > LIMITS[name].limit:
        text += ": prompts with the same beginning were sent before"
    return limited(name, value, text)


def _repeated_prompts(
    prompts: PromptTable, unseen: NDArray[np.bool_], before: SentBefore | None
) -> Check | None:
    """Prompts sent before and the share that a cache may have answered; None where none was.

    `unseen`: rows about which the server reports nothing: there every repetition counts, and those
    of earlier runs (`before`). Elsewhere repetitions count where they got their first token sooner.
    """
    ratios = _ttft_ratios(prompts)
    again = prompts.sent_again(unseen)
    shares = [0.0]
    texts = []
    if again.any():
        shares.append(float(again.sum()) / float(unseen.sum()))
        texts.append(
            f"{prompts.again_text(again, unseen)}, and the server does not report cached prompt tokens"
        )
    if before is not None and before.count:
        shares.append(before.count / before.of)
        texts.append(
            f"{before.count} of {before.of} prompts were sent to this server in earlier runs ({', '.join(before.runs)}; "
            f"{named(before.prompts)}), and the server does not report cached prompt tokens"
        )
    if len(ratios) >= LEAST_PAIRS:
        saving = 1 - float(np.median(list(ratios.values())))
        sooner = sum(ratio < 1 for ratio in ratios.values())
        text = f"{len(ratios)} prompts were repeated: {sooner} got their first token sooner, {saving:.0%} in the median"
        if saving > MOST_SAVING and sign_test(sooner, len(ratios)) <= CHANCE:
            text += ": a cache answered them"
            repetitions = prompts.judged & (prompts.earlier >= 0)
            shares.append(float(repetitions.sum()) / float(prompts.judged.sum()))
        texts.append(text)
    return (
        limited("repeated_prompt_ratio", max(shares), "; ".join(texts))
        if texts
        else None
    )


def _ttft_ratios(prompts: PromptTable) -> dict[tuple[object, float, str], float]:
    """For each prompt that was sent twice or more in a stage: median TTFT of its repetitions / its
    first TTFT. Needs no report of the server; repetitions that it reports as cached are left
    out."""
    rows = (
        prompts.judged
        & ~np.isnan(prompts.ttft_ms)
        & ~(np.nan_to_num(prompts.cached) > prompts.allowed)
    )
    times: dict[tuple[object, float, str], list[float]] = {}
    for row in prompts.order[rows[prompts.order]]:
        if prompts.digests[row] is not None:
            key = prompts.caches[row], prompts.stages[row], prompts.digests[row]
            times.setdefault(key, []).append(float(prompts.ttft_ms[row]))
    return {
        key: float(np.median(rest)) / first
        for key, (first, *rest) in times.items()
        if rest and first > 0
    }
