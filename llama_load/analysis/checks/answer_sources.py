"""Checks that the answers come from one source: not a part of them from a cache, a filter or
another server in front."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.checks import interruptions
from llama_load.analysis.figures.check import Check, limited
from llama_load.analysis.figures.check_limits import CHANGED
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.known_prompts import with_known_prompt
from llama_load.analysis.figures.spoiled import TPOT, TTFT
from llama_load.analysis.figures.token_counts import came_whole
from llama_load.analysis.statistics.equal_work import Work
from llama_load.analysis.statistics.pace import median_gaps_ms, paces_ms
from llama_load.analysis.statistics.second_group import (
    Looked,
    Server,
    by_pace,
    by_ttft,
    smallest_seen,
)
from llama_load.ground.units import NS_PER_MS, ns_to_s
from llama_load.run_folder.observed.record import OK
from llama_load.run_folder.observed.records import Records

NAME = "second_group_ratio"
# What makes two requests different work on the same server, besides the length of the prompt.
KINDS = (
    "stage",
    "workload",
    "model",
    "adapter",
    "endpoint",
    "host",
    "answer_form",
    "choices",
)
# Where the server's queue explains so much of what the upper group of first tokens is later.
LEAST_IN_QUEUE = 0.7
IN_QUEUE = (
    "a part of the requests waited in the server's queue, by its counters (for a slot of an adapter, "
    "for memory): whether all answers come from one source is not known"
)
# A group of paces shows in the median gaps from this ratio on.
LEAST_RATIO_OF_GAPS = 1.3
# A group that is a part of the time: this share of the requests then, and at most this share of all.
NEARLY_ALL = 0.8
LONGEST_PART = 0.8
# Prompt tokens where they are unknown: of English text.
CHARS_PER_TOKEN = 4.0
# See `_looked_at_first_tokens`: by stage, intended cache, slots, and whether of all turns.
Asked = tuple[int | None, bool | None, int | None, bool]
_LOOKED_AT: WeakKeyDictionary[Records, dict[Asked, Looked]] = WeakKeyDictionary()


def at_equal_work(evidence: Evidence) -> Iterator[Check]:
    """Whether a part of the answers came from another source, and whether single requests make a
    mean: by TTFT and time per token at equal work.

    Evidence: all requests in flight, the server's report of cached tokens. Not judged: TTFT of
    later turns where the server does not report its cache, and of all requests where caching is
    intended and not reported. Error rates: benchmarks/two_groups.py, in benchmarks/verdict_rates.md.
    """
    records = evidence.sent
    kinds = _kinds(records)
    streamed = _streamed(evidence, records)
    by_first = _looked_at_first_tokens(evidence, records)
    # A cached prompt is no reason for other gaps.
    paces = paces_ms(records)
    by_gaps = by_pace(_servers(evidence, records, streamed), kinds, paces)
    if by_gaps.groups is not None and not _shows_in_each_gap(
        by_gaps, records, paces, kinds
    ):
        by_gaps = replace(by_gaps, groups=None)
    yield _second_group(evidence, by_first, by_gaps)
    yield from interruptions.alone(evidence, by_first, TTFT)
    yield from interruptions.alone(evidence, by_gaps, TPOT)


def ttft_quotients(evidence: Evidence, records: Records) -> NDArray[np.float64]:
    """TTFT at equal work of these requests, which are all that were in flight: without its wait for
    a slot, / what prompts and load explain and the median of its kind; NaN where not judged."""
    return _of_all(records, _looked_at_first_tokens(evidence, records))


def turn_quotients(evidence: Evidence, records: Records) -> NDArray[np.float64] | None:
    """The same of all turns, each / the median of its number in the conversation: what the server
    has cached of a turn is not known, but it is about the same of the next one with its number.
    None where all prompts are known, see `ttft_quotients`."""
    streamed = _streamed(evidence, records)
    if with_known_prompt(records, evidence.cache.intended)[streamed].all():
        return None
    return _of_all(records, _looked_at_first_tokens(evidence, records, all_turns=True))


def _of_all(records: Records, looked: Looked) -> NDArray[np.float64]:
    """The quotients in the rows of their requests; NaN elsewhere."""
    quotients = np.full(len(records), np.nan)
    quotients[looked.rows] = looked.quotients
    return quotients


def _looked_at_first_tokens(
    evidence: Evidence, records: Records, *, all_turns: bool = False
) -> Looked:
    """The times to the first token of these records at equal work: of known prompts, or of
    `all_turns`, whose number is a kind then. Several checks ask for them, and fitting the work
    takes most of a verdict's time: kept as long as the records are."""
    key = (evidence.stage_number, evidence.cache.intended, evidence.slots, all_turns)
    of_records = _LOOKED_AT.setdefault(records, {})
    if key not in of_records:
        judged = _streamed(evidence, records)
        kinds = _kinds(records)
        if all_turns:
            kinds = _by_turn(records, kinds)
        else:
            judged &= with_known_prompt(records, evidence.cache.intended)
        of_records[key] = by_ttft(_servers(evidence, records, judged), kinds)
    return of_records[key]


