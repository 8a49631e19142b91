"""scripts/server-bench.py of llama.cpp, with a run of llama-load.

It has the script's flags, prompts and figures. Source: ggml-org/llama.cpp, scripts/server-bench.py.
Differences: no plots and no database; prompts of random words instead of random token ids, of exact
lengths by the server's tokenizer; /v1/completions instead of /completion; a warm-up request that is
not counted; and a verdict.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

from llama_load.bundled import bundled
from llama_load.errors import UsageError
from llama_load.foreign_text import printable
from llama_load.lab.server_bench.bench_figures import bench_figures, bench_lines
from llama_load.lab.server_bench.bench_run import run_locust, server_at
from llama_load.run_folder import Run

PARALLEL = "LLAMA_ARG_N_PARALLEL"
DEFAULT_PARALLEL = "32"
MMLU = "mmlu"
MMLU_FILE = "mmlu.jsonl"
RANGE = re.compile(r"rng-(\d{1,9})-(\d{1,9})", re.IGNORECASE)
CONTEXT_OF_TEXTS = 2048  # tokens of a slot for a question
ROOM = 1.05

RANDOM = """from locust import task
from llama_load import LlamaUser, Synthetic

class ServerBench(LlamaUser):
    workload = Synthetic(inputs={inputs}, outputs={outputs})

    @task
    def go_on(self):
        self.complete()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The values of the flags, under their names there."""

    path_server: str
    path_log: str | None
    name: str | None
    prompt_source: str
    n_prompts: int
    n_predict: int
    n_predict_min: int
    seed_offset: int

    @property
    def is_mmlu(self) -> bool:
        """Whether the prompts are the questions of MMLU."""
        return self.prompt_source.lower() == MMLU

    def lengths(self) -> tuple[int, int] | None:
        """The range of prompt lengths of rng-MIN-MAX; None for questions. UsageError: neither."""
        match = RANGE.fullmatch(self.prompt_source)
        if match is not None:
            least = int(match[1])
            most = int(match[2])
            if 1 <= least <= most:
                return least, most

        if self.is_mmlu or Path(self.prompt_source).is_file():
            return None
        raise UsageError(
            "--prompt_source must be mmlu, rng-MIN-MAX with 1 <= MIN <= MAX, "
            f"or a file of JSON Lines, got {self.prompt_source!r}"
        )


def server_bench(bench: Bench, typed: str) -> Run:
    """Run it and print its lines.

    Raises UsageError, RunError, OSError.
    """
    lengths = bench.lengths()
    if bench.n_predict_min > bench.n_predict:
        raise UsageError(
            f"--n_predict_min {bench.n_predict_min} is over --n_predict {bench.n_predict}"
        )
    parallel = os.environ.get(PARALLEL, DEFAULT_PARALLEL)
    if not parallel.isdigit() or int(parallel) < 1:
        raise UsageError(f"{PARALLEL} must be a number of slots, got {parallel!r}")
    slots = int(parallel)

    with tempfile.TemporaryDirectory(prefix="llama-load-") as name:
        folder = Path(name)
        if lengths is None:
            code = bundled("locustfiles/custom.py").read_text(encoding="utf-8")
            count = _questions(bench, folder)
            longest = CONTEXT_OF_TEXTS
        else:
            code = RANDOM.format(
                inputs=lengths, outputs=(bench.n_predict_min, bench.n_predict)
            )
            count = bench.n_prompts
            longest = lengths[1]

        context = slots * int(ROOM * (bench.n_predict + longest))
        flags = _locust_flags(
            bench, folder, slots, count, asks_questions=lengths is None
        )
        with server_at(bench.path_server, bench.path_log, _server_env(context)) as url:
            run = run_locust(
                code,
                url,
                flags,
                typed=typed,
                folder=folder,
            )

    figures = bench_figures(run.records.measured(), slots)
    print()
    for line in bench_lines(figures):
        print(line)
    return run


def _locust_flags(
    bench: Bench, folder: Path, slots: int, count: int, *, asks_questions: bool
) -> list[str]:
    """The script's settings as flags of `locust`."""
    flags = ["-u", str(slots), "--seed", str(max(0, bench.seed_offset))]
    if asks_questions:
        data = str(folder / MMLU_FILE) if bench.is_mmlu else bench.prompt_source
        flags += ["--dataset-path", data, "--max-tokens", str(bench.n_predict)]
    else:
        flags += ["--endpoint", "completions", "--ignore-eos"]

    flags += ["--num-prompts", str(count)]
    if bench.name:
        flags += ["--label", bench.name]
    return flags


def _server_env(context: int) -> dict[str, str]:
    """The variables of llama-server that the script sets where the user does not."""
    return {
        "LLAMA_ARG_HOST": "127.0.0.1",
        "LLAMA_ARG_PORT": "8080",
        PARALLEL: DEFAULT_PARALLEL,
        "LLAMA_ARG_N_GPU_LAYERS": "999",
        "LLAMA_ARG_FLASH_ATTN": "on",
        "LLAMA_ARG_CTX_SIZE": str(context),
    }


def _questions(bench: Bench, folder: Path) -> int:
    """How many questions are asked; those of MMLU are fetched into a file.

    UsageError: they cannot be.
    """
    if not bench.is_mmlu:
        if bench.n_prompts < 1:
            raise UsageError("--n_prompts must be 1 or more for a file of prompts")
        return bench.n_prompts

    texts = _mmlu()
    if bench.n_prompts >= 0:
        texts = texts[: bench.n_prompts]
    lines = []
    for text in texts:
        lines.append(msgspec.json.encode({"prompt": text}))

    (folder / MMLU_FILE).write_bytes(b"\n".join(lines))
    return len(texts)


def _mmlu() -> list[str]:
    """All questions of MMLU."""
    try:
        import datasets
    except ImportError:
        raise UsageError(
            "--prompt_source mmlu needs the package datasets: pip install datasets"
        ) from None

    try:
        rows = datasets.load_dataset("cais/mmlu", "all", split="test")
        return [str(text) for text in rows["question"]]
    except Exception as error:  # whatever a download may raise
        reason = printable(str(error), 200)
        raise UsageError(
            f"MMLU cannot be fetched from Hugging Face: {reason}; save its questions as "
            'JSON Lines, each {"prompt": "…"}, and give the file with --prompt_source'
        ) from None
