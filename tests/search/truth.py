"""What an unspoiled observer wants to know of a run, and how far what was printed is off.

The truth of a case is the same case without its flaws (its oddities stay): the same prompts,
answers, lengths, arrivals and speeds, played on the same server, and seen at the server: the
instants at which its tokens are sent, the tokens that its model generates, the tokens of the
prompts with the chat template. So the truth is

- for a cache, an early or invented first token, a refusal, another model, a limit that cuts prompts
  or answers: the times and the counts of the requests as they were asked, worked on and answered in
  full;
- for a server that is slow in a part of the run, at its start, in one of its conversations' turns
  or on one replica, and for a preemption or another client: the times without it;
- for a gateway that buffers, merges, delays, doubles or drops events: the instants at the server;
- for a count that is rewritten, estimated or left out: the server's own count;
- for hidden thinking, tool calls, several tokens an event: TTFT is that of the first token that the
  API shows (thoughts in their own field are shown), ITL the gaps between the tokens that it shows,
  TPOT the server's time per token from the first shown token to the last one, whether those between
  are shown or not;
- for a client that pauses, reads or sends late: the instants at the server under the load that was
  planned. What a client always takes for itself before it sends is in no latency.

A printed figure is off by |printed / true - 1|. Not compared: figures that are not printed
(percentiles of too few values), and those that the report marks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from llama_load.analysis.figures.spoiled import are_whole
from llama_load.analysis.figures.stage_figures import StageFigures
from llama_load.analysis.figures.summary import Summary
from llama_load.analysis.results.keys import failed_checks, flat_result, uncertain
from llama_load.analysis.results.results import Results
from tests.search.answers import Answer
from tests.search.case import Case
from tests.search.client import USUAL_DELAY_NS
from tests.search.loop import Played

# Latencies under --goodput, ms.
GOOD_TTFT_MS, GOOD_TPOT_MS = 400.0, 30.0
LATENCIES = ("ttft", "tpot", "itl", "e2el")
# A figure is wrong if it is off by more than this share.
WRONG = 0.05
Figures = dict[str, float]
Moved = dict[str, tuple[float, float]]
COUNTS = ("completed", "total_input_tokens", "total_output_tokens")
RATES = (
    "request_throughput",
    "output_throughput",
    "total_token_throughput",
    "request_goodput",
)
KEYS = (
    *COUNTS,
    *RATES,
    *(
        f"{word}_{latency}_ms"
        for latency in LATENCIES
        for word in ("mean", "median", "p99")
    ),
)


def true_figures(case: Case, played: Played) -> Figures:
    """The figures of a run by the server's instants, by the keys of summary.json (`KEYS`)."""
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
    return (
        max(answer.end_ns for answer in answers)
        - min(answer.start_ns + USUAL_DELAY_NS for answer in answers)
    ) / 1e9


def _figures(
    prefix: str, case: Case, answers: Sequence[Answer], seconds: float
) -> Iterator[tuple[str, float]]:
    tokens = sum(len(answer.words) for answer in answers)
    prompts = sum(answer.prompt_tokens for answer in answers)
    yield f"{prefix}completed", len(answers)
    yield f"{prefix}total_input_tokens", prompts
    yield f"{prefix}total_output_tokens", tokens
    yield f"{prefix}request_throughput", len(answers) / seconds
    yield f"{prefix}output_throughput", tokens / seconds
    yield f"{prefix}total_token_throughput", (tokens + prompts) / seconds
    shown = [
        answer.instants if answer.shown is None else answer.instants[answer.shown]
        for answer in answers
    ]
    starts = [answer.start_ns + USUAL_DELAY_NS for answer in answers]
    ttft_ms = (
        np.array(
            [instants[0] - start for instants, start in zip(shown, starts, strict=True)]
        )
        / 1e6
    )
    e2el_ms = (
        np.array(
            [
                instants[-1] - start
                for instants, start in zip(shown, starts, strict=True)
            ]
        )
        / 1e6
    )
    steps = np.array([_steps(answer) for answer in answers])
    tpot_ms = (e2el_ms - ttft_ms) / np.maximum(1, steps)
    gaps_ms = np.concatenate([np.diff(instants) for instants in shown]) / 1e6
    if case.goodput:
        yield (
            f"{prefix}request_goodput",
            int(((ttft_ms <= GOOD_TTFT_MS) & (tpot_ms <= GOOD_TPOT_MS)).sum())
            / seconds,
        )
    for name, values in zip(
        LATENCIES, (ttft_ms, tpot_ms[steps > 0], gaps_ms, e2el_ms), strict=True
    ):
        yield f"{prefix}mean_{name}_ms", float(values.mean())
        yield f"{prefix}median_{name}_ms", float(np.median(values))
        yield f"{prefix}p99_{name}_ms", float(np.percentile(values, 99))


def _steps(answer: Answer) -> int:
    """Tokens that the server generates after the first one that is shown, up to the last one."""
    return (
        len(answer.words) - 1
        if answer.shown is None
        else answer.shown[-1] - answer.shown[0]
    )


def printed_figures(case: Case, results: Results) -> tuple[Figures, Figures]:
    """The figures that a report of this run prints: those that it leaves unmarked, and those that a
    failed check spoils. Percentiles of too few values are in neither."""
    printed = _Printed(results)
    if case.stages:
        for number, stage in enumerate(results.stages):
            printed.add(f"stage {number + 1} ", stage.figures, stage)
        return printed.plain, printed.marked
    printed.add("", results.total)
    if case.workloads > 1:
        for workload, part in results.by_workload.items():
            printed.add(f"{workload} ", part, is_part=True)
    return printed.plain, printed.marked


class _Printed:
    """Gathers the figures of a run and of its parts."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.plain: Figures = {}
        self.marked: Figures = {}

    def add(
        self,
        prefix: str,
        figures: Summary,
        stage: StageFigures | None = None,
        *,
        is_part: bool = False,
    ) -> None:
        manifest, checks = self.results.run.manifest, self.results.verdict.checks
        flat = flat_result(manifest, figures, stage, is_part=is_part)
        lacking = uncertain(manifest, figures, stage, is_part=is_part)
        spoiled = uncertain(manifest, figures, stage, is_part=is_part, checks=checks)
        is_all = any(are_whole(check.spoils) for check in failed_checks(checks, stage))
        for key in KEYS:
            value = flat.get(key)
            if value is not None and key not in lacking:
                to = self.marked if is_all or key in spoiled else self.plain
                to[prefix + key] = float(value)


def moved_figures(
    printed: Mapping[str, float], true: Mapping[str, float], wrong: float
) -> Moved:
    """The figures that are off by more than `wrong`, as (printed, true), the one that is off most
    first."""
    moved = {
        name: (value, true[name])
        for name, value in printed.items()
        if name in true and _off(value, true[name]) > wrong
    }
    return dict(sorted(moved.items(), key=lambda item: -_off(*item[1])))


def _off(printed: float, true: float) -> float:
    """How far a figure is off, 0 for a right one; the same for twice and for half."""
    if printed == true:
        return 0.0
    if printed <= 0 or true <= 0:
        return float("inf")
    return max(printed / true, true / printed) - 1
