"""Thresholds that turn a result into an exit code (--fail-if): `failure_ratio>0.01`,
`p99_ttft_ms{workload=document}>500`.

    KEY OP NUMBER                 KEY of the whole run
    KEY{GROUP=NAME} OP NUMBER     KEY of the requests of one workload, stage, model, host or turn
    verdict!=WORD, verdict==WORD  a word of the verdict; several may apply

OP is >, >=, < or <=; KEY is a key of summary.json. NAME needs quotes (single or double) if it is
empty, contains `}` or what looks like a second GROUP=, begins with a quote, or begins or ends with
a space. Double a quote inside: `{model='it''s'}`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from llama_load.ground.units import quantity
from llama_load.run_folder.arithmetic.percentiles import least_count
from llama_load.run_folder.vocabulary.bound import Bound
from llama_load.run_folder.vocabulary.verdict_words import WORDS

FAILURES = "failure_ratio"
DEFAULT = f"{FAILURES}>0.01"
GROUPS = ("workload", "stage", "model", "adapter", "host", "turn")

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
# Of each operator the one that holds where it does not; of a share of failures in words.
_CONTRARY = {">": "<=", ">=": "<", "<": ">=", "<=": ">"}
_SHARES = {">": "at most", ">=": "less than"}
_PATTERN = re.compile(
    r"""\s* (?P<key>[A-Za-z][\w.]*) \s*
    (?: \{ \s* (?P<group>\w+) \s* = \s*
        (?: "(?P<double>(?:[^"]|"")*)" \s* | '(?P<single>(?:[^']|'')*)' \s* | (?P<bare>[^}"'\s][^}]*) )
    \} \s* )?
    (?P<sign>>=|<=|>|<) \s* (?P<limit>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?) \s*""",
    re.VERBOSE,
)
VERDICT = "verdict"
_VERDICT_PATTERN = re.compile(rf"\s*{VERDICT}\s*(?P<sign>==|!=)\s*(?P<word>.*?)\s*")
_PERCENTILE = re.compile(r"p(?P<p>\d{1,2}(?:\.\d+)?)_(?P<latency>\w+)_ms")
_SECOND_GROUP = re.compile(rf",\s*(?:{'|'.join(GROUPS)})\s*=")


@dataclass(frozen=True, slots=True)
class Threshold:
    """A condition under which the run fails, on a figure of the run or of one member of a group."""

    text: str
    key: str
    sign: str
    limit: float
    group: str | None = None
    member: str | None = None
    word: str | None = None  # a word of the verdict, instead of a limit

    @property
    def requirement(self) -> str:
        """What has to hold for the run to pass, which is the contrary of the condition:
        `p99_ttft_ms <= 500`, `at most 1 % failed`, `verdict is VALID`."""
        if self.word is not None:
            return f"{VERDICT} {'is' if self.sign == '!=' else 'is not'} {self.word}"
        if self.is_share_of_failures and self.sign in _SHARES:
            of = "" if self.group is None else f" of {self.group} {self.member}"
            return f"{_SHARES[self.sign]} {100 * self.limit:.9g} % failed{of}"
        group = "" if self.group is None else f"{{{self.group}={self.member}}}"
        return f"{self.key}{group} {_CONTRARY[self.sign]} {self.limit:.9g}"

    @property
    def is_share_of_failures(self) -> bool:
        """Whether it is shown in percent."""
        return self.key == FAILURES

    def shown(self, value: float) -> str:
        """A value with six digits, or with as many as tell it from the limit; shares of failures in
        percent."""
        scale, unit = (100.0, " %") if self.is_share_of_failures else (1.0, "")
        for digits in (6, 9):
            if (
                text := f"{value * scale:.{digits}g}"
            ) != f"{self.limit * scale:.{digits}g}" or value == self.limit:
                return text + unit
        return f"{value * scale!r}{unit}"


@dataclass(frozen=True, slots=True)
class ThresholdResult:
    """A threshold, evaluated."""

    threshold: Threshold
    value: float | None  # that it was compared with
    failed: bool  # the run fails by it
    why: str | None = None  # the reason for a missing value
    # of a figure that a check spoils: its lowest and its highest number
    between: tuple[float, float] | None = None

    @property
    def text(self) -> str:
        """The threshold as it was given."""
        return self.threshold.text

    @property
    def line(self) -> str:
        """The requirement and what was measured: `p99_ttft_ms <= 500: 112`, `at most 1 % failed: 0
        %`."""
        if self.value is None:
            return f"{self.threshold.requirement}: {self.why or 'not measured'}"
        shown = self.threshold.shown(self.value)
        if self.between is not None:
            low, high = map(self.threshold.shown, self.between)
            shown += f" ({low} to {high})"
        return f"{self.threshold.requirement}: {shown}"


def parse_threshold(text: str) -> Threshold:
    """Parse `KEY OP NUMBER`, `KEY{GROUP=NAME} OP NUMBER`, `verdict!=WORD` or `verdict==WORD`.
    Raises ValueError with a message for users."""
    if (verdict := _VERDICT_PATTERN.fullmatch(text)) is not None:
        word = verdict["word"].strip("'\"").upper()
        if word not in WORDS:
            raise ValueError(
                f"--fail-if takes one of the verdicts {', '.join(WORDS)}, got {verdict['word']!r} in {text!r}"
            )
        return Threshold(text.strip(), VERDICT, verdict["sign"], 0.0, word=word)
    match = _PATTERN.fullmatch(text)
    if match is None or match["key"] == VERDICT:
        raise ValueError(
            "--fail-if takes KEY>NUMBER or KEY{GROUP=NAME}>NUMBER (or >=, <, <=) with a key of summary.json, "
            f"such as p99_ttft_ms>500 or p99_ttft_ms{{workload=document}}>500, or verdict!=VALID, got {text!r}"
        )
    if not math.isfinite(limit := float(match["limit"])):
        raise ValueError(
            f"--fail-if takes a finite number, got {match['limit']} in {text!r}"
        )
    group = match["group"]
    if group is not None and group not in GROUPS:
        raise ValueError(
            f"--fail-if takes one of the groups {', '.join(GROUPS)}, got {group!r} in {text!r}"
        )
    if _SECOND_GROUP.search(match["bare"] or ""):
        raise ValueError(
            f"--fail-if takes one GROUP=NAME (quote a name that looks like two), got {text!r}"
        )
    return Threshold(
        text.strip(), match["key"], match["sign"], limit, group, _member(match)
    )


def _member(match: re.Match[str]) -> str | None:
    """The name within the braces, without its quotes; None without braces."""
    if (double := match["double"]) is not None:
        return str(double).replace('""', '"')
    if (single := match["single"]) is not None:
        return str(single).replace("''", "'")
    return None if match["bare"] is None else str(match["bare"]).rstrip()


def evaluate(
    threshold: Threshold,
    values: Mapping[str, object],
    groups: Mapping[str, Mapping[str, Mapping[str, object]]] = {},
    spoiled: Mapping[str, str] = {},
    bounds: Mapping[str, Bound] = {},
) -> ThresholdResult:
    """Compare with the run's `values`, or with those of a group's member:
    groups["workload"]["document"]["p99_ttft_ms"]. `values[VERDICT]` are the words of the verdict.
    `spoiled`: keys that checks of the verdict spoil, and why; `bounds`: by how much, where it is
    known: what no doubt within its bound can turn is judged.

    A missing member, a missing key, a value that was not measured, a percentile of too few values
    and a spoiled figure fail: a gate that cannot be judged must not pass.
    """
    if threshold.word is not None:
        words = values[VERDICT]
        assert isinstance(words, list)
        return ThresholdResult(
            threshold,
            None,
            (threshold.word in words) is (threshold.sign == "=="),
            ", ".join(words),
        )
    if threshold.group is not None and threshold.member is not None:
        values = groups.get(threshold.group, {}).get(threshold.member, {})
    value = values.get(threshold.key)
    why = _too_few(threshold.key, values)
    between = None
    if why is None and threshold.key in spoiled:
        between = _judged_by_bound(threshold, value, bounds.get(threshold.key))
        if between is None:
            why = f"not judged ({spoiled[threshold.key]})"
    if why is not None or not isinstance(value, int | float) or math.isnan(value):
        return ThresholdResult(threshold, None, True, why)
    return ThresholdResult(
        threshold,
        float(value),
        _OPERATORS[threshold.sign](value, threshold.limit),
        between=between,
    )


def _judged_by_bound(
    threshold: Threshold, value: object, bound: Bound | None
) -> tuple[float, float] | None:
    """The lowest and the highest number of a spoiled figure, if the threshold says the same of
    both; None: it cannot be judged."""
    if bound is None or not isinstance(value, int | float):
        return None
    low, high = bound.around(threshold.key, value)
    is_failed = _OPERATORS[threshold.sign]
    if is_failed(low, threshold.limit) is not is_failed(high, threshold.limit):
        return None
    return low, high


def percentile_of(key: str) -> tuple[str, float] | None:
    """The latency and the percentile of a key: `p99_ttft_ms`: ttft, 99; None for other keys."""
    match = _PERCENTILE.fullmatch(key)
    return (match["latency"], float(match["p"])) if match else None


def _too_few(key: str, values: Mapping[str, object]) -> str | None:
    if (percentile := percentile_of(key)) is None:
        return None
    latency, p = percentile
    count = values.get(f"count_{latency}")
    least = least_count(p)
    return (
        f"n/a ({quantity(count, 'value')}, {least} needed)"
        if isinstance(count, int) and 0 < count < least
        else None
    )
