"""A run in the formats of other programs: a module and a row each.

The verdict goes wherever the format has room for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from llama_load.ground.plugins import FORMATS as ADDED
from llama_load.ground.plugins import added


@dataclass(frozen=True, slots=True)
class Export:
    """A format of another program.

    `function` of `module` makes it, from what `takes` names: the "results" of a run, its "records",
    or a "folder" of runs. It gives a text, a JSON value, or an iterator of JSON values, each for a
    line. The module is imported when it is asked for: the names are in the help of a command.
    `package` is where it lies.
    """

    name: str
    module: str
    function: str
    takes: str = "results"
    package: str = __name__

    def maker(self) -> Callable[[Any], object]:
        """The function."""
        module = import_module(f"{self.package}.{self.module}")
        function: Callable[[Any], object] = getattr(module, self.function)
        return function


EXPORTS = (
    Export("llm-d", "llm_d", "benchmark_report"),
    Export("aiperf", "aiperf_export", "run_export"),
    Export("aiperf-requests", "aiperf_export", "request_lines", takes="records"),
    Export("github-smaller", "github_benchmark", "smaller_is_better"),
    Export("github-bigger", "github_benchmark", "bigger_is_better"),
    Export("otlp-traces", "otlp", "traces"),
    Export("otlp-metrics", "otlp", "metric_lines"),
    Export("mlperf", "mlperf_regions", "regions_json", takes="folder"),
    *added(ADDED, Export),
)
