"""genai-bench (SGLang project), which is made of Locust."""

from __future__ import annotations

from benchmarks.referee.clients.client import Client, NoResult, Result, Seen, load_json
from benchmarks.referee.scenarios import CLOSED, PROMPT_TOKENS, Job, Scenario

NAMES = {"ttft": "ttft", "tpot": "tpot", "e2el": "e2e_latency"}  # s
LONGEST_MIN = "5"


class GenaiBench(Client):
    name = "genai-bench"
    requirements = "genai_bench"
    distribution = "genai-bench"

    def unable(self, scenario: Scenario) -> str:
        return "" if scenario.arrival == CLOSED else "has no open loop"

    def command(self, job: Job) -> list[str]:
        scenario = job.scenario
        return [
            *(self.program("genai-bench"), "benchmark", "--api-backend", "openai", "--api-base", job.url, "--api-key", "none"),
            *("--task", "text-to-text", "--api-model-name", "simulated", "--model", "simulated"),
            *("--model-tokenizer", str(job.tokenizer), "--num-concurrency", str(scenario.streams)),
            *("--traffic-scenario", f"D({PROMPT_TOKENS},{scenario.tokens})", "--max-time-per-run", LONGEST_MIN),
            *("--max-requests-per-run", str(scenario.requests), "--experiment-base-dir", str(job.folder)),
            *("--experiment-folder-name", "experiment", "--log-dir", str(job.folder)),
        ]

    def read(self, job: Job) -> Result:
        """Its records name no request, so that only distributions are compared."""
        files = list((job.folder / "experiment").glob("D*.json"))
        if not files:
            raise NoResult("no D….json")
        result = load_json(files[0])
        total = result["aggregated_metrics"]
        reported = {f"p{p}_{name}_ms": total["stats"][key][f"p{p}"] * 1e3 for name, key in NAMES.items() for p in (50, 99)}
        reported["request_rps"] = total["requests_per_second"]
        reported["output_tok_per_s"] = total["mean_output_throughput_tokens_per_s"]
        rows = [row for row in result["individual_request_metrics"] if not row["error_code"]]
        requests = [Seen(**{f"{name}_ms": row[key] * 1e3 for name, key in NAMES.items() if row[key] is not None}) for row in rows]
        return Result(requests, reported)
