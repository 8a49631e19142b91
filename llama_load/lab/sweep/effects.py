"""Whether a varied setting had an effect, judged by the scatter of the repeats.

Rows that differ only in the setting form a block; blocks differ in the other settings. For two
values of the setting the effect is the mean over blocks of log(mean of one / mean of the other).
Its standard error comes from the standard deviation of the logarithms between repeats, pooled over
all cells of the blocks: sqrt(s^2 * sum(1/n1 + 1/n2)) / blocks, with sum(n - 1) degrees of freedom.
The two values that differ most are judged; their p value is multiplied by the number of pairs
(Bonferroni), and all settings and figures together are adjusted by Holm. Without repeats, or in an
order in which the machine itself looks like an effect (`analysis.comparison.order`), nothing is
proven. Blocks in which two values must not be ranked against each other
(`analysis.comparison.reasons`: other prompts, other lengths, failed requests) are left out of their
effect; but for a flag of the load, which is varied to change them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llama_load.analysis.comparison.change_intervals import (
    LEAST_SPREAD,
    POWERS,
    Ratio,
    holm,
)
from llama_load.analysis.comparison.order import against_order
from llama_load.analysis.comparison.reasons import Reason, reasons_against
from llama_load.analysis.comparison.side import MeasuredRun, Side
from llama_load.analysis.statistics.statistics import CONFIDENCE
from llama_load.ground.languages import Translate
from llama_load.lab.sweep.plan import Plan
from llama_load.lab.sweep.ranking import concerns, side_of, texts_of
from llama_load.lab.sweep.rows import Row
from llama_load.lab.sweep.sweep_words import sweep_words
from llama_load.lab.sweep.values import describe
from llama_load.tables.numbers import change

TEST_RATE = "ts"  # tokens/s of a test


@dataclass(frozen=True, slots=True)
class _Block:
    """Rows that differ only in the setting, by its values.

    `reasons`: why values are not ranked (one alone, or two against each other).
    """

    rows: Mapping[str, Sequence[Row]]
    reasons: Mapping[frozenset[str], Sequence[Reason]]

    def logs(self, label: str, figure: str) -> list[float]:
        """The logarithms of this figure, one per run."""
        logs = []
        for row in self.rows.get(label, ()):
            value = row.number(figure)
            if row.is_ranked_in(figure) and value is not None and value > 0:
                logs.append(math.log(value))
        return logs

    def against(self, pair: tuple[str, str], figure: str) -> list[Reason]:
        """Why these two values are not compared in this figure."""
        first, second = pair
        found: list[Reason] = []
        for labels in (frozenset(pair), frozenset((first,)), frozenset((second,))):
            reasons = self.reasons.get(labels, ())
            found += [reason for reason in reasons if concerns(reason, figure)]
        return found

    def runs(self, label: str) -> list[MeasuredRun]:
        """The runs of a value."""
        runs = []
        for row in self.rows[label]:
            if row.run is not None:
                runs.append(row.run)

        return runs


@dataclass(frozen=True, slots=True)
class Effect:
    """A setting's effect on a figure.

    The two values that differ most, their ratio, p (adjusted), and a sentence.
    """

    setting: str
    figure: str
    values: tuple[str, str] | None
    ratio: float | None
    p: float | None
    is_shown: bool
    text: str


@dataclass(frozen=True, slots=True)
class _Contrast:
    """The two values of a setting that differ most.

    The logarithm of their ratio, its standard error (None without repeats), and why their order
    proves nothing (empty: it does).
    """

    values: tuple[str, str]
    log: float
    error: float | None
    freedom: int
    pairs: int
    order: str = ""

    @property
    def ratio(self) -> Ratio | None:
        if self.error is None:
            return None
        return Ratio(self.log, self.error, self.freedom)


def effects(plan: Plan, rows: Sequence[Row]) -> list[Effect]:
    """An effect per setting (and server, where there are several) and figure.

    Rows that may not be ranked are left out.
    """
    names = []
    for setting in plan.settings:
        if len(setting.labels) > 1:
            names.append(setting.name)

    if len(plan.servers) > 1:
        names.append("server")

    contrasts: list[_Named] = []
    for name, figure in itertools.product(names, _figures_of_effects(plan, rows)):
        contrasts += _contrasts_of(plan, rows, name, figure)

    p_values = {}
    for place, named in enumerate(contrasts):
        contrast = named.contrast
        if contrast is not None and contrast.ratio is not None and not contrast.order:
            p_values[place] = min(1.0, contrast.ratio.p_value() * contrast.pairs)
    adjusted = dict(zip(p_values, holm(list(p_values.values())), strict=True))

    found = []
    for place, named in enumerate(contrasts):
        p = adjusted.get(place)
        found.append(_in_words(named, p, len(p_values), sweep_words(plan.language)))
    return found


def _figures_of_effects(plan: Plan, rows: Sequence[Row]) -> tuple[str, ...]:
    """The figures in which effects are looked for: the plan's, else the usual ones."""
    if plan.effects:
        return plan.effects

    usual: list[str] = []
    if not all(load.test for load in plan.loads):
        usual += ["output_throughput", "mean_ttft_ms"]
    if plan.has_tests:
        usual.append(TEST_RATE)

    known = []
    for name in usual:
        if any(row.number(name) is not None for row in rows):
            known.append(name)
    return tuple(known)


