"""Whether a varied setting had an effect, judged by the scatter of the repeats.

Rows that differ only in the setting form a block; blocks differ in the other settings. For two values of the setting the effect is
the mean over blocks of log(mean of one / mean of the other). Its standard error comes from the standard deviation of the logarithms
between repeats, pooled over all cells of the blocks: sqrt(s^2 * sum(1/n1 + 1/n2)) / blocks, with sum(n - 1) degrees of freedom.
The two values that differ most are judged; their p value is multiplied by the number of pairs (Bonferroni), and all settings and
figures together are adjusted by Holm. Without repeats nothing is proven.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from llama_load.comparison.change_intervals import LEAST_SPREAD, Ratio, holm
from llama_load.lab.sweep.plan import Plan
from llama_load.lab.sweep.rows import Row
from llama_load.lab.sweep.values import describe
from llama_load.metrics.statistics import CONFIDENCE
from llama_load.tables.numbers import change, change_between

Block = dict[str, list[float]]  # logarithms per value of the setting


@dataclass(frozen=True, slots=True)
class Effect:
    """A setting's effect on a figure: the two values that differ most, their ratio, p (adjusted), and a sentence."""

    setting: str
    figure: str
    values: tuple[str, str] | None
    ratio: float | None
    p: float | None
    is_shown: bool
    text: str


@dataclass(frozen=True, slots=True)
class _Contrast:
    setting: str
    figure: str
    values: tuple[str, str]
    ratio: Ratio | None
    quotient: float
    pairs: int
    left_out: str  # how many results are not in it; empty if all are


def effects(plan: Plan, rows: Sequence[Row]) -> list[Effect]:
    """An effect per setting (and server, where there are several) and figure. Rows that may not be ranked are left out."""
    names = [setting.name for setting in plan.settings if len(setting.labels) > 1] + (["server"] if len(plan.servers) > 1 else [])
    of_tests = ("ts",) if any(load.test for load in plan.loads) else ()
    of_runs = ("output_throughput", "mean_ttft_ms") if any(not load.test for load in plan.loads) else ()
    figures = plan.effects or tuple(name for name in (*of_runs, *of_tests) if any(row.number(name) is not None for row in rows))
    ranked = [row for row in rows if row.is_ranked and not row.reason]
    results: list[_Contrast | Effect] = []
    for name, figure in itertools.product(names, figures):
        for test in dict.fromkeys(_kind(row) for row in rows if (figure == "ts") == bool(_kind(row))):
            label = f"{describe(figure).english} of {test}" if test else describe(figure).english
            if not _blocks(plan, [row for row in rows if _kind(row) == test], name):
                continue  # nothing in the plan differs only in this
            blocks = _blocks(plan, [row for row in ranked if _kind(row) == test], name, figure)
            missing = sum(_kind(row) == test for row in rows) - sum(_kind(row) == test for row in ranked)
            left_out = f"; results that are not ranked and left out: {missing}" if missing else ""
            results.append(_largest(name, label, blocks, left_out) or Effect(name, label, None, None, None, is_shown=False, text=(
                f"{name}: no two of its values have comparable results in {label}")))  # fmt: skip
    known = [result for result in results if isinstance(result, _Contrast) and result.ratio is not None]
    adjusted = iter(holm([min(1.0, result.ratio.p_value() * result.pairs) for result in known if result.ratio is not None]))
    return [
        result if isinstance(result, Effect) else _judged(result, next(adjusted) if result.ratio is not None else None)
        for result in results
    ]


def _kind(row: Row) -> str:
    """pp or tg: their rates are of different things."""
    return row.facts.get("test", "")[:2]


def _blocks(plan: Plan, rows: Sequence[Row], name: str, figure: str = "") -> list[Block]:
    """The rows' logarithms, by what they differ in; without a figure, ones."""
    # Not by concurrency, which a setting may change itself, but by stage.
    others = [other for other in ("server", "workload", "load", *(setting.name for setting in plan.settings)) if other != name]
    blocks: dict[tuple[object, ...], Block] = {}
    for row in rows:
        value, label = row.number(figure) if figure else 1.0, row.fact(name)
        if value is not None and value > 0 and label:
            block = blocks.setdefault((row.stage, *(row.fact(other) for other in others)), {})
            block.setdefault(label, []).append(math.log(value))
    return [block for block in blocks.values() if len(block) > 1]


def _largest(setting: str, figure: str, blocks: Sequence[Block], left_out: str) -> _Contrast | None:
    """The two values of the setting that differ most, over the blocks that have both."""
    labels = list(dict.fromkeys(label for block in blocks for label in block))
    freedom = sum(len(logs) - 1 for block in blocks for logs in block.values())
    squares = sum((log - _mean(logs)) ** 2 for block in blocks for logs in block.values() for log in logs)
    spread = max(LEAST_SPREAD, math.sqrt(squares / freedom)) if freedom else None
    best: _Contrast | None = None
    pairs = list(itertools.combinations(labels, 2))
    for first, second in pairs:
        both = [block for block in blocks if first in block and second in block]
        if not both:
            continue
        log = _mean([_mean(block[second]) - _mean(block[first]) for block in both])
        error = (
            None if spread is None else spread * math.sqrt(sum(1 / len(b[first]) + 1 / len(b[second]) for b in both)) / len(both)
        )
        if best is None or abs(log) > abs(math.log(best.quotient)):
            best = _Contrast(
                setting,
                figure,
                (first, second),
                None if error is None else Ratio(log, error, freedom),
                math.exp(log),
                len(pairs),
                left_out,
            )
    return best


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _judged(pair: _Contrast, p: float | None) -> Effect:
    first, second = pair.values
    largest = change(pair.quotient, gap=" ")
    if p is None or pair.ratio is None:
        text = f"{pair.setting}: {largest} {pair.figure} from {first} to {second}, with one run each: not proven; give repeats: 3"
        text += pair.left_out
        return Effect(pair.setting, pair.figure, pair.values, pair.quotient, None, is_shown=False, text=text)
    interval = change_between(*pair.ratio.interval, gap=" ")
    is_shown = p <= 1 - CONFIDENCE
    outcome = f"{largest} {pair.figure} from {first} to {second} (95 %: {interval}; p = {p:.2g}){pair.left_out}"
    text = f"{pair.setting}: {outcome}" if is_shown else f"{pair.setting}: no effect shown; the largest difference is {outcome}"
    return Effect(pair.setting, pair.figure, pair.values, pair.quotient, p, is_shown=is_shown, text=text)
