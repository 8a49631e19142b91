"""`vllm bench serve`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from truth.cases import CONSTANT
from truth.result import Result, Seen
from truth.tools.tool import METRICS, OFFLINE, Tool, known, load_json, number_in, times
from truth.work import Work

# With this burstiness its Gamma distribution of gaps is nearly constant; it has no constant rate.
EVEN = "100000"
COLUMNS = (
    "ttfts",
    "itls",
    "latencies",
    "output_lens",
    "input_lens",
    "generated_texts",
    "errors",
)


class Vllm(Tool):
    name = "vllm"
    title = "vllm bench serve"
    lacks: ClassVar[Mapping[str, str]] = {"seconds": "has no end by time"}

    def commands(self, work: Work, folder: Path) -> list[list[str]]:
        command = ["vllm", "bench", "serve"]
        command += ["--base-url", work.url]
        command += ["--backend", "openai-chat"]
        command += ["--endpoint", "/v1/chat/completions"]
        command += ["--model", work.model]
        command += ["--tokenizer", work.tokenizer]
        command += _data(work)
        command += ["--num-prompts", str(work.requests)]
        if work.warmup:
            command += ["--num-warmups", str(work.warmup)]
        command += _load(work)
        if work.ignore_eos:
            command += ["--ignore-eos"]
        if work.seed is not None:
            command += ["--seed", str(work.seed)]
        command += ["--disable-tqdm", "--ready-check-timeout-sec", "0"]
        command += [
            "--percentile-metrics",
            ",".join(METRICS),
            "--metric-percentiles",
            "50,99",
        ]
        command += ["--save-result", "--save-detailed"]
        command += ["--result-dir", str(folder), "--result-filename", "result.json"]
        if work.choices > 1:
            command += ["--extra-body", f'{{"n": {work.choices}}}']
        return [command]

    def env(self, work: Work) -> dict[str, str]:
        return OFFLINE | {"VLLM_NO_USAGE_STATS": "1"}

    def result(self, folder: Path) -> Path:
        return folder / "result.json"

    def read(self, path: Path) -> Result:
        result = load_json(path)
        columns = [result[name] for name in COLUMNS]
        rows = [
            dict(zip(COLUMNS, values, strict=True))
            for values in zip(*columns, strict=True)
        ]
        reported: dict[str, float | None] = {
            "request_rps": result["request_throughput"],
            "output_tok_per_s": result["output_throughput"],
        }
        for metric in METRICS:
            for percent in (50, 99):
                name = f"p{percent}_{metric}_ms"
                reported[name] = result.get(name)
        return Result(
            requests=[_seen(row) for row in rows if not row["errors"]],
            reported=known(reported),
            completed=result["completed"],
            failed=result.get("failed"),
            output_tokens=result["total_output_tokens"],
            input_tokens=result["total_input_tokens"],
        )


def _data(work: Work) -> list[str]:
    if not work.prompts:
        lengths = ["--random-input-len", str(work.prompt_tokens)]
        lengths += ["--random-output-len", str(work.tokens)]
        return ["--dataset-name", "random", *lengths]
    words = ["--dataset-name", "custom", "--dataset-path", work.prompts]
    words += ["--custom-output-len", str(work.tokens)]
    return [*words, "--skip-chat-template", "--disable-shuffle"]


def _load(work: Work) -> list[str]:
    if work.closed:
        return ["--max-concurrency", str(work.streams)]
    burstiness = EVEN if work.arrival == CONSTANT else "1"
    return ["--request-rate", f"{work.rate_rps:g}", "--burstiness", burstiness]


def _seen(row: dict[str, Any]) -> Seen:
    ttft_s = row["ttfts"]
    itl_s = row["itls"]
    latency_s = row["latencies"]
    tokens = row["output_lens"]
    # Its first event is the one that names the role, which arrives with the first token: the gap
    # between the two is no gap of tokens.
    gaps = itl_s[1:] if len(itl_s) == tokens else itl_s
    tpot_s = None
    if tokens > 1:
        tpot_s = (latency_s - ttft_s) / (tokens - 1)
    return Seen(
        number=number_in(row["generated_texts"]),
        ttft_ms=ttft_s * 1e3,
        tpot_ms=times(tpot_s, 1e3),
        e2el_ms=latency_s * 1e3,
        itl_ms=[gap * 1e3 for gap in gaps],
        output_tokens=tokens,
        prompt_tokens=row["input_lens"],
    )
