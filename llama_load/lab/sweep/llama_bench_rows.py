"""Results of `llama-bench -o json` as rows beside those of cells."""

from __future__ import annotations

import re
from pathlib import Path

from llama_load.analysis.comparison.llama_bench import BenchTest, bench_tests
from llama_load.lab.sweep.rows import Row
from llama_load.tables.numbers import parameters, size

NAME = "llama-bench"
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
    rows = []
    for number, test in enumerate(bench_tests(path)):
        rows.append(_row(test, place + number))

    return rows


def _row(test: BenchTest, place: int) -> Row:
    settings = {}
    words: list[str] = []
    for name, (field, flag) in _FIELDS.items():
        value = getattr(test, field)
        if value is not None:
            settings[name] = str(value)
            words += [flag, str(value)]

    facts = {
        "server": NAME,
        "backend": test.backends,
        "model": re.split(r"[/\\]", test.model_filename)[-1],
        "model_type": test.model_type,
        "size": size(test.model_size, 2),
        "params": parameters(test.model_n_params),
        "load": test.name,
        "test": test.name,
        "depth": str(test.n_depth),
        "workload": NAME,
        "verdict": "",
    }
    return Row(
        facts=facts | settings,
        repeat=1,
        place=place,
        samples={"ts": test.samples_ts or [test.avg_ts]},
        words=words,
    )