def _by_turn(records: Records, kinds: NDArray[np.int64]) -> NDArray[np.int64]:
    """These kinds, parted by the number of the turn."""
    turns = np.nan_to_num(records.numbers("turn")).astype(np.int64)
    both = np.column_stack((kinds, turns))
    _, parted = np.unique(both, axis=0, return_inverse=True)
    return parted.ravel()


def _second_group(evidence: Evidence, by_first: Looked, by_gaps: Looked) -> Check:
    records = evidence.sent
    if not by_first.is_enough:
        return limited(
            NAME,
            None,
            "too few answers with equal work to see whether all come from one source",
        )
    for looked in (by_first, by_gaps):
        if (
            looked.groups is not None
            and (part := _part_of_time(looked, records)) is not None
        ):
            return _changed_for_a_part(looked, records, part)
    if by_first.groups is not None:
        ttft_ms = records.numbers("ttft_ms")
        if _waited_in_queue(evidence, by_first, ttft_ms):
            return limited(NAME, None, IN_QUEUE)
        text = _sentence(by_first, ttft_ms, "got their first token after")
        return limited(NAME, by_first.groups.share, text)
    if by_gaps.groups is not None:
        return limited(
            NAME,
            by_gaps.groups.share,
            _sentence(by_gaps, records.numbers("tpot_ms"), "have a token every"),
        )

    seen = smallest_seen(by_first)
    if seen is None:
        text = "too few answers, or too much scatter at equal work, to see whether all come from one source"
        return limited(NAME, None, text)
    return limited(
        NAME,
        0.0,
        "first tokens and gaps are of one group at equal prompt length and load",
        detects=seen,
    )


def _waited_in_queue(
    evidence: Evidence, looked: Looked, ttft_ms: NDArray[np.float64]
) -> bool:
    """Whether the server's queue may hold the upper group, by its counters of all requests: with 40
    of 80 answers 400 ms later, from 140 ms in the queue on average. Where answers have their own
    times in the queue, these are in no TTFT at equal work."""
    if looked.groups is None or evidence.sent.has("server_queue_ms").any():
        return False
    times = None if evidence.counters is None else evidence.counters.times
    if times is None or not times.requests:
        return False
    own_ms = ttft_ms[looked.rows]
    lower = looked.groups.is_lower
    later_ms = float(np.nanmean(own_ms[~lower]) - np.nanmean(own_ms[lower]))
    in_queue_ms = times.queue_ms / times.requests
    return in_queue_ms >= LEAST_IN_QUEUE * float((~lower).mean()) * later_ms


def _shows_in_each_gap(
    looked: Looked,
    records: Records,
    paces: NDArray[np.float64],
    kinds: NDArray[np.int64],
) -> bool:
    """Whether the median gaps of two groups of paces differ as well: by what work explains, and by
    the median of their kind. Stalls between tokens come in whole numbers, so that answers with
    none, one and two of them make groups, too."""
    assert looked.groups is not None
    medians = median_gaps_ms(records)[looked.rows]
    expected_ms = paces[looked.rows] / looked.quotients
    of_kind_ms = _medians_of_kinds(medians, kinds[looked.rows])
    for relative in (medians / expected_ms, medians / of_kind_ms):
        lower = float(np.nanmedian(relative[looked.groups.is_lower]))
        upper = float(np.nanmedian(relative[~looked.groups.is_lower]))
        # tokens that come together have no gaps to compare
        if not upper > LEAST_RATIO_OF_GAPS * lower:
            return False
    return True


def _medians_of_kinds(
    values: NDArray[np.float64], kinds: NDArray[np.int64]
) -> NDArray[np.float64]:
    """For each value the median of its kind, a little above 0 at least."""
    medians = np.full(len(values), np.nan)
    for kind in np.unique(kinds):
        own = values[kinds == kind]
        if not np.isnan(own).all():
            medians[kinds == kind] = max(1e-6, float(np.nanmedian(own)))
    return medians


