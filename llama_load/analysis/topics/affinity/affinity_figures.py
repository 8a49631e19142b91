"""Session affinity: which share of the later turns went to the replica that had the turn before,
and what the others cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from llama_load.analysis.figures.conversation_figures import rows_by_conversation
from llama_load.analysis.statistics.statistics import median, ratio_of_sums
from llama_load.analysis.topics.topic import TopicInput
from llama_load.run_folder.observed.records import Records

# A header may name a new replica in every answer.
MOST_REPLICAS = 50


@dataclass(frozen=True, slots=True)
class ReplicaTurns:
    """A replica."""

    replica: str
    requests: int
    later_turns: int  # of these requests
    hits: int  # later turns whose turn before was there, too


@dataclass(frozen=True, slots=True)
class LaterTurns:
    """Answered later turns: how many, their median TTFT in ms, and their cached prompt tokens /
    prompt tokens. None: unknown."""

    turns: int
    median_ttft_ms: float | None
    cached_ratio: float | None


@dataclass(frozen=True, slots=True)
class AffinityFigures:
    """Session affinity of a run."""

    ratio: float  # hits / later turns, 0 to 1
    replicas: list[ReplicaTurns]  # those with the most requests, of `replica_count`
    replica_count: int
    hit: LaterTurns
    miss: LaterTurns
    by_header: bool  # answers name their replica; else it is the URL in --host


def affinity(given: TopicInput) -> AffinityFigures | None:
    """The figures of a run with conversations."""
    return affinity_figures(given.measured, given.hosts)


def affinity_figures(measured: Records, hosts: Sequence[str]) -> AffinityFigures | None:
    """The figures of a run; None without later turns, and where nothing tells one replica from
    another: one URL and no header."""
    by_header = bool(measured.has("replica").any())
    if not by_header and len(hosts) < 2:
        return None
    urls = measured.strings("host")
    names: list[str | None] = list(urls)
    if by_header:
        headers = measured.strings("replica")
        names = list(headers)
        if len(set(urls)) > 1:
            names = [
                _name_at_url(name, url) for name, url in zip(headers, urls, strict=True)
            ]

    hits = []
    misses = []
    for row, last in _turns_before(measured).items():
        if names[row] is None or names[last] is None:
            continue
        if names[row] == names[last]:
            hits.append(row)
        else:
            misses.append(row)

    known = [*hits, *misses]
    if not known:
        return None

    requests = Counter(name for name in names if name is not None)
    later_of = Counter(names[row] for row in known)
    hits_of = Counter(names[row] for row in hits)
    replicas = []
    for name, count in requests.most_common(MOST_REPLICAS):
        replicas.append(ReplicaTurns(name, count, later_of[name], hits_of[name]))

    return AffinityFigures(
        ratio=len(hits) / len(known),
        replicas=replicas,
        replica_count=len(requests),
        hit=_later_turns(measured, hits),
        miss=_later_turns(measured, misses),
        by_header=by_header,
    )


def _name_at_url(name: str | None, url: str) -> str | None:
    """A replica's name with its URL: the same name behind two URLs may be two replicas."""
    if name is None:
        return None
    return f"{name} at {url}"


def _turns_before(measured: Records) -> dict[int, int]:
    """Of each later turn, by its row: the row of the request of its conversation that started last
    before it."""
    started = measured.instants("started_mono_ns")
    before: dict[int, int] = {}
    for rows in rows_by_conversation(measured):
        order = rows[np.argsort(started[rows], kind="stable")].tolist()
        before |= dict(zip(order[1:], order[:-1], strict=True))
    return before


def _later_turns(measured: Records, rows: Sequence[int]) -> LaterTurns:
    all_rows = np.arange(len(measured))
    ok = measured.where(np.isin(all_rows, rows)).ok()
    cached = ok.numbers("cached_tokens")
    prompt = ok.numbers("prompt_tokens")
    cached_ratio = ratio_of_sums(cached, prompt)

    return LaterTurns(len(ok), median(ok.numbers("ttft_ms")), cached_ratio)
