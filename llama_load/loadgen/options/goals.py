"""The flags for goals: objectives, thresholds, and reported percentiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llama_load.ground.errors import did_you_mean
from llama_load.loadgen.options.flag_reader import FlagReader
from llama_load.loadgen.schedule.segments import LoadModel
from llama_load.run_folder.arithmetic.percentiles import least_count
from llama_load.run_folder.manifest import MOST_PERCENTILES
from llama_load.run_folder.vocabulary.abort import parse_abort
from llama_load.run_folder.vocabulary.definitions import RATES, SECTION_KEYS
from llama_load.run_folder.vocabulary.slo import Slo, parse_slo
from llama_load.run_folder.vocabulary.threshold_keys import threshold_keys
from llama_load.run_folder.vocabulary.thresholds import (
    DEFAULT,
    VERDICT,
    Threshold,
    parse_threshold,
    percentile_of,
)
from llama_load.run_folder.vocabulary.until import Until, parse_until

# Percentiles to judge instead of one that too few requests have.
FITTING = (99.0, 95.0, 90.0, 75.0)


@dataclass(frozen=True, slots=True)
class Goals:
    """The criteria for a result. Run folders keep objectives and thresholds as text, as they were
    given."""

    slos: tuple[Slo, ...]
    thresholds: tuple[Threshold, ...]  # including the default one, if it applies
    percentiles: list[float]
    percentile_metrics: list[str]
    abort_if: tuple[Threshold, ...] = ()
    until: Until | None = None
    end_below: float | None = None


def read_goals(flags: FlagReader, load: LoadModel) -> Goals:
    """The goals of a run under this load. Faults go to the reader."""
    faults = flags.faults
    slos = flags.parsed("goodput", parse_slo, words=True)
    sections = _sections(flags.text("percentile_metrics") or "", faults)
    percentiles = _percentiles_of_text(flags.text("metric_percentiles") or "", faults)

    given = flags.parsed("fail_if", parse_threshold)
    for threshold in given:  # what is judged is reported
        percentile = percentile_of(threshold.key)
        if percentile is not None and percentile[1] not in percentiles:
            percentiles.append(percentile[1])
    stages = [stage.name for stage in load.stages]
    for threshold in given:
        faults += _meaningless(threshold, percentiles, stages)
    default = parse_threshold(DEFAULT)
    # A threshold of a part does not replace the default.
    replaced = any(
        threshold.key == default.key and threshold.group is None for threshold in given
    )
    thresholds = given if replaced else [*given, default]
    if flags.switch("no_stream"):
        faults += _unmeasurable(slos, thresholds)

    untils = flags.parsed("until", parse_until)
    if untils and (load.stages or load.ramp):
        faults.append("--until needs one constant load: leave out --stages and --ramp")
    if untils and flags.switch("no_stream") and untils[0].latency in ("ttft", "tpot"):
        faults.append(
            f"--until {untils[0].text}: whole answers (--no-stream) have only E2EL"
        )

    num_prompts = flags.number("num_prompts", int, 1)
    end_below = flags.number("end_below", float, 0, above=True, most=1)
    if end_below is not None and (not slos or num_prompts is None or load.stages):
        faults.append(
            "--end-below needs objectives and one load: give --goodput and --num-prompts, and no "
            "--stages"
        )
    for threshold in thresholds:
        faults += _too_few(threshold, num_prompts, load)

    return Goals(
        tuple(slos),
        tuple(thresholds),
        percentiles,
        sections,
        abort_if=tuple(flags.parsed("abort_if", parse_abort)),
        until=untils[0] if untils else None,
        end_below=end_below,
    )


def _meaningless(
    threshold: Threshold, percentiles: list[float], stages: list[str]
) -> Iterator[str]:
    """Keys that no result has, or that name an unknown stage."""
    text = threshold.text
    key = threshold.key
    if key != VERDICT and key not in threshold_keys(percentiles):
        yield f"--fail-if {text!r}: {_no_such_key(key, percentiles)}"
    if stages and threshold.group != "stage" and key in RATES:
        yield f"--fail-if {text!r} needs a stage: write {key}{{stage={stages[0]}}}"
    if threshold.group == "stage" and threshold.member not in stages:
        yield (
            f"--fail-if {text!r}: there is no stage {threshold.member!r}; stages: "
            f"{', '.join(stages) or 'none'}"
        )


def _no_such_key(key: str, percentiles: Sequence[float]) -> str:
    """What is wrong with a key that no result of the run has."""
    near = (
        did_you_mean(key, threshold_keys(percentiles))
        or "; docs/metrics.md has all keys"
    )
    return f"there is no key {key!r}{near}"


def _unmeasurable(
    slos: Sequence[Slo], thresholds: Sequence[Threshold]
) -> Iterator[str]:
    """Objectives and thresholds that whole answers (--no-stream) do not provide."""
    for slo in slos:
        if slo.metric in ("ttft", "tpot"):
            yield (
                f"--goodput {slo.text}: whole answers (--no-stream) have no TTFT and no TPOT; "
                "write e2el:MILLISECONDS"
            )
    for threshold in thresholds:
        if any(f"_{metric}_ms" in threshold.key for metric in ("ttft", "tpot", "itl")):
            yield f"--fail-if {threshold.text!r}: whole answers (--no-stream) have only E2EL"


def _too_few(
    threshold: Threshold, num_prompts: int | None, load: LoadModel
) -> Iterator[str]:
    """Percentiles that need more requests."""
    count = None if load.stages else num_prompts
    if threshold.group == "stage":
        for stage in load.stages:
            if stage.name == threshold.member:
                count = stage.count or num_prompts

    latency, p = percentile_of(threshold.key) or ("itl", 50.0)
    if count is not None and latency != "itl" and count < least_count(p):
        text = (
            f"--fail-if {threshold.text!r} needs {least_count(p)} requests, got --num-prompts "
            f"{count}"
        )
        fitting = [each for each in FITTING if count >= least_count(each)]
        instead = f"median_{latency}_ms"
        if fitting:
            instead = f"p{fitting[0]:g}_{latency}_ms"
        yield f"{text}: raise --num-prompts, or write {instead}"


def _sections(given: str, faults: list[str]) -> list[str]:
    names = [name.strip() for name in given.split(",") if name.strip()]
    for name in names:
        if name not in SECTION_KEYS:
            faults.append(
                f"--percentile-metrics must be of {', '.join(SECTION_KEYS)}, got {name!r}"
            )
    return names


def _percentiles_of_text(given: str, faults: list[str]) -> list[float]:
    values = []
    for part in given.split(","):
        try:
            value = float(part)
        except ValueError:
            value = -1.0
        if 0 < value < 100:
            values.append(value)
        else:
            faults.append(
                "--metric-percentiles must be numbers between 0 and 100, such as 50,99, got "
                f"{part.strip()!r}"
            )
    if len(values) > MOST_PERCENTILES:
        faults.append(
            f"--metric-percentiles must be at most {MOST_PERCENTILES} numbers, got {len(values)}"
        )
    return values