def _part_of_time(looked: Looked, records: Records) -> tuple[int, int] | None:
    """The first and the last start of the smaller group, where nearly all others of the same kind
    (workload, model, …) that started between them belong to it as well, and not all of that kind
    started then: the server changed, and is not two."""
    smaller = looked.is_smaller()
    kinds = _kinds(records)[looked.rows]
    of_kind = np.isin(kinds, np.unique(kinds[smaller]))
    places = np.flatnonzero(smaller)
    between = np.zeros(len(smaller), dtype=np.bool_)
    between[places[0] : places[-1] + 1] = True
    inside = of_kind & between
    is_whole = inside.sum() > LONGEST_PART * of_kind.sum()
    if is_whole or smaller[inside].mean() < NEARLY_ALL:
        return None
    started_ns = records.instants("started_mono_ns")[looked.rows]
    return int(started_ns[places[0]]), int(started_ns[places[-1]])


def _changed_for_a_part(
    looked: Looked, records: Records, part: tuple[int, int]
) -> Check:
    """That the server was another one for a part of the time."""
    smaller = looked.is_smaller()
    begin_ns = int(records.instants("started_mono_ns").min())
    since_s, until_s = (ns_to_s(at - begin_ns) for at in part)
    inside = float(np.median(looked.quotients[smaller]))
    factor = inside / float(np.median(looked.quotients[~smaller]))
    how = "as high" if factor > 1 else "lower"
    size = max(factor, 1 / factor)
    count = int(smaller.sum())
    when = f"from {since_s:.0f} s to {until_s:.0f} s"

    text = f"{count} of {len(smaller)} requests, sent {when}, "
    text += f"had latencies {size:.1f} x {how} "
    text += "at equal prompt length and load, with none between"
    return limited(CHANGED, size, text)


def _sentence(looked: Looked, values_ms: NDArray[np.float64], what: str) -> str:
    """`48 of 400 answers got their first token after 21 ms, the others after 302 ms (medians;
    …)`."""
    smaller = looked.is_smaller()
    inside = float(np.nanmedian(values_ms[looked.rows[smaller]]))
    outside = float(np.nanmedian(values_ms[looked.rows[~smaller]]))
    counts = f"{int(smaller.sum())} of {len(smaller)} answers"
    text = f"{counts} {what} {inside:.3g} ms, "
    text += f"the others {outside:.3g} ms (medians)"
    factor = float(
        np.median(looked.quotients[~smaller]) / np.median(looked.quotients[smaller])
    )
    than = f"{factor:.1f} x as fast"
    if factor <= 1:
        than = f"{1 / factor:.1f} x as slow"
    return f"{text}; at equal prompt length and load they are {than}, with none between: two sources answer"


def _streamed(evidence: Evidence, records: Records) -> NDArray[np.bool_]:
    """Streamed answers of this run or stage."""
    judged = (
        records.equals("status", OK)
        & records.has("first_token_mono_ns")
        & ~records.equals("warmup", True)
    )
    judged &= ~records.equals("first_merged", True) | (
        records.numbers("token_events") > 1
    )
    if evidence.stage_number is not None:
        judged &= records.equals("stage", evidence.stage_number)
    return np.asarray(judged, dtype=np.bool_)


def _servers(
    evidence: Evidence, records: Records, judged: NDArray[np.bool_]
) -> list[Server]:
    """The requests by host."""
    started_ns = records.instants("started_mono_ns")
    first_ns = records.optional_instants("first_token_mono_ns")
    ended_ns = records.instants("ended_mono_ns")
    queue_ns = np.nan_to_num(records.numbers("server_queue_ms")) * NS_PER_MS
    first_ns = np.where(first_ns >= 0, first_ns - queue_ns.astype(np.int64), first_ns)
    prompts = records.numbers("prompt_tokens")
    prompts = np.where(
        np.isnan(prompts),
        np.nan_to_num(records.numbers("prompt_chars")) / CHARS_PER_TOKEN,
        prompts,
    )
    processed = np.maximum(
        1.0, prompts - np.nan_to_num(records.numbers("cached_tokens"))
    )
    whole = came_whole(records)
    hosts = np.array(records.strings("host"), dtype=object)
    names = list(dict.fromkeys(hosts.tolist()))
    slots = (
        None if evidence.slots is None else max(1, evidence.slots // max(1, len(names)))
    )

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
            is_whole=whole[rows],
        )
        servers.append(Server(rows, work))
    return servers


def _kinds(records: Records) -> NDArray[np.int64]:
    """One number per row: rows of the same number differ in their prompts' lengths alone."""
    columns = [records.strings(name) for name in KINDS]
    is_later = (records.numbers("turn") > 1).tolist()
    has_image = records.has("images").tolist()
    calls = [
        reason in ("tool_calls", "function_call")
        for reason in records.strings("finish_reason")
    ]
    numbers: dict[tuple[object, ...], int] = {}
    kinds = [
        numbers.setdefault(kind, len(numbers))
        for kind in zip(*columns, is_later, has_image, calls, strict=True)
    ]
    return np.array(kinds, dtype=np.int64)
