"""TPOT by one formula on all sides of a comparison.

Ours divides by the tokens that came between the first and the last event. vLLM's divides by all
output tokens but one, so hidden thoughts and tool calls make it smaller. A result of another
program has vLLM's alone; then all sides are compared by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from llama_load.analysis.comparison.side import LLAMA_LOAD, MeasuredRun, Side, runs_of

TPOT_KEYS = ("_tpot_ms", "count_tpot")
# Figures of the same answers by both formulas are the same up to the digits of JSON.
RELATIVE = 1e-6
Value = TypeVar("Value")


def tpot_of(figures: Mapping[str, Value]) -> dict[str, Value]:
    """The statistics of TPOT among these figures, by their keys."""
    of_tpot = {}
    for key, value in figures.items():
        if key.endswith(TPOT_KEYS):
            of_tpot[key] = value

    return of_tpot


def by_one_formula(sides: Sequence[Side]) -> tuple[list[Side], list[str]]:
    """The sides with TPOT by the formula that all of them have.

    And a sentence where that is not our own.
    """
    runs = runs_of(sides)
    if all(run.tool == LLAMA_LOAD for run in runs):
        return list(sides), []

    same = []
    for side in sides:
        same.append(Side(side.label, list(map(_by_vllms, side.runs))))

    if not any(map(_differs, runs)):
        return same, []
    text = (
        "TPOT is that of vLLM's formula on all sides, (E2EL - TTFT) / (output tokens - 1), "
        "because results of other programs have no other; "
        "it counts tokens that had no event, such as hidden thoughts"
    )
    return same, [text]


def _by_vllms(run: MeasuredRun) -> MeasuredRun:
    """The run with vLLM's TPOT; without one where its summary has none."""
    if run.tool != LLAMA_LOAD:
        return run
    lacking = dict.fromkeys(tpot_of(run.values))
    samples = run.samples
    if _differs(run):
        samples = _without_tpot(run.samples.items())
    return replace(
        run, values={**run.values, **lacking, **run.vllm_tpot}, samples=samples
    )


def _without_tpot(samples: Iterable[tuple[str, Value]]) -> dict[str, Value]:
    others = dict(samples)
    others.pop("tpot", None)

    return others


def _differs(run: MeasuredRun) -> bool:
    """Whether a run of ours has another TPOT by vLLM's formula, or none."""
    if run.tool != LLAMA_LOAD:
        return False
    for key, value in tpot_of(run.values).items():
        if _are_apart(value, run.vllm_tpot.get(key)):
            return True
    return False


def _are_apart(own: float | None, other: float | None) -> bool:
    if own is None or other is None:
        return own is not other
    return abs(own - other) > RELATIVE * max(own, other)
