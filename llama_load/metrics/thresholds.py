"""Thresholds that turn a result into an exit code: `failure_ratio>0.01`, `p99_ttft_ms>500`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

DEFAULT = "failure_ratio>0.01"

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_PATTERN = re.compile(r"\s*([A-Za-z][\w.]*)\s*(>=|<=|>|<)\s*([-+0-9.eE]+)\s*")


@dataclass(frozen=True, slots=True)
class Threshold:
    """A condition on a key of the summary under which the run counts as failed."""

    text: str
    key: str
    sign: str
    limit: float


@dataclass(frozen=True, slots=True)
class ThresholdResult:
    """A threshold, the value it looked at, and whether it came true (that is: whether the run fails by it)."""

    text: str
    value: float | None
    failed: bool


def parse_threshold(text: str) -> Threshold:
    """Read `KEY OP NUMBER`. Raises ValueError with a sentence."""
    match = _PATTERN.fullmatch(text)
    try:
        if match:
            return Threshold(text.strip(), match[1], match[2], float(match[3]))
    except ValueError:
        pass
    raise ValueError(f"--fail-if wants KEY>NUMBER (or >=, <, <=) with a key of summary.json, such as p99_ttft_ms>500, got {text!r}")


def evaluate(threshold: Threshold, values: Mapping[str, object]) -> ThresholdResult:
    """Compare. A key that is missing or was not measured fails: a gate that saw nothing must not let through."""
    value = values.get(threshold.key)
    if not isinstance(value, int | float):
        return ThresholdResult(threshold.text, None, True)
    return ThresholdResult(threshold.text, float(value), _OPERATORS[threshold.sign](value, threshold.limit))
