"""Rows of which some requests failed, judged on the requests that succeeded in all of them.

A server that refuses prompts that are too long for a slot refuses the same ones under every setting. Such rows had the same
load, and answered the same requests: they may be ranked, although not all requests succeeded. Where a few other requests failed
in one row than in another, latencies are taken from those that succeeded in every row; rates, which count the others too, stay
unranked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from llama_load.comparison.reasons import MOST_FAILED
from llama_load.lab.sweep.cell_answers import LATENCIES
from llama_load.lab.sweep.rows import Row
from llama_load.metrics.verdict_words import BLURRED, FAILED
from llama_load.units import quantity

# Rows whose answers differ by more than this share of all requests had other loads: failed ones leave the server idle.
MOST_APART = 0.05
_STATISTIC = re.compile(rf"(?P<word>mean|median|p(?P<p>\d{{1,2}}(?:\.\d{{1,6}})?))_(?P<latency>{'|'.join(LATENCIES)})_ms")


def judge_common(rows: Sequence[Row]) -> None:
    """Change the rows of one load that lost about the same requests: their figures become those of the requests that succeeded in
    all of them, and they may be ranked."""
    clusters: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        if row.run is not None and row.answers is not None and not row.reason and not row.fact("test"):
            load = (row.fact("workload"), row.fact("load"), row.stage, row.repeat, row.run.plan)
            clusters.setdefault(load, []).append(row)
    for cluster in clusters.values():
        judged = [row for row in cluster if _failed_alone(row)]
        if len(judged) > 1 and any(_is_partial(row) for row in judged):
            _judge(judged)


def _failed_alone(row: Row) -> bool:
    """Whether nothing but failed requests speaks against its rank."""
    assert row.run is not None
    return not set(row.run.words) - {FAILED, BLURRED}


def _is_partial(row: Row) -> bool:
    answers = row.answers
    return answers is not None and len(answers.answered) < (1 - MOST_FAILED) * len(answers.asked)


def _judge(rows: Sequence[Row]) -> None:
    known = [row.answers for row in rows if row.answers is not None]
    asked = known[0].asked
    if any(answers.asked != asked for answers in known):
        return
    common = frozenset.intersection(*(frozenset(answers.answered) for answers in known))
    most = max(len(answers.answered) for answers in known)
    if not common or most - len(common) > MOST_APART * len(asked):
        return
    is_same = most == len(common)
    note = f"judged on the {len(common)} of {quantity(len(asked), 'request')} that succeeded in each of {len(rows)} rows"
    note += "" if is_same else "; rates, which count the others too, are not ranked"
    for row in rows:
        _restrict(row, common, is_same=is_same)
        row.common_note = note


def _restrict(row: Row, common: frozenset[int], *, is_same: bool) -> None:
    """The row with the figures of these requests."""
    assert row.run is not None
    assert row.answers is not None
    chosen = [row.answers.answered[place] for place in sorted(common)]
    changed: dict[str, float | None] = {}
    for key in row.run.values:
        match = _STATISTIC.fullmatch(key)
        if match is not None and not is_same:
            values = [own[match["latency"]] for own in chosen if not np.isnan(own[match["latency"]])]
            changed[key] = _statistic(match["word"], match["p"], values)
    totals = {name: float(np.nansum([own[name] for own in chosen])) for name in ("input", "output")}
    counts = {"failed": 0.0, "completed": float(len(chosen))}
    tokens = {"total_input_tokens": totals["input"], "total_output_tokens": totals["output"]}
    words = tuple(word for word in row.run.words if word != FAILED)
    row.run = replace(row.run, words=words, planned=None, values={**row.run.values, **changed, **counts, **tokens})
    row.figures = {**row.figures, **changed}
    row.is_ranked = True
    row.are_rates_ranked = is_same


def _statistic(word: str, percentile: str | None, values: Sequence[float]) -> float | None:
    """The mean, the median, or a percentile by linear interpolation, as in summary.json; None without values."""
    if not values:
        return None
    if word == "mean":
        return float(np.mean(values))
    return float(np.percentile(values, 50.0 if percentile is None else float(percentile)))
