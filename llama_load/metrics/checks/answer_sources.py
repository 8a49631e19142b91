"""Checks that the answers come from one source: not a part of them from a cache, a filter or another server in front."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from llama_load.metrics.check import Check, limited
from llama_load.metrics.equal_work import Work
from llama_load.metrics.evidence import Evidence
from llama_load.metrics.outliers import outliers
from llama_load.metrics.pace import paces_ms
from llama_load.metrics.second_group import Looked, Server, by_pace, by_ttft, smallest_seen
from llama_load.metrics.spoiled import TPOT, TTFT, UPPER
from llama_load.observed.record import OK
from llama_load.observed.records import Records
from llama_load.units import quantity

NAME, ALONE_NAME = "second_group_ratio", "outlier_shift"
# What makes two requests different work on the same server, besides the length of the prompt.
KINDS = ("stage", "workload", "model", "adapter", "endpoint", "host", "answer_form", "choices")
# Prompt tokens where they are unknown: of English text.
CHARS_PER_TOKEN = 4.0


def at_equal_work(evidence: Evidence) -> Iterator[Check]:
    """Whether a part of the answers came from another source, and whether single requests make a mean: by TTFT and time per
    token at equal work.

    Evidence: all requests in flight, the server's report of cached tokens. Not judged: later turns where the server does
    not report its cache, and all requests where caching is intended and not reported. Error rates:
    benchmarks/two_groups.py, in docs/verdict.md.
    """
    records = evidence.sent
    servers = _servers(evidence, records, _judged(evidence, records))
    kinds = _kinds(records)
    by_first = by_ttft(servers, kinds)
    by_gaps = by_pace(servers, kinds, paces_ms(records))
    yield _second_group(records, by_first, by_gaps)
    yield from _single(records, by_first, "TTFT")
    yield from _single(records, by_gaps, "TPOT")


def _second_group(records: Records, by_first: Looked, by_gaps: Looked) -> Check:
    if not by_first.is_enough:
        return limited(NAME, None, "too few answers with equal work to see whether all come from one source")
    if by_first.groups is not None:
        text = _sentence(by_first, records.numbers("ttft_ms"), "got their first token after")
        return limited(NAME, by_first.groups.share, text)
    if by_gaps.groups is not None:
        return limited(NAME, by_gaps.groups.share, _sentence(by_gaps, records.numbers("tpot_ms"), "have a token every"))

    seen = smallest_seen(by_first)
    if seen is None:
        text = "too few answers, or too much scatter at equal work, to see whether all come from one source"
        return limited(NAME, None, text)
    return limited(NAME, 0.0, "first tokens and gaps are of one group at equal prompt length and load", detects=seen)


def _single(records: Records, looked: Looked, name: str) -> Iterator[Check]:
    """Requests that stand alone and make a part of the mean."""
    is_first_token = name == "TTFT"
    begun_ns = records.optional_instants("started_mono_ns" if is_first_token else "first_token_mono_ns")[looked.rows]
    until_ns = records.optional_instants("first_token_mono_ns" if is_first_token else "last_token_mono_ns")[looked.rows]
    own_ms = records.numbers("ttft_ms" if is_first_token else "tpot_ms")[looked.rows]
    known = ~np.isnan(own_ms)
    found = outliers(own_ms[known], looked.quotients[known], begun_ns[known], until_ns[known])
    if found is None or looked.groups is not None:
        return
    slowest = own_ms[known][found.places]
    count = len(slowest)
    text = f"{quantity(count, 'request')} of {int(known.sum())} had a {name} of {slowest.min():.0f} ms or more, "
    text += f"{found.factor:.0f} x as long as any other at equal work: mean {name} is {found.mean:.1f} ms with "
    text += f"{'it' if count == 1 else 'them'}, {found.mean_without:.1f} ms without"
    is_first = bool((found.places < max(1, len(own_ms) // 10)).all())
    advice = "raise --warmup: the first requests met a server that was not ready" if is_first else None
    yield limited(ALONE_NAME, found.shift, text, advice=advice, spoils=(TTFT, UPPER) if name == "TTFT" else (TPOT, UPPER))


def _sentence(looked: Looked, values_ms: NDArray[np.float64], what: str) -> str:
    """`48 of 400 answers got their first token after 21 ms, the others after 302 ms (medians; …)`."""
    smaller = looked.is_smaller()
    inside = float(np.nanmedian(values_ms[looked.rows[smaller]]))
    outside = float(np.nanmedian(values_ms[looked.rows[~smaller]]))
    text = f"{int(smaller.sum())} of {len(smaller)} answers {what} {inside:.3g} ms, the others {outside:.3g} ms (medians)"
    factor = float(np.median(looked.quotients[~smaller]) / np.median(looked.quotients[smaller]))
    than = f"{factor:.1f} x as fast" if factor > 1 else f"{1 / factor:.1f} x as slow"
    return f"{text}; at equal prompt length and load they are {than}, with none between: two sources answer"


def _judged(evidence: Evidence, records: Records) -> NDArray[np.bool_]:
    """Streamed answers of this run or stage whose processed prompt is known."""
    judged = records.equals("status", OK) & records.has("first_token_mono_ns") & ~records.equals("warmup", True)
    judged &= ~records.equals("first_merged", True) | (records.numbers("token_events") > 1)
    if evidence.stage_number is not None:
        judged &= records.equals("stage", evidence.stage_number)
    reported = _reporting(records)
    later = records.numbers("turn") > 1
    if evidence.cache.intended:
        return np.asarray(judged & reported, dtype=np.bool_)
    return np.asarray(judged & (reported | ~later), dtype=np.bool_)


def _reporting(records: Records) -> NDArray[np.bool_]:
    """One bool per row: whether its server reports cached tokens."""
    hosts = records.strings("host")
    known = {host for host, has in zip(hosts, records.has("cached_tokens"), strict=True) if has}
    return np.array([host in known for host in hosts], dtype=np.bool_)


def _servers(evidence: Evidence, records: Records, judged: NDArray[np.bool_]) -> list[Server]:
    """The requests by host."""
    started_ns = records.instants("started_mono_ns")
    first_ns = records.optional_instants("first_token_mono_ns")
    ended_ns = records.instants("ended_mono_ns")
    prompts = records.numbers("prompt_tokens")
    prompts = np.where(np.isnan(prompts), np.nan_to_num(records.numbers("prompt_chars")) / CHARS_PER_TOKEN, prompts)
    processed = np.maximum(1.0, prompts - np.nan_to_num(records.numbers("cached_tokens")))
    hosts = np.array(records.strings("host"), dtype=object)
    names = list(dict.fromkeys(hosts.tolist()))
    slots = None if evidence.slots is None else max(1, evidence.slots // max(1, len(names)))

    servers = []
    for name in names:
        rows = np.flatnonzero(hosts == name)
        rows = rows[np.argsort(started_ns[rows], kind="stable")]
        work = Work(
            started_ns=started_ns[rows],
            first_ns=first_ns[rows],
            ended_ns=ended_ns[rows],
            prompt_tokens=processed[rows],
            is_judged=judged[rows],
            slots=slots,
        )
        servers.append(Server(rows, work))
    return servers


def _kinds(records: Records) -> NDArray[np.int64]:
    """One number per row: rows of the same number differ in their prompts' lengths alone."""
    columns = [records.strings(name) for name in KINDS]
    is_later = (records.numbers("turn") > 1).tolist()
    has_image = records.has("images").tolist()
    calls = [reason in ("tool_calls", "function_call") for reason in records.strings("finish_reason")]
    numbers: dict[tuple[object, ...], int] = {}
    kinds = [numbers.setdefault(kind, len(numbers)) for kind in zip(*columns, is_later, has_image, calls, strict=True)]
    return np.array(kinds, dtype=np.int64)
