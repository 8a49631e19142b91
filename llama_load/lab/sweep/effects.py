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
from collections.abc import Iterator, Sequence
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
    """The two values of a setting that differ most: the logarithm of their ratio, its standard error (None without repeats)."""

    values: tuple[str, str]
    log: float
    error: float | None
    freedom: int
    pairs: int

    @property
    def ratio(self) -> Ratio | None:
        return None if self.error is None else Ratio(self.log, self.error, self.freedom)


def effects(plan: Plan, rows: Sequence[Row]) -> list[Effect]:
    """An effect per setting (and server, where there are several) and figure. Rows that may not be ranked are left out."""
    names = [setting.name for setting in plan.settings if len(setting.labels) > 1] + (["server"] if len(plan.servers) > 1 else [])
    of_tests = ("ts",) if any(load.test for load in plan.loads) else ()
    of_runs = ("output_throughput", "mean_ttft_ms") if any(not load.test for load in plan.loads) else ()
    figures = plan.effects or tuple(name for name in (*of_runs, *of_tests) if any(row.number(name) is not None for row in rows))
    ranked = [row for row in rows if row.is_ranked and not row.reason]
    contrasts: list[tuple[str, str, str, _Contrast | None]] = []
    for name, figure in itertools.product(names, figures):
        for test in dict.fromkeys(_kind(row) for row in rows if (figure == "ts") == bool(_kind(row))):
            label = f"{describe(figure).english} of {test}" if test else describe(figure).english
            if not _blocks(plan, [row for row in rows if _kind(row) == test], name):
                continue  # nothing in the plan differs only in this
            blocks = _blocks(plan, [row for row in ranked if _kind(row) == test], name, figure)
            missing = sum(_kind(row) == test for row in rows) - sum(_kind(row) == test for row in ranked)
            left_out = f"; results that are not ranked and left out: {missing}" if missing else ""
            contrasts.append((name, label, left_out, _largest(blocks)))
    ratios = [(contrast.pairs, contrast.ratio) for *_, contrast in contrasts if contrast is not None]
    adjusted = iter(holm([min(1.0, ratio.p_value() * pairs) for pairs, ratio in ratios if ratio is not None]))
    return [_judged(*contrast, adjusted) for contrast in contrasts]


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


def _largest(blocks: Sequence[Block]) -> _Contrast | None:
    """The two values of the setting that differ most, over the blocks that have both."""
    labels = list(dict.fromkeys(label for block in blocks for label in block))
    freedom = sum(len(logs) - 1 for block in blocks for logs in block.values())
    squares = sum((log - _mean(logs)) ** 2 for block in blocks for logs in block.values() for log in logs)
    spread = max(LEAST_SPREAD, math.sqrt(squares / freedom)) if freedom else None
    pairs = list(itertools.combinations(labels, 2))
    contrasts = []
    for first, second in pairs:
        if both := [block for block in blocks if first in block and second in block]:
            log = _mean([_mean(block[second]) - _mean(block[first]) for block in both])
            size = math.sqrt(sum(1 / len(block[first]) + 1 / len(block[second]) for block in both)) / len(both)
            contrasts.append(_Contrast((first, second), log, None if spread is None else spread * size, freedom, len(pairs)))
    return max(contrasts, key=lambda contrast: abs(contrast.log), default=None)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _judged(setting: str, figure: str, left_out: str, contrast: _Contrast | None, adjusted: Iterator[float]) -> Effect:
    """The effect in words; the next of the adjusted p values belongs to it, if it has a ratio."""
    if contrast is None:
        text = f"{setting}: no two of its values have comparable results in {figure}"
        return Effect(setting, figure, None, None, None, is_shown=False, text=text)
    quotient, ratio = math.exp(contrast.log), contrast.ratio
    first, second = contrast.values
    largest = f"{change(quotient, gap=' ')} {figure} from {first} to {second}"
    if ratio is None:
        text = f"{setting}: {largest}, with one run each: not proven; give repeats: 3{left_out}"
        return Effect(setting, figure, contrast.values, quotient, None, is_shown=False, text=text)
    p = next(adjusted)
    is_shown = p <= 1 - CONFIDENCE
    outcome = f"{largest} (95 %: {change_between(*ratio.interval, gap=' ')}; p = {p:.2g}){left_out}"
    text = f"{setting}: {outcome}" if is_shown else f"{setting}: no effect shown; the largest difference is {outcome}"
    return Effect(setting, figure, contrast.values, quotient, p, is_shown=is_shown, text=text)