def _contrasts_of(
    plan: Plan, rows: Sequence[Row], name: str, figure: str
) -> list[_Named]:
    """The contrast of a setting in a figure, one for each kind of test."""
    of_kinds: dict[str, list[Row]] = {}
    for row in rows:
        is_test = _test_kind(row) != ""
        if is_test == (figure == TEST_RATE):
            of_kinds.setdefault(_test_kind(row), []).append(row)

    t = sweep_words(plan.language)
    contrasts = []
    for kind, of_kind in of_kinds.items():
        if not _blocks(plan, of_kind, name):
            continue  # nothing in the plan differs only in this
        ranked = []
        for row in of_kind:
            if row.is_ranked and not row.reason:
                ranked.append(row)

        contrast, reasons = _largest_contrast(_blocks(plan, ranked, name), figure)

        left_out = ""
        unranked = len(of_kind) - len(ranked)
        if unranked:
            text = t("; results that are not ranked and left out: {count}")
            left_out += text.format(count=unranked)
        if reasons:
            left_out += t("; left out: {reason}").format(reason=reasons[0])
        if len(reasons) > 1:
            left_out += t("; and for {count} more").format(count=len(reasons) - 1)

        label = describe(figure).heading(plan.language)
        if kind:
            label += f" of {kind}"
        contrasts.append(_Named(name, label, left_out, contrast))
    return contrasts


@dataclass(frozen=True, slots=True)
class _Named:
    """A contrast with its setting, its figure, and what was left out of it."""

    setting: str
    figure: str
    left_out: str
    contrast: _Contrast | None


def _test_kind(row: Row) -> str:
    """pp or tg, whose rates are of different things; empty for a run."""
    return row.facts.get("test", "")[:2]


def _blocks(plan: Plan, rows: Sequence[Row], name: str) -> list[_Block]:
    """The rows by what they differ in besides this setting, where a block has two values of it."""
    # Not by concurrency, which a setting may change itself, but by stage.
    others = ["server", "workload", "load", *plan.setting_names]
    others.remove(name)

    by_others: dict[tuple[object, ...], dict[str, list[Row]]] = {}
    for row in rows:
        label = row.fact(name)
        if label:
            same = (row.stage, *row.facts_named(others))
            by_others.setdefault(same, {}).setdefault(label, []).append(row)

    changes_load = _changes_load(plan, name)
    blocks = []
    for by_label in by_others.values():
        if len(by_label) > 1:
            blocks.append(
                _Block(by_label, _reasons(plan, name, by_label, changes_load))
            )
    return blocks


def _changes_load(plan: Plan, name: str) -> bool:
    """Whether the setting is one of flags of the load."""
    for setting in plan.settings:
        if setting.name == name:
            return any(target.path[0] == "flags" for target, _ in setting.targets)
    return False


def _reasons(
    plan: Plan, name: str, block: Mapping[str, Sequence[Row]], changes_load: bool
) -> dict[frozenset[str], list[Reason]]:
    """Why values of a setting are not ranked.

    By the one value, or the two, that the reason is about.
    """
    sides: dict[str, Side] = {}
    for label, rows in block.items():
        side = side_of(plan, rows, f"{name}={label}")
        if side.runs:
            sides[label] = side

    labels = list(sides)
    found: dict[frozenset[str], list[Reason]] = {}
    for reason in reasons_against(list(sides.values())):
        if len(reason.sides) > 1 and changes_load:
            continue
        concerned = frozenset(labels[side] for side in reason.sides)
        found.setdefault(concerned, []).append(reason)
    return found


