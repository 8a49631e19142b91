"""Results of `llama-bench -o json` as rows beside those of cells."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from llama_load.errors import UsageError
from llama_load.foreign_text import printable, printable_json
from llama_load.lab.sweep.gguf_facts import GgufFacts
from llama_load.lab.sweep.rows import Row

NAME = "llama-bench"
MOST_BYTES, MOST_TESTS = 64 << 20, 100_000
# Its fields, as settings are usually named in plans, and the flags that set them.
_FIELDS = {
    "threads": ("n_threads", "-t"),
    "n_batch": ("n_batch", "-b"),
    "n_ubatch": ("n_ubatch", "-ub"),
    "ngl": ("n_gpu_layers", "-ngl"),
    "fa": ("flash_attn", "-fa"),
}


def rows_of_file(path: Path, place: int) -> list[Row]:
    """A row per test, with its samples. UsageError: the file is no output of llama-bench."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        tests = printable_json(msgspec.json.decode(data)) if len(data) <= MOST_BYTES else None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        tests = None
    if not isinstance(tests, list) or len(tests) > MOST_TESTS or not all(_is_test(test) for test in tests):
        raise UsageError(f"{path} is no output of llama-bench -o json: a list of tests with avg_ts and samples_ts")
    return [_row(test, place + number) for number, test in enumerate(tests)]


def _is_test(test: Any) -> bool:
    if not isinstance(test, Mapping) or not isinstance(test.get("avg_ts"), int | float):
        return False
    samples = test.get("samples_ts", [])
    return isinstance(samples, list) and all(isinstance(sample, int | float) for sample in samples)


def _row(test: Mapping[str, Any], place: int) -> Row:
    prompt, generated, depth = (_whole(test.get(name)) for name in ("n_prompt", "n_gen", "n_depth"))
    name = f"pp{prompt}+tg{generated}" if prompt and generated else f"pp{prompt}" if prompt else f"tg{generated}"
    label = f"{name} @ d{depth}" if depth else name
    size, params = _whole(test.get("model_size")), _whole(test.get("n_params") or test.get("model_n_params"))
    model = GgufFacts("", "", "", params, size, 0)
    words = [word for field, flag in _FIELDS.values() if field in test for word in (flag, str(test[field]))]
    facts = {
        "server": NAME,
        "backend": str(test.get("backends") or ""),
        "model": re.split(r"[/\\]", str(test.get("model_filename") or ""))[-1],
        "model_type": str(test.get("model_type") or ""),
        "size": model.size,
        "params": model.params_text,
        "load": label,
        "test": label,
        "depth": str(depth),
        "workload": NAME,
        "verdict": "",
        **{setting: str(test[field]) for setting, (field, _) in _FIELDS.items() if field in test},
    }
    samples = [float(sample) for sample in test.get("samples_ts") or [test["avg_ts"]]]
    return Row(facts=facts, repeat=1, place=place, samples={"ts": samples}, words=words)


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else 0


def refuse_missing(files: tuple[str, ...]) -> None:
    """UsageError: a file is missing or no output of llama-bench, before hours are spent on the cells."""
    for file in files:
        rows_of_file(Path(printable(file)), 0)
