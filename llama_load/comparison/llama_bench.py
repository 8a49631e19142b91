"""llama-bench's Markdown table: the decode speed of each model file, to hold against what a server shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from llama_load.foreign_text import printable

MOST_ROWS = 10_000
_SPEED = re.compile(r"(?P<speed>\d{1,9}(?:\.\d{1,6})?)(?:\s*±\s*[\d.]+)?")
# The quantizations of GGUF files, and what vLLM serves. `Q4_K - Medium` is how llama-bench writes Q4_K_M.
_QUANTIZATION = re.compile(
    r"(?<![A-Za-z0-9])(?:i?q\d(?:_(?:k|0|1|nl|xxs|xs|s|m|l))*|tq\d_\d|mxfp4|b?f16|fp16|f32|fp8|fp4|w\d{1,2}a\d{1,2}|awq|gptq|int[48])"
    r"(?![A-Za-z0-9_])",
    re.IGNORECASE,
)
_SIZE_WORDS = {" - small": "_s", " - medium": "_m", " - large": "_l"}


@dataclass(frozen=True, slots=True)
class BenchRow:
    """A row of llama-bench: the model as it names it, the test (`tg128`, `pp512`) and tokens/s."""

    model: str
    test: str
    tok_per_s: float

    @property
    def is_decode(self) -> bool:
        """Whether it is plain generation, without prompts and depth."""
        return re.fullmatch(r"tg\d+", self.test) is not None


def bench_rows(text: str) -> list[BenchRow]:
    """The rows of every llama-bench table in a text."""
    rows: list[BenchRow] = []
    columns: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line[:1000].strip().strip("|").split("|")] if line.lstrip().startswith("|") else []
        if {"model", "test", "t/s"} <= set(cells):
            columns = cells
        elif len(cells) == len(columns) and columns and len(rows) < MOST_ROWS:
            cell_of = dict(zip(columns, cells, strict=True))
            if (speed := _SPEED.fullmatch(cell_of["t/s"])) is not None:
                rows.append(BenchRow(printable(cell_of["model"], 200), printable(cell_of["test"], 40), float(speed["speed"])))
        elif not cells:
            columns = []
    return rows


def quantization(text: str) -> str | None:
    """The quantization that a label, a file name or llama-bench's model names, in one spelling: `q4_k_m`, `q8_0`, `f16`."""
    plain = text.lower()
    for words, suffix in _SIZE_WORDS.items():
        plain = plain.replace(words, suffix)
    match = _QUANTIZATION.search(plain)
    return None if match is None else "f16" if match[0] == "fp16" else match[0]


def decode_speeds(rows: Sequence[BenchRow]) -> dict[str, BenchRow]:
    """The fastest plain generation of each quantization."""
    fastest: dict[str, BenchRow] = {}
    for row in rows:
        name = quantization(row.model)
        if row.is_decode and name is not None and (name not in fastest or row.tok_per_s > fastest[name].tok_per_s):
            fastest[name] = row
    return fastest