def _largest_contrast(
    blocks: Sequence[_Block], figure: str
) -> tuple[_Contrast | None, list[str]]:
    """The two values of the setting that differ most, and why others may not be compared.

    Over the blocks in which both may be compared.
    """
    labels: dict[str, None] = {}
    all_logs = []
    for block in blocks:
        for label in block.rows:
            logs = block.logs(label, figure)
            if logs:
                labels[label] = None
                all_logs.append(logs)
    pairs = list(itertools.combinations(labels, 2))
    scatter = _scatter(all_logs, len(pairs))

    contrasts = []
    against: list[Reason] = []
    for pair in pairs:
        comparable = []
        for block in blocks:
            if not block.logs(pair[0], figure) or not block.logs(pair[1], figure):
                continue
            reasons = block.against(pair, figure)
            against += reasons
            if not reasons:
                comparable.append(block)
        if comparable:
            contrasts.append(_contrast(pair, comparable, figure, scatter))

    largest = max(contrasts, key=lambda contrast: abs(contrast.log), default=None)
    return largest, texts_of(list(dict.fromkeys(against)))


@dataclass(frozen=True, slots=True)
class _Scatter:
    """The standard deviation of the logarithms between repeats (None without any).

    With its degrees of freedom, and the number of pairs that are judged.
    """

    spread: float | None
    freedom: int
    pairs: int


def _scatter(all_logs: Sequence[Sequence[float]], pairs: int) -> _Scatter:
    """Pooled over these groups of repeats."""
    freedom = 0
    squares = 0.0
    for logs in all_logs:
        mean = _mean(logs)
        freedom += len(logs) - 1
        for log in logs:
            squares += (log - mean) ** 2

    spread = None
    if freedom:
        spread = max(LEAST_SPREAD, math.sqrt(squares / freedom))
    return _Scatter(spread, freedom, pairs)


def _contrast(
    pair: tuple[str, str], blocks: Sequence[_Block], figure: str, scatter: _Scatter
) -> _Contrast:
    """Two values over these blocks."""
    first, second = pair
    differences = []
    inverse_counts = 0.0
    first_runs: list[MeasuredRun] = []
    second_runs: list[MeasuredRun] = []
    for block in blocks:
        first_runs += block.runs(first)
        second_runs += block.runs(second)
        logs = block.logs(first, figure)
        other_logs = block.logs(second, figure)
        differences.append(_mean(other_logs) - _mean(logs))
        inverse_counts += 1 / len(logs) + 1 / len(other_logs)

    order = None
    if scatter.freedom:
        order = against_order(Side(first, first_runs), Side(second, second_runs))
    error = None
    if scatter.spread is not None:
        error = scatter.spread * math.sqrt(inverse_counts) / len(blocks)
    return _Contrast(
        pair, _mean(differences), error, scatter.freedom, scatter.pairs, order or ""
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _in_words(named: _Named, p: float | None, together: int, t: Translate) -> Effect:
    """The effect with its sentence.

    `p`: adjusted; None if it is not judged. `together`: the effects that are judged.
    """
    figure = named.figure
    contrast = named.contrast
    if contrast is None:
        text = t("no two of its values have comparable results in {figure}")
        return _effect(named, None, text.format(figure=figure))

    first, second = contrast.values
    largest = t("{change} {figure} from {first} to {second}").format(
        change=change(math.exp(contrast.log), gap=" "),
        figure=figure,
        first=first,
        second=second,
    )
    ratio = contrast.ratio
    if ratio is None:
        text = t("{largest}, with one run each: not proven; give repeats: 3")
        return _effect(named, None, text.format(largest=largest))
    if contrast.order or p is None:
        text = t("{largest}, not proven: {order}")
        return _effect(named, None, text.format(largest=largest, order=contrast.order))

    low, high = (change(end, gap=" ") for end in ratio.interval)
    interval = t("{low} to {high}").format(low=low, high=high)
    text = t("{largest} (95 %: {interval}; p = {p})").format(
        largest=largest, interval=interval, p=f"{p:.2g}"
    )
    if p > 1 - CONFIDENCE:
        found = change(ratio.found_from(POWERS[0], contrast.pairs * together), gap=" ")
        text = t(
            "no effect shown; the largest difference is {text}; {found} would have been "
            "found with 95 %"
        ).format(text=text, found=found)
    return _effect(named, p, text)


def _effect(named: _Named, p: float | None, text: str) -> Effect:
    contrast = named.contrast
    return Effect(
        named.setting,
        named.figure,
        None if contrast is None else contrast.values,
        None if contrast is None else math.exp(contrast.log),
        p,
        is_shown=p is not None and p <= 1 - CONFIDENCE,
        text=f"{named.setting}: {text}{named.left_out}",
    )
