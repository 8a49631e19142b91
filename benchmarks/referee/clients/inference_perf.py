"""inference-perf (Kubernetes)."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from benchmarks.referee.clients.client import Client, Result, Seen, load_json, number_in
from benchmarks.referee.scenarios import CLOSED, PROMPT_TOKENS, Job

# Seconds in its summary. Its data sets of random words go to /v1/completions only.
NAMES = {
    "ttft": "time_to_first_token",
    "tpot": "time_per_output_token",
    "itl": "inter_token_latency",
    "e2el": "request_latency",
}
WORKERS = 2  # the machines that this is made for have two cores; its default is a worker per core
FIRST_TEXT = '"text":"'


class InferencePerf(Client):
    name = "inference-perf"
    requirements = "inference_perf"
    distribution = "inference-perf"

    def command(self, job: Job) -> list[str]:
        scenario = job.scenario
        if scenario.arrival == CLOSED:
            kind = "concurrent"
            stage: dict[str, float] = {"num_requests": scenario.requests, "concurrency_level": scenario.streams}
        else:
            kind = scenario.arrival
            stage = {"rate": scenario.rate_rps, "duration": round(scenario.requests / scenario.rate_rps)}
        at_once = str(max(100, scenario.streams))  # of a worker: with the default of 100 two workers do not reach 400
        return [
            *(self.program("inference-perf"), "--server.type", "vllm", "--server.model_name", "simulated"),
            *("--server.base_url", job.url, "--server.ignore_eos", "true", "--api.type", "completion", "--api.streaming", "true"),
            *("--tokenizer.pretrained_model_name_or_path", str(job.tokenizer), "--data.type", "random"),
            *_lengths("input", PROMPT_TOKENS, scenario.requests),
            *_lengths("output", scenario.tokens, scenario.requests),
            *("--load.type", kind, "--load.stages", json.dumps([stage]), "--load.num_workers", str(WORKERS)),
            *("--load.worker_max_concurrency", at_once, "--load.worker_max_tcp_connections", at_once),
            *("--report.request_lifecycle.per_request", "true", "--report.request_lifecycle.use_server_output_tokens", "true"),
            *("--storage.local_storage.path", str(job.folder / "reports")),
        ]

    def read(self, job: Job) -> Result:
        folder = job.folder / "reports"
        rows = load_json(folder / "per_request_lifecycle_metrics.json")
        successes = load_json(folder / "summary_lifecycle_metrics.json")["successes"]
        keys = {50: "median", 99: "p99"}
        reported = {f"p{p}_{name}_ms": successes["latency"][key][keys[p]] * 1e3 for name, key in NAMES.items() for p in (50, 99)}
        reported["request_rps"] = successes["throughput"]["requests_per_sec"]
        reported["output_tok_per_s"] = successes["throughput"]["output_tokens_per_sec"]
        return Result([_seen(row) for row in rows if not row.get("error")], reported)


def _lengths(what: str, mean: int, count: int) -> list[str]:
    values = {"type": "fixed", "mean": mean, "min": mean, "max": mean, "total_count": count}
    return [word for key, value in values.items() for word in (f"--data.{what}_distribution.{key}", str(value))]


def _seen(row: dict[str, Any]) -> Seen:
    """Its records have the times of the chunks on the monotonic clock, in s, from which its summary is made."""
    metrics = row["info"]["response_metrics"]
    start_s = row["start_time"]
    chunks = np.array(metrics["output_token_times"])
    tokens = metrics["output_tokens"]
    text = row["response"].partition(FIRST_TEXT)[2].partition('"')[0]
    return Seen(
        number=number_in(text),
        ttft_ms=float(chunks[0] - start_s) * 1e3,
        tpot_ms=float(chunks[-1] - chunks[0]) / (tokens - 1) * 1e3 if tokens > 1 else None,
        e2el_ms=(row["end_time"] - start_s) * 1e3,
        itl_ms=(np.diff(chunks) * 1e3).tolist(),
    )
