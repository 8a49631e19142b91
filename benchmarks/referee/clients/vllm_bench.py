"""`vllm bench serve`."""

from __future__ import annotations

from benchmarks.referee.clients.client import OFFLINE, Client, Result, Seen, load_json, number_in
from benchmarks.referee.scenarios import CLOSED, CONSTANT, PROMPT_TOKENS, Job

# With this burstiness its Gamma distribution of gaps is nearly constant; it has no constant rate.
EVEN = "100000"
METRICS = ("ttft", "tpot", "itl", "e2el")


class VllmBench(Client):
    name = "vllm bench serve"
    requirements = "vllm"
    distribution = "vllm"

    def command(self, job: Job) -> list[str]:
        scenario = job.scenario
        if scenario.arrival == CLOSED:
            load = ["--max-concurrency", str(scenario.streams)]
        else:
            load = ["--request-rate", f"{scenario.rate_rps:g}", "--burstiness", EVEN if scenario.arrival == CONSTANT else "1"]
        return [
            *(self.program("vllm"), "bench", "serve", "--base-url", job.url, "--backend", "openai-chat"),
            *("--endpoint", "/v1/chat/completions", "--model", "simulated", "--tokenizer", str(job.tokenizer)),
            *("--dataset-name", "random", "--random-input-len", str(PROMPT_TOKENS), "--random-output-len", str(scenario.tokens)),
            *("--num-prompts", str(scenario.requests), *load, "--ignore-eos", "--disable-tqdm", "--ready-check-timeout-sec", "0"),
            *("--percentile-metrics", ",".join(METRICS), "--metric-percentiles", "50,99"),
            *("--save-result", "--save-detailed", "--result-dir", str(job.folder), "--result-filename", "result.json"),
        ]

    def env(self, job: Job) -> dict[str, str]:
        return OFFLINE | {"VLLM_NO_USAGE_STATS": "1"}

    def read(self, job: Job) -> Result:
        result = load_json(job.folder / "result.json")
        columns = (result[name] for name in ("ttfts", "itls", "latencies", "output_lens", "generated_texts", "errors"))
        requests = [
            _seen(*row)
            for *row, error in zip(*columns, strict=True)
            if not error
        ]  # fmt: skip
        reported = {f"p{p}_{name}_ms": result[f"p{p}_{name}_ms"] for p in (50, 99) for name in METRICS}
        reported |= {"request_rps": result["request_throughput"], "output_tok_per_s": result["output_throughput"]}
        return Result(requests, reported)


def _seen(ttft_s: float, itl_s: list[float], latency_s: float, tokens: int, text: str) -> Seen:
    # Its first event is the one that names the role, which arrives with the first token: the gap between the two is no gap of tokens.
    gaps = itl_s[1:] if len(itl_s) == tokens else itl_s
    tpot_s = (latency_s - ttft_s) / (tokens - 1) if tokens > 1 else None
    return Seen(
        number=number_in(text),
        ttft_ms=ttft_s * 1e3,
        tpot_ms=tpot_s and tpot_s * 1e3,
        e2el_ms=latency_s * 1e3,
        itl_ms=[gap * 1e3 for gap in gaps] if len(gaps) == tokens - 1 else (),
    )
