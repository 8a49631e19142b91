"""scripts/server-bench.py of llama.cpp: its flags, prompts, figures, plots and database, with a run of llama-load between them.

Source: ggml-org/llama.cpp, scripts/server-bench.py. Differences: prompts of random words instead of random token ids, of exact
lengths by the server's tokenizer; /v1/completions instead of /completion; a warm-up request that is not counted; and a verdict.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

from llama_load.bundled import bundled
from llama_load.errors import UsageError
from llama_load.foreign_text import printable
from llama_load.lab.server_bench.bench_figures import add_to_database, bench_figures, bench_lines
from llama_load.lab.server_bench.bench_plots import draw_plots
from llama_load.lab.server_bench.bench_run import run_locust, server_at
from llama_load.run_folder import Run

PARALLEL, DEFAULT_PARALLEL = "LLAMA_ARG_N_PARALLEL", "32"
MMLU = "mmlu"
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
    path_db: Path | None
    name: str | None
    prompt_source: str
    n_prompts: int
    n_predict: int
    n_predict_min: int
    seed_offset: int

    def lengths(self) -> tuple[int, int] | None:
        """The range of prompt lengths of rng-MIN-MAX; None for questions. UsageError: neither."""
        kind, *ends = self.prompt_source.split("-")
        if kind.lower() == "rng" and len(ends) == 2 and all(end.isdigit() for end in ends):
            least, most = map(int, ends)
            if 1 <= least <= most:
                return least, most
        if self.prompt_source.lower() == MMLU or Path(self.prompt_source).is_file():
            return None
        raise UsageError(
            f"--prompt_source must be mmlu, rng-MIN-MAX with 1 <= MIN <= MAX, or a file of JSON Lines, got {self.prompt_source!r}"
        )


def server_bench(bench: Bench, typed: str) -> Run:
    """Run it, print its lines, write its plots and its row. Raises UsageError, RunError, OSError."""
    lengths = bench.lengths()
    if bench.n_predict_min > bench.n_predict:
        raise UsageError(f"--n_predict_min {bench.n_predict_min} is over --n_predict {bench.n_predict}")
    parallel = os.environ.get(PARALLEL, DEFAULT_PARALLEL)
    if not parallel.isdigit() or int(parallel) < 1:
        raise UsageError(f"{PARALLEL} must be a number of slots, got {parallel!r}")
    with tempfile.TemporaryDirectory(prefix="llama-load-") as name:
        folder = Path(name)
        flags = ["-u", parallel, "--seed", str(max(0, bench.seed_offset))]
        if lengths is None:
            code, count = bundled("locustfiles/custom.py").read_text(encoding="utf-8"), _questions(bench, folder)
            data = bench.prompt_source if bench.prompt_source.lower() != MMLU else str(folder / "mmlu.jsonl")
            flags += ["--dataset-path", data, "--max-tokens", str(bench.n_predict)]
        else:
            code = RANDOM.format(inputs=lengths, outputs=(bench.n_predict_min, bench.n_predict))
            count = bench.n_prompts
            flags += ["--endpoint", "completions", "--ignore-eos"]
        flags += ["--num-prompts", str(count), *(["--label", bench.name] if bench.name else [])]
        defaults = {"LLAMA_ARG_HOST": "127.0.0.1", "LLAMA_ARG_PORT": "8080", PARALLEL: DEFAULT_PARALLEL}
        defaults |= {"LLAMA_ARG_N_GPU_LAYERS": "999", "LLAMA_ARG_FLASH_ATTN": "on"}
        slot = int(ROOM * (bench.n_predict + (CONTEXT_OF_TEXTS if lengths is None else lengths[1])))
        defaults["LLAMA_ARG_CTX_SIZE"] = str(slot * int(parallel))
        with server_at(bench.path_server, bench.path_log, defaults) as url:
            run = run_locust(code, url, flags, typed=typed, folder=folder)
    figures = bench_figures(run.records.measured(), int(parallel))
    print()
    for line in bench_lines(figures):
        print(line)
    if bench.path_db is not None:
        row = (bench.name, int(parallel), bench.prompt_source, count, bench.n_predict, bench.n_predict_min, bench.seed_offset)
        add_to_database(bench.path_db, (*row, figures.duration_s))
    plots = draw_plots(figures, bench.name or "", Path.cwd())
    print(f"Plots: {plots[0].name}, {plots[1].name}")
    return run


def _questions(bench: Bench, folder: Path) -> int:
    """How many questions are asked; those of MMLU are fetched into a file. UsageError: they cannot be."""
    if bench.prompt_source.lower() != MMLU:
        if bench.n_prompts < 1:
            raise UsageError("--n_prompts must be 1 or more for a file of prompts")
        return bench.n_prompts
    texts = _mmlu()
    texts = texts if bench.n_prompts < 0 else texts[: bench.n_prompts]
    lines = b"\n".join(msgspec.json.encode({"prompt": text}) for text in texts)
    (folder / "mmlu.jsonl").write_bytes(lines)
    return len(texts)


def _mmlu() -> list[str]:
    try:
        import datasets
    except ImportError:
        raise UsageError("--prompt_source mmlu needs the package datasets: pip install datasets") from None
    try:
        return [str(text) for text in datasets.load_dataset("cais/mmlu", "all", split="test")["question"]]
    except Exception as error:  # whatever a download may raise
        raise UsageError(
            f"MMLU cannot be fetched from Hugging Face: {printable(str(error), 200)}; save its questions as JSON Lines, each "
            '{"prompt": "…"}, and give the file with --prompt_source'
        ) from None
