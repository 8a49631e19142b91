"""Runs of which some requests failed, judged on the requests that succeeded in all of them.

A server that refuses prompts that are too long for a slot refuses the same ones under every
setting. Such runs had the same load, and answered the same requests: they may be ranked, although
not all requests succeeded. Where a few other requests failed in one run than in another, latencies
are taken from those that succeeded in every run; rates, which count the others too, stay unranked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.comparison.compared_metrics import metric_of
from llama_load.analysis.comparison.request_answers import LATENCIES, Answer
from llama_load.analysis.comparison.side import MeasuredRun
from llama_load.analysis.figures.check_limits import LIMITS
from llama_load.ground.units import quantity
from llama_load.run_folder.vocabulary.verdict_words import BLURRED, FAILED

MOST_FAILED = LIMITS["failure_ratio"].limit
# Runs whose answers differ by more than this share of all requests had other loads: failed ones
# leave the server idle.
MOST_APART = 0.05
_PERCENTILE = r"p(?P<p>\d{1,2}(?:\.\d{1,6})?)"
_STATISTIC = re.compile(
    rf"(?P<word>mean|median|{_PERCENTILE})_(?P<latency>{'|'.join(LATENCIES)})_ms"
)


@dataclass(frozen=True, slots=True)
class OnCommon:
    """Runs with the figures of the requests that succeeded in each of them.

    `count` of `asked` requests; `is_same`: each run answered these alone, so that rates are of
    them, too.
    """

    runs: Sequence[MeasuredRun]
    count: int
    asked: int
    is_same: bool

    def note(self, whose: str) -> str:
        """A sentence; `whose`: `runs`, or `rows`."""
        of_all = f"{self.count} of {quantity(self.asked, 'request')}"
        text = (
            f"judged on the {of_all} that succeeded in each of {len(self.runs)} {whose}"
        )
        if not self.is_same:
            text += "; rates, which count the others too, are not ranked"
        return text


def on_common_requests(runs: Sequence[MeasuredRun]) -> OnCommon | None:
    """These runs of one load, judged on the requests that succeeded in all.

    None where no run lost more than a few, something else speaks against one, the prompts were not
    the same, or the answered ones differ too much.
    """
    if len(runs) < 2 or not any(map(is_partial, runs)):
        return None
    if not all(map(failed_alone, runs)):
        return None
    first = runs[0]
    known = []
    for run in runs:
        is_as_planned = run.plan == first.plan and run.endpoint == first.endpoint
        if run.answers is None or first.answers is None or not is_as_planned:
            return None
        if run.answers.asked != first.answers.asked:
            return None
        known.append(run.answers)

    asked = known[0].asked
    common = frozenset(known[0].answered)
    for answers in known[1:]:
        common &= frozenset(answers.answered)
    most = max(len(answers.answered) for answers in known)
    if not common or most - len(common) > MOST_APART * len(asked):
        return None

    is_same = most == len(common)
    restricted = []
    for run, answers in zip(runs, known, strict=True):
        chosen = list(answers.of(common))
        judged = _restricted(run, chosen, len(asked), is_same=is_same)
        restricted.append(judged)
    return OnCommon(restricted, len(common), len(asked), is_same)


def failed_alone(run: MeasuredRun) -> bool:
    """Whether nothing but failed requests speaks against its rank."""
    return not set(run.words) - {FAILED, BLURRED}


def is_partial(run: MeasuredRun) -> bool:
    """Whether it lost requests, more than a few, and is not judged by the others."""
    if run.judged_of is not None:
        return False
    return run.failed > MOST_FAILED * (run.count("completed") + run.failed)


def _restricted(
    run: MeasuredRun, chosen: Sequence[Answer], asked: int, *, is_same: bool
) -> MeasuredRun:
    """The run with the figures of these answers.

    `is_same`: they are all that it answered, so that its latencies stay.
    """
    figures = dict(run.values)
    if not is_same:
        figures |= _latencies(run, chosen)
    input_tokens = []
    output_tokens = []
    for answer in chosen:
        input_tokens.append(answer.input_tokens)
        output_tokens.append(answer.output_tokens)
    figures |= {
        "completed": float(len(chosen)),
        "total_input_tokens": _total(input_tokens),
        "total_output_tokens": _total(output_tokens),
    }

    words = []
    for word in run.words:
        if word != FAILED:
            words.append(word)
    return replace(
        run, words=tuple(words), planned=None, values=figures, judged_of=asked
    )


def _latencies(run: MeasuredRun, chosen: Sequence[Answer]) -> dict[str, float | None]:
    """The run's statistics of latencies, computed of these answers; None of other latencies."""
    found: dict[str, float | None] = {}
    for key in run.values:
        metric = metric_of(key)
        match = _STATISTIC.fullmatch(key)
        if match is not None:
            values_ms = []
            for answer in chosen:
                values_ms.append(answer.latencies_ms[match["latency"]])
            found[key] = _statistic(match["word"], match["p"], values_ms)
        elif metric is not None and metric.latency is not None:
            found[key] = None
    return found


def _known_values(values: Sequence[float]) -> NDArray[np.float64]:
    """Those that were measured."""
    numbers = np.asarray(values, np.float64)
    return numbers[~np.isnan(numbers)]


def _total(tokens: Sequence[float]) -> float | None:
    """None where none is known."""
    known = _known_values(tokens)
    return float(known.sum()) if len(known) else None


def _statistic(
    word: str, percentile: str | None, values: Sequence[float]
) -> float | None:
    """The mean, the median, or a percentile by linear interpolation, as in summary.json.

    None without values.
    """
    known = _known_values(values)
    if not len(known):
        return None
    if word == "mean":
        return float(np.mean(known))
    percent = 50.0 if percentile is None else float(percentile)
    return float(np.percentile(known, percent))
