"""Arrivals of conversations: each one's first request has a scheduled instant, further turns follow their own waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np

from llama_load.load.schedule import arrivals_s
from llama_load.load.segments import LoadModel, Segment


def of_conversations(model: LoadModel, segment: Segment, turns: Iterator[int], num_prompts: int | None) -> Segment:
    """The schedule of the requests of conversations, of which the segment has the arrivals, and `turns` the numbers of requests.

    All requests of a conversation have the instant of its arrival. With `num_prompts` as many conversations arrive as have this
    many requests, the last one perhaps cut; otherwise one for each arrival of the segment. Arrivals at 0 and 2 s with 3 and 1
    requests: 0, 0, 0, 2.
    """
    assert segment.scheduled_s is not None
    assert segment.stage_index is not None
    lengths = list(islice(turns, len(segment.scheduled_s)) if num_prompts is None else _with_requests(turns, num_prompts))
    arrivals = segment.scheduled_s
    if num_prompts is not None:
        rate_rps = model.arrival_rate_rps or 1.0
        arrivals = arrivals_s(len(lengths), rate_rps, burstiness=model.burstiness, process=model.process, seed=model.seed)
    scheduled = np.repeat(arrivals, lengths)[:num_prompts]
    return replace(
        segment,
        total=len(scheduled),
        scheduled_s=scheduled,
        stage_index=np.zeros(len(scheduled), dtype=np.int64),
        conversations=len(lengths),
    )


def _with_requests(turns: Iterator[int], count: int) -> Iterator[int]:
    """The first conversations that have this many requests together, or more."""
    while count > 0:
        length = next(turns)
        yield length
        count -= length
