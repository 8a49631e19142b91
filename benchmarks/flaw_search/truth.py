"""What an unspoiled observer wants to know of a run, and how far what was printed is off.

The truth of a case is the same case without its flaws (its oddities stay): the same prompts, answers, lengths, arrivals and speeds,
played on the same server, and seen at the server: the instants at which its tokens are sent, the tokens that its model generates,
the tokens of the prompts with the chat template. So the truth is

- for a cache, an early or invented first token, a refusal, another model, a limit that cuts prompts or answers: the times and the
  counts of the requests as they were asked, worked on and answered in full;
- for a server that is slow in a part of the run, at its start, in one of its conversations' turns or on one replica, and for a
  preemption or another client: the times without it;
- for a gateway that buffers, merges, delays, doubles or drops events: the instants at the server;
- for a count that is rewritten, estimated or left out: the server's own count;
- for hidden thinking, tool calls, several tokens an event: TPOT is the server's time per token, TTFT that of the first token that
  the API shows (thoughts in their own field are shown), ITL the gaps between the tokens that it shows;
- for a client that pauses, reads or sends late: the instants at the server under the load that was planned.

A printed figure is off by |printed / true - 1|. Not compared: figures that are not printed (percentiles of too few values), and
those that the report marks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from benchmarks.flaw_search.answers import Answer
from benchmarks.flaw_search.case import Case
from benchmarks.flaw_search.loop import Played
from llama_load.analysis.results import Results
from llama_load.metrics.summary import Summary

# Latencies under --goodput, ms.
GOOD_TTFT_MS, GOOD_TPOT_MS = 400.0, 30.0
LATENCIES = ("ttft", "tpot", "itl", "e2el")
# A figure is wrong if it is off by more than this share.
WRONG = 0.05
Figures = dict[str, float]


def true_figures(case: Case, played: Played) -> Figures:
    """The figures of a run by the server's instants, by the names of `printed_figures`."""
    answers = played.answers
    whole_s = _seconds(answers)
    figures = {} if case.stages else dict(_figures("", case, answers, whole_s))
    if case.stages:
        for number in range(len(case.stages)):
            own = [answer for answer in answers if answer.ask.stage == number]
            figures |= _figures(f"stage {number + 1} ", case, own, _seconds(own))
    if case.workloads > 1 and not case.stages:
        for workload in ("first", "second"):
            own = [answer for answer in answers if answer.ask.workload == workload]
            figures |= _figures(f"{workload} ", case, own, whole_s)
    return figures


def _seconds(answers: Sequence[Answer]) -> float:
    return (max(answer.end_ns for answer in answers) - min(answer.start_ns for answer in answers)) / 1e9


def _figures(prefix: str, case: Case, answers: Sequence[Answer], seconds: float) -> Iterator[tuple[str, float]]:
    tokens = sum(len(answer.words) for answer in answers)
    prompts = sum(answer.prompt_tokens for answer in answers)
    yield f"{prefix}completed", len(answers)
    yield f"{prefix}input tokens", prompts
    yield f"{prefix}output tokens", tokens
    yield f"{prefix}requests/s", len(answers) / seconds
    yield f"{prefix}output tokens/s", tokens / seconds
    yield f"{prefix}tokens/s", (tokens + prompts) / seconds
    ttft_ms = np.array([answer.instants[0] - answer.start_ns for answer in answers]) / 1e6
    e2el_ms = np.array([answer.instants[-1] - answer.start_ns for answer in answers]) / 1e6
    steps = np.array([len(answer.words) - 1 for answer in answers])
    tpot_ms = (e2el_ms - ttft_ms) / np.maximum(1, steps)
    gaps_ms = np.concatenate([np.diff(answer.instants) for answer in answers]) / 1e6
    if case.goodput:
        yield f"{prefix}goodput/s", int(((ttft_ms <= GOOD_TTFT_MS) & (tpot_ms <= GOOD_TPOT_MS)).sum()) / seconds
    for name, values in zip(LATENCIES, (ttft_ms, tpot_ms[steps > 0], gaps_ms, e2el_ms), strict=True):
        yield f"{prefix}mean {name}", float(values.mean())
        yield f"{prefix}median {name}", float(np.median(values))
        yield f"{prefix}p99 {name}", float(np.percentile(values, 99))


def printed_figures(case: Case, results: Results) -> Figures:
    """The figures that a report of this run prints, without those that it marks."""
    figures: Figures = {}
    if case.stages:
        for number, stage in enumerate(results.stages):
            figures |= _printed(f"stage {number + 1} ", stage.figures)
        return figures
    figures |= _printed("", results.total)
    if case.workloads > 1:
        for workload, part in results.by_workload.items():
            figures |= _printed(f"{workload} ", part)
    return figures


def _printed(prefix: str, summary: Summary) -> Figures:
    known: dict[str, float | None] = {
        "completed": summary.completed,
        "input tokens": summary.total_input_tokens,
        "output tokens": summary.total_output_tokens,
        "requests/s": summary.request_throughput,
        "output tokens/s": summary.output_throughput,
        "tokens/s": summary.total_token_throughput,
        "goodput/s": summary.request_goodput,
    }
    for latency in LATENCIES:
        sample = summary.distributions[latency]
        known[f"mean {latency}"] = sample.mean
        known[f"median {latency}"] = sample.median
        known[f"p99 {latency}"] = sample.percentile(99.0) if 99.0 in sample.percentiles else None
    return {prefix + name: float(value) for name, value in known.items() if value is not None}


def moved_figures(printed: Mapping[str, float], true: Mapping[str, float], wrong: float) -> dict[str, tuple[float, float]]:
    """The figures that are off by more than `wrong`, as (printed, true), the one that is off most first."""
    moved = {name: (value, true[name]) for name, value in printed.items() if name in true and _off(value, true[name]) > wrong}
    return dict(sorted(moved.items(), key=lambda item: -_off(*item[1])))


def _off(printed: float, true: float) -> float:
    """How far a figure is off, 0 for a right one; the same for twice and for half."""
    if printed == true:
        return 0.0
    if printed <= 0 or true <= 0:
        return float("inf")
    return max(printed / true, true / printed) - 1
