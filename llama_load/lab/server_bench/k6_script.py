"""The k6 script of llama.cpp's server: its variables, its choice of conversations, its pauses and its metrics.

Source: ggml-org/llama.cpp, tools/server/bench/script.js and README.md. Differences: answers are streamed, the prompts of
conversations that repeat are drawn at random, and a run may end with its iterations before the duration.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from llama_load.bundled import bundled
from llama_load.errors import UsageError
from llama_load.lab.server_bench.bench_run import run_locust
from llama_load.observed.records import Records
from llama_load.run_folder import Run
from llama_load.workloads.data_files import DataFile

SYSTEM = "You are ChatGPT, an AI assistant."
PAUSE_S = 0.3
LEAST_WORDS = 4
MOST_CUT = 0.8  # of the answers may end with their length
DATASET = "ShareGPT_V3_unfiltered_cleaned_split.json"
_SPLIT = re.compile(r"[\s,'\".?]")
LOCUSTFILE = f"""from locust import constant, task
from llama_load import Custom, LlamaUser

class Script(LlamaUser):
    workload = Custom()
    wait_time = constant({PAUSE_S})

    @task
    def ask(self):
        self.chat()
"""


class _Turn(msgspec.Struct):
    value: str = ""
    speaker: str = msgspec.field(name="from", default="")


class _Conversation(msgspec.Struct):
    conversations: list[_Turn] = []


@dataclass(frozen=True, slots=True)
class K6Settings:
    """The SERVER_BENCH_… variables, and k6's options."""

    url: str
    prompts: int
    model: str
    dataset: Path
    max_tokens: int
    max_prompt_tokens: int
    max_context: int
    duration: str
    iterations: int | None
    users: int


def k6_settings(env: Mapping[str, str], duration: str, iterations: int | None, users: int) -> K6Settings:
    """From the environment. UsageError: a variable is no number, or there is no data set."""

    def number(name: str, default: int) -> int:
        text = env.get(f"SERVER_BENCH_{name}") or str(default)
        if not text.isdigit() or not 1 <= int(text) <= 10**7:
            raise UsageError(f"SERVER_BENCH_{name} must be a whole number from 1 on, got {text!r}")
        return int(text)

    dataset = Path(env.get("SERVER_BENCH_DATASET") or DATASET)
    if not dataset.is_file():
        raise UsageError(
            f"there is no data set {dataset}; download it, or try the included conversations: "
            f"SERVER_BENCH_DATASET={bundled('datasets/sharegpt_sample.json')}"
        )
    return K6Settings(
        url=(env.get("SERVER_BENCH_URL") or "http://localhost:8080/v1").rstrip("/").removesuffix("/v1"),
        prompts=number("N_PROMPTS", 480),
        model=env.get("SERVER_BENCH_MODEL_ALIAS") or "my-model",
        dataset=dataset,
        max_tokens=number("MAX_TOKENS", 512),
        max_prompt_tokens=number("MAX_PROMPT_TOKENS", 1024),
        max_context=number("MAX_CONTEXT", 2048),
        duration=duration,
        iterations=iterations,
        users=users,
    )


def k6_run(settings: K6Settings, typed: str) -> tuple[Run, float]:
    """Run it and print its metrics; the run, and the share of answers that ended with their length. Raises UsageError, RunError."""
    prompts = list(chosen_prompts(settings))
    if not prompts:
        raise UsageError(f"{settings.dataset} has no conversation of two turns within the limits; raise SERVER_BENCH_MAX_CONTEXT")
    with tempfile.TemporaryDirectory(prefix="llama-load-") as name:
        folder = Path(name)
        file = folder / "prompts.jsonl"
        file.write_bytes(b"\n".join(msgspec.json.encode({"prompt": prompt}) for prompt in prompts))
        flags = ["-u", str(settings.users), "-t", settings.duration, "--model", settings.model, "--dataset-path", str(file)]
        flags += ["--system-prompt", SYSTEM, "--max-tokens", str(settings.max_tokens)]
        flags += [] if settings.iterations is None else ["--num-prompts", str(settings.iterations)]
        run = run_locust(LOCUSTFILE, settings.url, flags, typed=typed, folder=folder)
    measured = run.records.measured()
    print()
    for line in k6_lines(measured):
        print(line)
    return run, _share(measured.ok(), "length")


def chosen_prompts(settings: K6Settings) -> Iterator[str]:
    """The first prompts that the script keeps: a person begins, both turns have four words, all within the limits. Words are split
    as it splits them."""
    file = DataFile(settings.dataset, 'ShareGPT\'s {"conversations": [{"from", "value"}, …]}')
    decoder = msgspec.json.Decoder(_Conversation)
    left = settings.prompts
    for place in range(len(file)):
        turns = file.decode(place, decoder).conversations
        if not left:
            return
        if len(turns) < 2 or turns[0].speaker != "human" or not turns[0].value.strip():
            continue
        question, answer = (len(_SPLIT.split(turn.value)) for turn in turns[:2])
        if min(question, answer) < LEAST_WORDS or question > settings.max_prompt_tokens:
            continue
        if question + answer <= settings.max_context:
            left -= 1
            yield turns[0].value


def k6_lines(measured: Records) -> Iterator[str]:
    """The script's metrics as k6 prints them at the end."""
    ok = measured.ok()
    prompt, output = ok.numbers("prompt_tokens"), ok.numbers("output_tokens")
    trends = {
        "llamacpp_completion_tokens": output,
        "llamacpp_prompt_tokens": prompt,
        "llamacpp_tokens_second": (prompt + output) / ok.numbers("e2el_ms") * 1e3,
        "llamacpp_emit_first_token_second": ok.numbers("ttft_ms") / 1e3,
    }
    for name, values in trends.items():
        yield _line(name, _trend(values))
    for name, values in (("completion", output), ("prompt", prompt)):
        yield _line(f"llamacpp_{name}_tokens_total_counter", f"{np.nansum(values):.0f}")
    yield _line("llamacpp_completions_stop_rate", f"{_share(ok, 'stop'):.2%}")
    yield _line("llamacpp_completions_truncated_rate", f"{_share(ok, 'length'):.2%}")
    yield _line("success completion", f"{len(ok)} of {len(measured) - len(measured.cancelled())}")


def _line(name: str, text: str) -> str:
    return f"{name + ' ':.<44}: {text}"


def _trend(values: NDArray[np.float64]) -> str:
    known = values[np.isfinite(values)]
    if not len(known):
        return "n/a"
    figures = {"avg": known.mean(), "min": known.min(), "med": np.median(known), "max": known.max()}
    figures |= {"p(90)": np.percentile(known, 90), "p(95)": np.percentile(known, 95)}
    return " ".join(f"{name}={value:.6g}" for name, value in figures.items())


def _share(ok: Records, reason: str) -> float:
    return float(ok.equals("finish_reason", reason).mean()) if len(ok) else 0.0
