"""genai-bench (SGLang project), which is made of Locust."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from truth.result import Result, Seen
from truth.tools.tool import NoResult, Tool, known, load_json, times
from truth.work import Work

NAMES = {"ttft": "ttft", "tpot": "tpot", "e2el": "e2e_latency"}  # s
LONGEST_MIN = "5"


class GenaiBench(Tool):
    name = "genai-bench"
    title = "genai-bench"
    lacks: ClassVar[Mapping[str, str]] = {
        "choices": "sends no n",
        "warmup": "is not started with a warm-up here",
        "seconds": "has an end by minutes",
        "prompts": "draws the prompts of a file at random",
    }

    def unable(self, work: Work) -> str:
        if not work.closed:
            return "has no open loop"
        return super().unable(work)

    def commands(self, work: Work, folder: Path) -> list[list[str]]:
        command = ["genai-bench", "benchmark"]
        command += ["--api-backend", "openai"]
        command += ["--api-base", work.url]
        command += ["--api-key", "none"]
        command += ["--task", "text-to-text"]
        command += ["--api-model-name", work.model, "--model", work.model]
        command += ["--model-tokenizer", work.tokenizer]
        command += ["--num-concurrency", str(work.streams)]
        command += ["--traffic-scenario", f"D({work.prompt_tokens},{work.tokens})"]
        command += ["--max-time-per-run", LONGEST_MIN]
        command += ["--max-requests-per-run", str(work.requests)]
        command += ["--experiment-base-dir", str(folder)]
        command += ["--experiment-folder-name", "experiment"]
        command += ["--log-dir", str(folder)]
        return [command]

    def result(self, folder: Path) -> Path:
        return folder / "experiment"

    def read(self, path: Path) -> Result:
        """Its records name no request, so that only distributions are compared."""
        files = list(path.glob("D*.json"))
        if not files:
            raise NoResult("no D….json")
        result = load_json(files[0])
        summary = result["aggregated_metrics"]
        rows = [
            row for row in result["individual_request_metrics"] if not row["error_code"]
        ]
        return Result(
            requests=[_seen(row) for row in rows],
            reported=_reported(summary),
            completed=summary.get("num_completed_requests"),
            failed=summary.get("num_error_requests"),
            output_tokens=sum(row["num_output_tokens"] or 0 for row in rows),
            input_tokens=sum(row["num_input_tokens"] or 0 for row in rows),
        )


def _reported(summary: dict[str, Any]) -> dict[str, float]:
    values: dict[str, float | None] = {
        "request_rps": summary["requests_per_second"],
        "output_tok_per_s": summary["mean_output_throughput_tokens_per_s"],
    }
    for name, key in NAMES.items():
        for percent in (50, 99):
            values[f"p{percent}_{name}_ms"] = times(
                summary["stats"][key][f"p{percent}"], 1e3
            )
    return known(values)


def _seen(row: dict[str, Any]) -> Seen:
    return Seen(
        ttft_ms=times(row["ttft"], 1e3),
        tpot_ms=times(row["tpot"], 1e3),
        e2el_ms=times(row["e2e_latency"], 1e3),
        output_tokens=row["num_output_tokens"],
        prompt_tokens=row["num_input_tokens"],
    )
