"""The figures in a JSON object with the keys of `vllm bench serve`'s result file: theirs, vllm-bench's and our summary.json."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llama_load.comparison.compared_metrics import metric_of
from llama_load.errors import UsageError
from llama_load.foreign_files import read_foreign_json
from llama_load.foreign_text import printable

MOST_BYTES = 256 * 1024 * 1024  # of a result with the times of every token
MOST_CHARS = 300  # of a text from a file
_IDENTIFYING = (
    "completed",
    "duration",
    "total_input_tokens",
    "total_output_tokens",
    "mean_ttft_ms",
    "median_ttft_ms",
    "mean_tpot_ms",
)
_COUNT = re.compile(r"count_\w{1,40}|dropped")


def read_json(file: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises UsageError."""
    if not file.is_file():
        raise UsageError(f"{file} is no file; name a run folder or a result JSON")
    try:
        return read_foreign_json(file, MOST_BYTES)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        why = printable(str(error), 200)
        raise UsageError(f"{file} is no result: {why}; name a summary.json, or what vllm bench serve --save-result wrote") from None


def values_of(result: Mapping[str, Any]) -> dict[str, float | None]:
    """Its figures and counts, by key; None where it has no usable number."""
    return {key: number(value) for key, value in result.items() if metric_of(key) is not None or _COUNT.fullmatch(key)}


def number(value: object) -> float | None:
    """A finite number that is not negative; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def whole(value: object) -> int | None:
    """A count; None for anything else."""
    figure = number(value)
    return None if figure is None else int(figure)


def text(value: object) -> str:
    """A text for a table or a message; empty where there is none."""
    return "" if value is None else printable(str(value), MOST_CHARS)


def identity_of(values: Mapping[str, float | None], part: str = "") -> str:
    """Equal for the same run read twice, from its folder or a result file: by figures that both have. No two runs last equally long
    and have the same mean TTFT and TPOT."""
    figures = [values.get(key) for key in _IDENTIFYING]
    return hashlib.sha256(json.dumps([figures, part]).encode()).hexdigest() if any(figures) else ""
