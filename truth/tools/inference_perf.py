"""inference-perf (Kubernetes)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from truth.result import Result, Seen
from truth.tools.tool import Tool, load_json, number_in, total
from truth.work import Work

# Seconds in its summary. Its data sets of random words go to /v1/completions only.
NAMES = {
    "ttft": "time_to_first_token",
    "tpot": "time_per_output_token",
    "itl": "inter_token_latency",
    "e2el": "request_latency",
}
KEYS = {50: "median", 99: "p99"}
WORKERS = 2  # the machines that this is made for have two cores; its default is a worker per core
AT_ONCE = 100  # its default for a worker, with which two workers do not reach 400
FIRST_TEXT = '"text":'
ROWS = "per_request_lifecycle_metrics.json"
SUMMARY = "summary_lifecycle_metrics.json"


class InferencePerf(Tool):
    name = "inference-perf"
    title = "inference-perf"
    lacks: ClassVar[Mapping[str, str]] = {
        "choices": "sends no n",
        "warmup": "has no warm-up by a number of requests",
        "seconds": "ends a closed loop by its number of requests",
        "prompts": "sends random words to the completions API, no file",
    }

    def commands(self, work: Work, folder: Path) -> list[list[str]]:
        at_once = str(max(AT_ONCE, work.streams))
        options: dict[str, object] = {
            "server.type": "vllm",
            "server.model_name": work.model,
            "server.base_url": work.url,
            "server.ignore_eos": str(work.ignore_eos).lower(),
            "api.type": "completion",
            "api.streaming": "true",
            "tokenizer.pretrained_model_name_or_path": work.tokenizer,
            "data.type": "random",
        }
        options |= _lengths("input", work.prompt_tokens, work.requests)
        options |= _lengths("output", work.tokens, work.requests)
        options |= {
            "load.type": "concurrent" if work.closed else work.arrival,
            "load.stages": json.dumps([_stage(work)]),
            "load.num_workers": WORKERS,
            "load.worker_max_concurrency": at_once,
            "load.worker_max_tcp_connections": at_once,
            "report.request_lifecycle.per_request": "true",
            "report.request_lifecycle.use_server_output_tokens": "true",
            "storage.local_storage.path": self.result(folder),
        }
        command = ["inference-perf"]
        for name, value in options.items():
            command += [f"--{name}", str(value)]
        return [command]

    def result(self, folder: Path) -> Path:
        return folder / "reports"

    def read(self, path: Path) -> Result:
        rows = load_json(path / ROWS)
        summary = load_json(path / SUMMARY)
        successes = summary["successes"]
        reported = {
            "request_rps": successes["throughput"]["requests_per_sec"],
            "output_tok_per_s": successes["throughput"]["output_tokens_per_sec"],
        }
        for name, key in NAMES.items():
            found = successes["latency"].get(key) or {}
            for percent, word in KEYS.items():
                if found.get(word) is not None:
                    reported[f"p{percent}_{name}_ms"] = found[word] * 1e3

        requests = [_seen(row) for row in rows if not row.get("error")]
        return Result(
            requests=requests,
            reported=reported,
            completed=successes["count"],
            failed=summary.get("failures", {}).get("count"),
            output_tokens=total([seen.output_tokens for seen in requests]),
            input_tokens=total([seen.prompt_tokens for seen in requests]),
        )


def _stage(work: Work) -> dict[str, float]:
    if work.closed:
        return {"num_requests": work.requests, "concurrency_level": work.streams}
    return {"rate": work.rate_rps, "duration": work.duration_s}


def _lengths(what: str, length: int, count: int) -> dict[str, object]:
    prefix = f"data.{what}_distribution"
    return {
        f"{prefix}.type": "fixed",
        f"{prefix}.mean": length,
        f"{prefix}.min": length,
        f"{prefix}.max": length,
        f"{prefix}.total_count": count,
    }


def _seen(row: dict[str, Any]) -> Seen:
    """Its records have the times of the chunks on the monotonic clock, in s, from which its summary
    is made."""
    info = row["info"]
    metrics = info["response_metrics"]
    start_s = row["start_time"]
    chunks = metrics["output_token_times"]
    tokens = metrics["output_tokens"]
    text = (
        row["response"].partition(FIRST_TEXT)[2].strip().lstrip('"').partition('"')[0]
    )

    ttft_ms = (chunks[0] - start_s) * 1e3 if chunks else None
    tpot_ms = None
    if tokens > 1 and chunks:
        tpot_ms = (chunks[-1] - chunks[0]) / (tokens - 1) * 1e3
    return Seen(
        number=number_in(text),
        ttft_ms=ttft_ms,
        tpot_ms=tpot_ms,
        e2el_ms=(row["end_time"] - start_s) * 1e3,
        itl_ms=[(later - earlier) * 1e3 for earlier, later in pairwise(chunks)],
        output_tokens=tokens,
        prompt_tokens=info.get("input_tokens"),
    )
