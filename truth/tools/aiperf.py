"""aiperf (NVIDIA)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from truth.prompts import read_prompts
from truth.result import Result, Seen
from truth.tools.tool import Tool, known, load_json, load_lines, total
from truth.work import Work

# The names of its figures, which are in ms. What it calls inter token latency is a request's mean:
# the TPOT of others.
NAMES = {
    "ttft": "time_to_first_token",
    "tpot": "inter_token_latency",
    "itl": "inter_chunk_latency",
    "e2el": "request_latency",
}
SUMMARY = "profile_export_aiperf.json"
ROWS = "profile_export.jsonl"
PHASE, WARMUP = "benchmark_phase", "warmup"


class Aiperf(Tool):
    name = "aiperf"
    title = "aiperf"

    def commands(self, work: Work, folder: Path) -> list[list[str]]:
        command = ["aiperf", "profile"]
        command += ["--model", work.model]
        command += ["--url", work.url]
        command += ["--endpoint-type", "chat", "--streaming"]
        command += ["--tokenizer", work.tokenizer]
        command += ["--use-server-token-count"]
        if work.closed:
            command += ["--concurrency", str(work.streams)]
        else:
            command += ["--request-rate", f"{work.rate_rps:g}"]
            command += ["--request-rate-mode", work.arrival]
        if work.seconds:
            command += ["--benchmark-duration", f"{work.seconds:g}"]
            command += ["--benchmark-grace-period", "0"]
        else:
            command += ["--request-count", str(work.requests)]
        if work.warmup:
            command += ["--warmup-request-count", str(work.warmup)]
        if work.prompts:
            file = _write_input(folder / "input.jsonl", work)
            command += ["--input-file", str(file)]
            command += ["--custom-dataset-type", "single_turn"]
            command += ["--dataset-sampling-strategy", "sequential"]
        else:
            command += ["--synthetic-input-tokens-mean", str(work.prompt_tokens)]
        command += ["--output-tokens-mean", str(work.tokens)]
        if work.ignore_eos:
            command += ["--extra-inputs", "ignore_eos:true"]
        if work.choices > 1:
            command += ["--extra-inputs", f"n:{work.choices}"]
        if work.seed is not None:
            command += ["--random-seed", str(work.seed)]
        command += ["--ui-type", "none"]
        command += ["--artifact-dir", str(folder / "artifacts")]
        return [command]

    def env(self, work: Work) -> dict[str, str]:
        # with HF_HUB_OFFLINE it does not take a folder for a tokenizer
        return {"DO_NOT_TRACK": "1"}

    def result(self, folder: Path) -> Path:
        return folder / "artifacts"

    def read(self, path: Path) -> Result:
        rows = load_lines(path / ROWS)
        summary = load_json(path / SUMMARY)
        rows = [row for row in rows if row["metadata"].get(PHASE) != WARMUP]
        good = [row for row in rows if not row.get("error")]
        requests = [_seen(row) for row in good]
        return Result(
            requests=requests,
            reported=_reported(summary),
            completed=len(good),
            failed=len(rows) - len(good),
            output_tokens=total([seen.output_tokens for seen in requests]),
            input_tokens=total([seen.prompt_tokens for seen in requests]),
        )


def _write_input(path: Path, work: Work) -> Path:
    lines = [json.dumps({"text": text}) for text in read_prompts(Path(work.prompts))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _reported(summary: dict[str, Any]) -> dict[str, float]:
    values: dict[str, float | None] = {
        "request_rps": summary["request_throughput"]["avg"],
        # not there where no answer had usage
        "output_tok_per_s": (summary.get("output_token_throughput") or {}).get("avg"),
    }
    for name, key in NAMES.items():
        if summary.get(key) is None:
            continue
        for percent in (50, 99):
            values[f"p{percent}_{name}_ms"] = summary[key].get(f"p{percent}")
    return known(values)


def _seen(row: dict[str, Any]) -> Seen:
    metrics = row["metrics"]
    return Seen(
        request_id=row["metadata"]["x_request_id"],
        ttft_ms=_value(metrics, NAMES["ttft"]),
        tpot_ms=_value(metrics, NAMES["tpot"]),
        e2el_ms=_value(metrics, NAMES["e2el"]),
        itl_ms=_value(metrics, NAMES["itl"]) or (),
        output_tokens=_value(metrics, "output_sequence_length"),
        prompt_tokens=_value(metrics, "usage_prompt_tokens"),
    )


def _value(metrics: dict[str, Any], name: str) -> Any:
    return metrics.get(name, {}).get("value")
