"""Which rows of a sweep may be ranked against each other.

By the reasons of `analysis.comparison.reasons`, over the rows of a table. Rows of different
workloads, loads, concurrencies and tests are classes of their own: the best of a column is the best
of its class. A table of one set-up at several loads asks which load, not which set-up, and is one
class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from llama_load.analysis.comparison.compared_metrics import Metric, metric_of
from llama_load.analysis.comparison.reasons import Reason, reasons_against
from llama_load.analysis.comparison.side import MeasuredRun, Side
from llama_load.ground.units import quantity
from llama_load.lab.sweep.grammar import URL
from llama_load.lab.sweep.plan import Plan
from llama_load.lab.sweep.rows import Row
from llama_load.lab.sweep.values import FACTS
from llama_load.run_folder.vocabulary.verdict_words import FAILED, INCOMPLETE

# Of the server alone: they do not depend on a load.
OF_SERVERS = ("perplexity", "bits_per_byte", "server_start_s")
MODEL_FILE = "model file"  # of a run's set-up
_LOADS = ("load", "concurrency")
_KINDS = ("workload", "test", "depth")
# A class of more rows is compared with its first row alone.
MOST_PAIRED = 64
MOST_OF_A_KIND = 3  # reasons of one kind in the notes
# Bits per byte and perplexity give tokens per byte; of one vocabulary these are equal but for
# rounding.
MOST_TOKENS_APART = 0.002


@dataclass(frozen=True, slots=True)
class Ranking:
    """The groups of rows that may be ranked, by their places.

    `classes`: places that may be ranked against each other but for `reasons`: of one place, or of
    two.
    """

    classes: Sequence[Sequence[int]]
    reasons: Sequence[Reason]

    def against(self, place: int, value: str) -> list[Reason]:
        """Why this group is not ranked in this column at all."""
        of_place = [reason for reason in self.reasons if reason.sides == (place,)]
        return [reason for reason in of_place if concerns(reason, value)]

    def between(self, places: Sequence[int], value: str) -> list[Reason]:
        """Why two of these groups are not ranked against each other in this column."""
        found = []
        for reason in self.reasons:
            is_of_two = len(reason.sides) == 2 and set(reason.sides) <= set(places)
            if is_of_two and concerns(reason, value):
                found.append(reason)
        return found


def concerns(reason: Reason, value: str) -> bool:
    """Whether a reason spoils a column of this value."""
    return reason.concerns(metric_of(value) or Metric(value, value, "", ""))


def ranking_of(plan: Plan, groups: Sequence[Sequence[Row]]) -> Ranking:
    """The ranking of these groups of rows."""
    is_one = _is_one_set_up(plan, groups)
    names = _KINDS if is_one else (*_KINDS, *_LOADS)

    classes: dict[tuple[str, ...], list[int]] = {}
    for place, group in enumerate(groups):
        if group:
            classes.setdefault(group[0].facts_named(names), []).append(place)

    reasons: list[Reason] = []
    for places in classes.values():
        reasons += _reasons_of_class(plan, groups, places, is_one=is_one)
    return Ranking(list(classes.values()), reasons)


def reasons_between(plan: Plan, *groups: Sequence[Row]) -> list[Reason]:
    """Why these groups of rows are not ranked against each other, or one of them at all."""
    return _reasons_of_class(plan, groups, range(len(groups)), is_one=False)


def _reasons_of_class(
    plan: Plan, groups: Sequence[Sequence[Row]], places: Sequence[int], *, is_one: bool
) -> list[Reason]:
    """The reasons of the groups at these places, with these places as their sides."""
    known: list[int] = []
    sides: list[Side] = []
    for place in places:
        side = side_of(plan, groups[place])
        if side.runs:
            known.append(place)
            sides.append(side)

    reasons = []
    for reason in _reasons_of_sides(sides):
        if len(reason.sides) == 1 or not is_one:
            reasons.append(
                replace(reason, sides=tuple(known[side] for side in reason.sides))
            )
    return reasons


def _reasons_of_sides(sides: Sequence[Side]) -> list[Reason]:
    """The reasons of all pairs; of many sides those of the first with each other one."""
    if len(sides) <= MOST_PAIRED:
        return reasons_against(sides)

    found = reasons_against(sides[:1])
    for index, side in enumerate(sides[1:], start=1):
        for reason in reasons_against([sides[0], side]):
            if reason.sides != (0,):
                place_of = (0, index)
                found.append(
                    replace(reason, sides=tuple(place_of[at] for at in reason.sides))
                )
    return found


def side_of(plan: Plan, rows: Sequence[Row], label: str = "") -> Side:
    """The runs of these rows that were read, as a side.

    `label`: else what of the rows varies in the plan.
    """
    runs = []
    for row in rows:
        if row.run is not None and not row.reason:
            runs.append(_comparable(row, row.run))

    if not label and rows:
        label = _short_name(rows[0], plan)
    return Side(label, runs)


def _comparable(row: Row, run: MeasuredRun) -> MeasuredRun:
    """Of a test its load alone counts.

    It is defined by its number of tokens, whose texts and counts differ between models, and timed
    by the server itself.
    """
    test = row.fact("test")
    if not test:
        return run

    values = dict(run.values)
    values.pop("total_input_tokens", None)
    values.pop("total_output_tokens", None)
    words = tuple(word for word in run.words if word in (FAILED, INCOMPLETE))
    return replace(
        run,
        values=values,
        words=words,
        prompts=None,
        plan=test,
        endpoint="",
        cached_tokens=None,
    )


def _is_one_set_up(plan: Plan, groups: Sequence[Sequence[Row]]) -> bool:
    """Whether all rows have one server with the same settings."""
    names = ["server", *plan.setting_names]
    set_ups = set()
    for group in groups:
        for row in group:
            set_ups.add(row.facts_named(names))
    return len(set_ups) < 2


def row_name(row: Row, plan: Plan) -> str:
    """The row as its notes name it: server, load, settings.

    With the workload and the stage where there are several.
    """
    shown = {"server", "load", *plan.setting_names}
    skipped = {value.key for value in FACTS} - shown

    texts = []
    for name, text in row.facts.items():
        if not text or name in skipped:
            continue
        texts.append(text if name in ("server", "load") else f"{name}={text}")
    if len(plan.workloads) > 1 and not row.fact("test"):
        texts.append(row.fact("workload"))
    if row.is_stage:
        texts.append(row.fact("concurrency"))
    return ", ".join(texts)


def _short_name(row: Row, plan: Plan) -> str:
    """What of the row varies in the plan; its whole name where nothing does."""
    texts = []
    if len(plan.servers) > 1:
        texts.append(row.fact("server"))
    for setting in plan.settings:
        if len(setting.labels) > 1:
            texts.append(f"{setting.name}={row.fact(setting.name)}")
    if len(plan.workloads) > 1 and not row.fact("test"):
        texts.append(row.fact("workload"))
    if len(plan.loads) > 1:
        texts.append(row.fact("load"))
    if row.is_stage:
        texts.append(row.fact("concurrency"))
    return ", ".join(texts) or row_name(row, plan)


def texts_of(reasons: Sequence[Reason]) -> list[str]:
    """Their sentences.

    Of each two sides the first alone, since the others often follow from it, and of many of one
    kind the first ones.
    """
    firsts: dict[tuple[int, ...], Reason] = {}
    for reason in reasons:
        firsts.setdefault(reason.sides, reason)

    by_kind: dict[str, list[str]] = {}
    for reason in firsts.values():
        same_kind = by_kind.setdefault(reason.kind, [])
        if reason.text not in same_kind:
            same_kind.append(reason.text)

    texts: list[str] = []
    for kind, same_kind in by_kind.items():
        more = len(same_kind) - MOST_OF_A_KIND
        if not kind or more <= 0:
            texts += same_kind
        else:
            texts += same_kind[:MOST_OF_A_KIND]
            texts.append(f"{kind}: {quantity(more, 'more pair')} of rows")
    return texts


def same_files(plan: Plan, rows: Sequence[Row]) -> list[str]:
    """A sentence for each two labels of a setting whose servers report one model file.

    Of settings that choose the model, or the URL of a server.
    """
    sentences = []
    for setting in plan.settings:
        if not any(target.path[0] in ("model", URL) for target, _ in setting.targets):
            continue

        for (server, file), labels in _labels_of_files(setting.name, rows).items():
            if len(labels) > 1:
                listed = " and ".join(labels)
                sentences.append(
                    f"{server}: {setting.name} {listed} are the same model file "
                    f"by the server's own report: {file}"
                )
    return sentences


def _labels_of_files(
    name: str, rows: Sequence[Row]
) -> dict[tuple[str, str], dict[str, None]]:
    """The labels of a setting, in order, by the server and the model file that it reports."""
    labels: dict[tuple[str, str], dict[str, None]] = {}
    for row in rows:
        file = row.run.setup.get(MODEL_FILE) if row.run is not None else None
        label = row.fact(name)
        if file and label:
            labels.setdefault((row.fact("server"), file), {})[label] = None
    return labels


def quality_reason(plan: Plan, groups: Sequence[Sequence[Row]]) -> str:
    """Why perplexities must not be ranked.

    They are per token, and the vocabularies differ, or are not known to be the same. Empty: they
    may be.
    """
    rows = []
    for group in groups:
        scored = []
        for row in group:
            if row.number("perplexity") is not None:
                scored.append(row)

        rows += scored[:1]
    if len({row.fact("model") for row in rows}) < 2:
        return ""

    ratios = []
    for row in rows:
        ratio = _tokens_per_byte(row)
        if ratio is None:
            return (
                f"perplexity is not ranked: whether {row_name(row, plan)} "
                "has the vocabulary of the others is not known"
            )
        ratios.append(ratio)
    if max(ratios) > (1 + MOST_TOKENS_APART) * min(ratios):
        return (
            "perplexity is not ranked: it is per token, and the vocabularies differ; "
            "bits per byte are comparable"
        )
    return ""


def _tokens_per_byte(row: Row) -> float | None:
    """Of the scored text: bits per byte / log2(perplexity)."""
    perplexity = row.number("perplexity")
    bits = row.number("bits_per_byte")
    if perplexity is None or bits is None or perplexity <= 1:
        return None
    return bits / math.log2(perplexity)
