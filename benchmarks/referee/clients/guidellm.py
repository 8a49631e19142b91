"""guidellm (vLLM project)."""

from __future__ import annotations

from typing import Any

from benchmarks.referee.clients.client import Client, Result, Seen, load_json, number_in
from benchmarks.referee.scenarios import CLOSED, PROMPT_TOKENS, Job

# What it calls inter token latency is a request's mean: the TPOT of others. It keeps no gaps.
NAMES = {"ttft": ("time_to_first_token_ms", 1), "tpot": ("inter_token_latency_ms", 1), "e2el": ("request_latency", 1000)}


class Guidellm(Client):
    name = "guidellm"
    requirements = "guidellm"
    distribution = "guidellm"

    def command(self, job: Job) -> list[str]:
        scenario = job.scenario
        if scenario.arrival == CLOSED:
            profile = f"kind=concurrent,streams={scenario.streams}"
        else:
            profile = f"kind={scenario.arrival},rate={scenario.rate_rps:g}"
        tokens = f"prompt_tokens={PROMPT_TOKENS},output_tokens={scenario.tokens}"
        return [
            *(self.program("guidellm"), "run", "--disable-console"),
            *("--backend", f"kind=openai_http,target={job.url},model=simulated"),
            *("--profile", profile, "--constraint", f"kind=max_requests,count={scenario.requests}"),
            *("--data", f"kind=synthetic_text,{tokens}", "--tokenizer", f"kind=hf_auto,model={job.tokenizer}"),
            *("--output", f"kind=json,path={job.folder / 'result.json'}"),
        ]

    def read(self, job: Job) -> Result:
        benchmark = load_json(job.folder / "result.json")["benchmarks"][0]
        metrics = benchmark["metrics"]
        reported = {
            f"p{p}_{name}_ms": metrics[key]["successful"]["percentiles"][f"p{p}"] * factor
            for name, (key, factor) in NAMES.items()
            for p in (50, 99)
        }
        reported["request_rps"] = metrics["requests_per_second"]["successful"]["mean"]
        reported["output_tok_per_s"] = metrics["output_tokens_per_second"]["successful"]["mean"]
        return Result([_seen(row) for row in benchmark["requests"]["successful"]], reported)


def _seen(row: dict[str, Any]) -> Seen:
    values = {name: row[key] * factor for name, (key, factor) in NAMES.items() if row[key] is not None}
    return Seen(number=number_in(row["output"]), ttft_ms=values.get("ttft"), tpot_ms=values.get("tpot"), e2el_ms=values.get("e2el"))
