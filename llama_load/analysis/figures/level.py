"""A load of a run in stages, and the two figures that are drawn against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llama_load.analysis.figures.spoiled import RATES, TTFT
from llama_load.analysis.figures.stage_figures import StageFigures


@dataclass(frozen=True, slots=True)
class Level:
    """A load in users, or in requests/s (`is_rate`), its median TTFT and its output tokens/s.

    A figure that is not known is None. One that a failed check spoils is not sure.
    """

    load: float
    is_rate: bool
    ttft_ms: float | None
    tok_per_s: float | None
    is_ttft_sure: bool = True
    is_rate_sure: bool = True


def levels_of(stages: Sequence[StageFigures]) -> list[Level]:
    """A level for each stage."""
    levels = []
    for stage in stages:
        figures = stage.figures
        level = Level(
            stage.load,
            stage.rate_rps is not None,
            figures.distributions["ttft"].median,
            figures.output_throughput,
            is_ttft_sure=stage.is_comparable and stage.is_usable(TTFT),
            is_rate_sure=stage.is_comparable and stage.is_usable(RATES),
        )
        levels.append(level)

    return levels
