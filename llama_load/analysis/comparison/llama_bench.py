"""`llama-bench -o json`: its tests, and the decode speed of each model file.

To hold against what a server shows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from llama_load.ground.errors import UsageError
from llama_load.outside.foreign_files import read_foreign
from llama_load.outside.foreign_json import decode_foreign
from llama_load.outside.foreign_text import printable_json

MOST_BYTES = 64 << 20
MOST_TESTS = 100_000
# The quantizations of GGUF files, and what vLLM serves. `Q4_K - Medium` is how llama-bench writes
# Q4_K_M.
_QUANTIZATION = re.compile(
    r"(?<![A-Za-z0-9])"
    r"(?:i?q\d(?:_(?:k|0|1|nl|xxs|xs|s|m|l))*|tq\d_\d|mxfp4|b?f16|fp16|f32|fp8|fp4"
    r"|w\d{1,2}a\d{1,2}|awq|gptq|int[48])"
    r"(?![A-Za-z0-9_])",
    re.IGNORECASE,
)
_SIZE_WORDS = {" - small": "_s", " - medium": "_m", " - large": "_l"}
Count = Annotated[int, msgspec.Meta(ge=0)]
Given = int | float | bool | str | None  # the value of a flag


class BenchTest(msgspec.Struct, frozen=True, kw_only=True):
    """A test, under the names of llama-bench.

    `avg_ts`: mean tokens/s, `samples_ts`: of each repetition; `model_size`: bytes.
    """

    avg_ts: float
    samples_ts: list[float] = []
    n_prompt: Count = 0
    n_gen: Count = 0
    n_depth: Count = 0
    model_filename: str = ""
    model_type: str = ""
    model_size: Count = 0
    model_n_params: Count = 0
    backends: str = ""
    n_threads: Given = None
    n_batch: Given = None
    n_ubatch: Given = None
    n_gpu_layers: Given = None
    flash_attn: Given = None

    @property
    def name(self) -> str:
        """As llama-bench prints it: pp512, tg128, pp512+tg128, tg128 @ d4096."""
        parts = []
        if self.n_prompt:
            parts.append(f"pp{self.n_prompt}")
        if self.n_gen:
            parts.append(f"tg{self.n_gen}")
        name = "+".join(parts) or "tg0"
        if self.n_depth:
            name += f" @ d{self.n_depth}"
        return name

    @property
    def is_decode(self) -> bool:
        """Whether it is plain generation, without prompts and depth."""
        return bool(self.n_gen) and not self.n_prompt and not self.n_depth


def bench_tests(file: Path) -> list[BenchTest]:
    """The tests in a file. UsageError: it cannot be read, or is no output of llama-bench."""
    bounded = Annotated[list[BenchTest], msgspec.Meta(max_length=MOST_TESTS)]
    try:
        document = printable_json(decode_foreign(read_foreign(file, MOST_BYTES)))
        tests: list[BenchTest] = msgspec.convert(document, bounded)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):  # msgspec's exceptions are ValueErrors
        raise UsageError(
            f"{file} is no output of llama-bench -o json: "
            "a list of tests with avg_ts and samples_ts"
        ) from None
    return tests


def quantization(text: str) -> str | None:
    """The quantization that a label, a file name or llama-bench's model names.

    In one spelling: `q4_k_m`, `q8_0`, `f16`.
    """
    plain = text.lower()
    for words, suffix in _SIZE_WORDS.items():
        plain = plain.replace(words, suffix)
    match = _QUANTIZATION.search(plain)
    if match is None:
        return None
    if match[0] == "fp16":
        return "f16"

    return match[0]


def decode_speeds(tests: Sequence[BenchTest]) -> dict[str, BenchTest]:
    """The fastest plain generation of each quantization."""
    fastest: dict[str, BenchTest] = {}
    for test in tests:
        name = quantization(test.model_type)
        if name is None or not test.is_decode:
            continue

        before = 0.0
        if name in fastest:
            before = fastest[name].avg_ts
        if test.avg_ts > before:
            fastest[name] = test

    return fastest
