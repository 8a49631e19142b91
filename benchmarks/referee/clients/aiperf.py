"""aiperf (NVIDIA)."""

from __future__ import annotations

from typing import Any

import msgspec

from benchmarks.referee.clients.client import Client, Result, Seen, load_json
from benchmarks.referee.scenarios import CLOSED, PROMPT_TOKENS, Job

# The names of its figures, which are in ms. What it calls inter token latency is a request's mean: the TPOT of others.
NAMES = {
    "ttft": "time_to_first_token",
    "tpot": "inter_token_latency",
    "itl": "inter_chunk_latency",
    "e2el": "request_latency",
}


class Aiperf(Client):
    name = "aiperf"
    requirements = "aiperf"
    distribution = "aiperf"

    def command(self, job: Job) -> list[str]:
        scenario = job.scenario
        if scenario.arrival == CLOSED:
            load = ["--concurrency", str(scenario.streams)]
        else:
            load = ["--request-rate", f"{scenario.rate_rps:g}", "--request-rate-mode", scenario.arrival]
        return [
            *(
                self.program("aiperf"),
                "profile",
                "--model",
                "simulated",
                "--url",
                job.url,
                "--endpoint-type",
                "chat",
                "--streaming",
            ),
            *("--tokenizer", str(job.tokenizer), "--use-server-token-count", "--ui-type", "none", *load),
            *("--request-count", str(scenario.requests), "--artifact-dir", str(job.folder / "artifacts")),
            *("--synthetic-input-tokens-mean", str(PROMPT_TOKENS), "--output-tokens-mean", str(scenario.tokens)),
            *("--extra-inputs", "ignore_eos:true"),
        ]

    def env(self, job: Job) -> dict[str, str]:
        return {"DO_NOT_TRACK": "1"}  # with HF_HUB_OFFLINE it does not take a folder for a tokenizer

    def read(self, job: Job) -> Result:
        folder = job.folder / "artifacts"
        rows = [msgspec.json.decode(line) for line in (folder / "profile_export.jsonl").read_bytes().splitlines()]
        summary = load_json(folder / "profile_export_aiperf.json")
        reported = {f"p{p}_{name}_ms": summary[key][f"p{p}"] for name, key in NAMES.items() for p in (50, 99)}
        reported["request_rps"] = summary["request_throughput"]["avg"]
        reported["output_tok_per_s"] = summary["output_token_throughput"]["avg"]
        return Result([_seen(row) for row in rows if not row.get("error")], reported)


def _seen(row: dict[str, Any]) -> Seen:
    values = {name: row["metrics"].get(key, {}).get("value") for name, key in NAMES.items()}
    return Seen(
        request_id=row["metadata"]["x_request_id"],
        ttft_ms=values["ttft"],
        tpot_ms=values["tpot"],
        e2el_ms=values["e2el"],
        itl_ms=values["itl"] or (),
    )
