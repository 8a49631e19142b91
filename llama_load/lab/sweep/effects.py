"""Whether a varied setting had an effect, judged by the scatter of the repeats.

Rows that differ only in the setting form a block; blocks differ in the other settings. For two values of the setting the effect is
the mean over blocks of log(mean of one / mean of the other). Its standard error comes from the standard deviation of the logarithms
between repeats, pooled over all cells of the blocks: sqrt(s^2 * sum(1/n1 + 1/n2)) / blocks, with sum(n - 1) degrees of freedom.
The two values that differ most are judged; their p value is multiplied by the number of pairs (Bonferroni), and all settings and
figures together are adjusted by Holm. Without repeats, or in an order in which the machine itself looks like an effect
(`comparison.order`), nothing is proven. Blocks in which two values must not be ranked against each other
(`comparison.reasons`: other prompts, other lengths, failed requests) are left out of their effect; but for a flag of the load,
which is varied to change them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from llama_load.comparison.change_intervals import LEAST_SPREAD, POWERS, Ratio, holm
from llama_load.comparison.order import against_order
from llama_load.comparison.reasons import Reason, reasons_against
from llama_load.comparison.side import Side
from llama_load.lab.sweep.plan import Plan
from llama_load.lab.sweep.ranking import concerns, side_of, texts_of
from llama_load.lab.sweep.rows import Row
from llama_load.lab.sweep.values import describe
from llama_load.metrics.statistics import CONFIDENCE
from llama_load.tables.numbers import change, change_between
from llama_load.units import quantity


@dataclass(frozen=True, slots=True)
class _Block:
    """Rows that differ only in the setting, by its values, and why values are not ranked (one alone, or two against each other)."""

    rows: Mapping[str, Sequence[Row]]
    reasons: Mapping[frozenset[str], Sequence[Reason]]

    def logs(self, label: str, figure: str) -> list[float]:
        """The logarithms of this figure, one per run."""
        rows = [row for row in self.rows.get(label, ()) if row.is_ranked_in(figure)]
        values = [row.number(figure) for row in rows]
        return [math.log(value) for value in values if value is not None and value > 0]

    def against(self, labels: tuple[str, str], figure: str) -> list[Reason]:
        """Why these two values are not compared in this figure."""
        keys = [frozenset(labels), *(frozenset((label,)) for label in labels)]
        return [reason for key in keys for reason in self.reasons.get(key, ()) if concerns(reason, figure)]


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
    """The two values of a setting that differ most: the logarithm of their ratio, its standard error (None without repeats), and
    why their order proves nothing (empty: it does)."""

    values: tuple[str, str]
    log: float
    error: float | None
    freedom: int
    pairs: int
    order: str = ""

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
    contrasts: list[_Named] = []
    for name, figure in itertools.product(names, figures):
        for test in dict.fromkeys(_kind(row) for row in rows if (figure == "ts") == bool(_kind(row))):
            label = f"{describe(figure).english} of {test}" if test else describe(figure).english
            own = [row for row in rows if _kind(row) == test]
            good = [row for row in ranked if _kind(row) == test]
            if not _blocks(plan, own, name):
                continue  # nothing in the plan differs only in this
            contrast, texts = _largest(_blocks(plan, good, name), figure)
            missing = len(own) - len(good)
            is_counted = missing and contrast is not None
            notes = [f"results that are not ranked and left out: {missing}"] if is_counted else []
            notes += [f"left out: {text}" for text in texts[:1]]
            notes += [f"and for {quantity(len(texts) - 1, 'more reason')}"] if len(texts) > 1 else []
            contrasts.append(_Named(name, label, "".join(f"; {note}" for note in notes), contrast))
    known = [named.contrast for named in contrasts if named.contrast is not None and not named.contrast.order]
    p_values = [min(1.0, contrast.ratio.p_value() * contrast.pairs) for contrast in known if contrast.ratio is not None]
    adjusted = iter(holm(p_values))
    return [_judged(named, adjusted, len(p_values)) for named in contrasts]


@dataclass(frozen=True, slots=True)
class _Named:
    """A contrast with its setting, its figure, and what was left out of it."""

    setting: str
    figure: str
    left_out: str
    contrast: _Contrast | None


def _kind(row: Row) -> str:
    """pp or tg: their rates are of different things."""
    return row.facts.get("test", "")[:2]


def _blocks(plan: Plan, rows: Sequence[Row], name: str) -> list[_Block]:
    """The rows by what they differ in besides this setting, where a block has two values of it."""
    # Not by concurrency, which a setting may change itself, but by stage.
    others = [other for other in ("server", "workload", "load", *(setting.name for setting in plan.settings)) if other != name]
    blocks: dict[tuple[object, ...], dict[str, list[Row]]] = {}
    for row in rows:
        if label := row.fact(name):
            block = blocks.setdefault((row.stage, *(row.fact(other) for other in others)), {})
            block.setdefault(label, []).append(row)
    changes_load = any(
        target.path[0] == "flags" for setting in plan.settings if setting.name == name for target, _ in setting.targets
    )
    return [_Block(block, _reasons(plan, name, block, changes_load)) for block in blocks.values() if len(block) > 1]


def _reasons(plan: Plan, name: str, block: Mapping[str, Sequence[Row]], changes_load: bool) -> dict[frozenset[str], list[Reason]]:
    """Why values of a setting are not ranked: by the one value, or the two, that the reason is about."""
    sides: dict[str, Side] = {}
    for label, rows in block.items():
        side = side_of(plan, rows, f"{name}={label}")
        if side.runs:
            sides[label] = side
    labels = list(sides)
    found: dict[frozenset[str], list[Reason]] = {}
    for reason in reasons_against(list(sides.values())):
        if len(reason.sides) == 1 or not changes_load:
            found.setdefault(frozenset(labels[side] for side in reason.sides), []).append(reason)
    return found


def _largest(blocks: Sequence[_Block], figure: str) -> tuple[_Contrast | None, list[str]]:
    """The two values of the setting that differ most, over the blocks in which both may be compared; and why others may not."""
    labels = list(dict.fromkeys(label for block in blocks for label in block.rows if block.logs(label, figure)))
    all_logs = [logs for block in blocks for label in block.rows if (logs := block.logs(label, figure))]
    freedom = sum(len(logs) - 1 for logs in all_logs)
    squares = sum((log - _mean(logs)) ** 2 for logs in all_logs for log in logs)
    spread = max(LEAST_SPREAD, math.sqrt(squares / freedom)) if freedom else None
    pairs = list(itertools.combinations(labels, 2))
    contrasts = []
    against: list[Reason] = []
    for pair in pairs:
        both = [block for block in blocks if block.logs(pair[0], figure) and block.logs(pair[1], figure)]
        against += [reason for block in both for reason in block.against(pair, figure)]
        both = [block for block in both if not block.against(pair, figure)]
        if both:
            contrasts.append(_contrast(pair, both, figure, _Scatter(spread, freedom, len(pairs))))
    largest = max(contrasts, key=lambda contrast: abs(contrast.log), default=None)
    return largest, texts_of(list(dict.fromkeys(against)))


@dataclass(frozen=True, slots=True)
class _Scatter:
    """The standard deviation of the logarithms between repeats (None without any), its degrees of freedom, and the number of pairs
    that are judged."""

    spread: float | None
    freedom: int
    pairs: int


def _contrast(pair: tuple[str, str], blocks: Sequence[_Block], figure: str, scatter: _Scatter) -> _Contrast:
    """Two values over these blocks."""
    first, second = [[block.logs(label, figure) for block in blocks] for label in pair]
    log = _mean([_mean(other) - _mean(one) for one, other in zip(first, second, strict=True)])
    size = math.sqrt(sum(1 / len(logs) for logs in (*first, *second))) / len(blocks)
    sides = []
    for label in pair:
        runs = [row.run for block in blocks for row in block.rows[label] if row.run is not None]
        sides.append(Side(label, runs))
    order = against_order(*sides) if scatter.freedom else None
    error = None if scatter.spread is None else scatter.spread * size
    return _Contrast(pair, log, error, scatter.freedom, scatter.pairs, order or "")


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _judged(named: _Named, adjusted: Iterator[float], together: int) -> Effect:
    """The effect in words; the next of the adjusted p values, of so many `together`, belongs to it, if it is judged."""
    setting, figure, left_out, contrast = named.setting, named.figure, named.left_out, named.contrast
    if contrast is None:
        text = f"{setting}: no two of its values have comparable results in {figure}{left_out}"
        return Effect(setting, figure, None, None, None, is_shown=False, text=text)
    quotient, ratio = math.exp(contrast.log), contrast.ratio
    first, second = contrast.values
    largest = f"{change(quotient, gap=' ')} {figure} from {first} to {second}"
    if ratio is None:
        text = f"{setting}: {largest}, with one run each: not proven; give repeats: 3{left_out}"
        return Effect(setting, figure, contrast.values, quotient, None, is_shown=False, text=text)
    if contrast.order:
        text = f"{setting}: {largest}, not proven: {contrast.order}{left_out}"
        return Effect(setting, figure, contrast.values, quotient, None, is_shown=False, text=text)

    p = next(adjusted)
    is_shown = p <= 1 - CONFIDENCE
    outcome = f"{largest} (95 %: {change_between(*ratio.interval, gap=' ')}; p = {p:.2g})"
    if not is_shown:
        found = change(ratio.found_from(POWERS[0], contrast.pairs * together), gap=" ")
        outcome = f"no effect shown; the largest difference is {outcome}; {found} would have been found with 95 %"
    text = f"{setting}: {outcome}{left_out}"
    return Effect(setting, figure, contrast.values, quotient, p, is_shown=is_shown, text=text)
