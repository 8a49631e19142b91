"""guidellm (vLLM project)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from truth.result import Result, Seen
from truth.tools.tool import Tool, known, load_json, number_in, times, total
from truth.work import Work

# What it calls inter token latency is a request's mean: the TPOT of others. It keeps no gaps.
NAMES = {
    "ttft": ("time_to_first_token_ms", 1),
    "tpot": ("inter_token_latency_ms", 1),
    "e2el": ("request_latency", 1000),
}


class Guidellm(Tool):
    name = "guidellm"
    title = "guidellm"
    lacks: ClassVar[Mapping[str, str]] = {
        "choices": "sends no n",
        "warmup": "takes its warm-up out of the measured requests",
        "prompts": "is not started with a file of prompts here",
    }

    def commands(self, work: Work, folder: Path) -> list[list[str]]:
        profile = f"kind=concurrent,streams={work.streams}"
        if not work.closed:
            profile = f"kind={work.arrival},rate={work.rate_rps:g}"
        tokens = f"prompt_tokens={work.prompt_tokens},output_tokens={work.tokens}"
        command = ["guidellm", "run", "--disable-console"]
        command += [
            "--backend",
            f"kind=openai_http,target={work.url},model={work.model}",
        ]
        command += ["--profile", profile]
        end = f"kind=max_requests,count={work.requests}"
        if work.seconds:
            end = f"kind=max_duration,seconds={work.seconds:g}"
        command += ["--constraint", end]
        command += ["--data", f"kind=synthetic_text,{tokens}"]
        command += ["--tokenizer", f"kind=hf_auto,model={work.tokenizer}"]
        command += ["--output", f"kind=json,path={self.result(folder)}"]
        return [command]

    def result(self, folder: Path) -> Path:
        return folder / "result.json"

    def read(self, path: Path) -> Result:
        benchmark = load_json(path)["benchmarks"][0]
        metrics = benchmark["metrics"]
        groups = benchmark["requests"]
        requests = [_seen(row) for row in groups["successful"]]
        reported: dict[str, float | None] = {
            "request_rps": metrics["requests_per_second"]["successful"]["mean"],
            "output_tok_per_s": metrics["output_tokens_per_second"]["successful"][
                "mean"
            ],
        }
        for name, (key, factor) in NAMES.items():
            found = metrics[key]["successful"]["percentiles"]
            for percent in (50, 99):
                reported[f"p{percent}_{name}_ms"] = times(found[f"p{percent}"], factor)
        return Result(
            requests=requests,
            reported=known(reported),
            completed=len(requests),
            failed=len(groups.get("errored") or []),
            output_tokens=total([seen.output_tokens for seen in requests]),
            input_tokens=total([seen.prompt_tokens for seen in requests]),
        )


def _seen(row: dict[str, Any]) -> Seen:
    values = {name: times(row[key], factor) for name, (key, factor) in NAMES.items()}
    return Seen(
        number=number_in(row["output"]),
        ttft_ms=values["ttft"],
        tpot_ms=values["tpot"],
        e2el_ms=values["e2el"],
        output_tokens=row.get("output_tokens"),
        prompt_tokens=row.get("prompt_tokens"),
    )
