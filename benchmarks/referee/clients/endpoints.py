"""MLCommons endpoints (`inference-endpoint`)."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec

from benchmarks.referee.clients.client import Client, Result, Seen, load_json, number_in
from benchmarks.referee.scenarios import CLOSED, CONSTANT, PROMPT_TOKENS, Job, Scenario
from benchmarks.referee.tokenizer import WORDS

NAMES = {"ttft": "ttft", "tpot": "tpot", "e2el": "latency"}  # ns in its summary
# Its default of ten workers does not start within its 60 s on two cores.
WORKERS, STARTS_WITHIN_S = 2, "110"


class Endpoints(Client):
    name = "MLCommons endpoints"
    requirements = "endpoints"
    distribution = "inference-endpoint"

    def unable(self, scenario: Scenario) -> str:
        return "has no evenly spaced arrivals" if scenario.arrival == CONSTANT else ""

    def command(self, job: Job) -> list[str]:
        scenario = job.scenario
        prompts = job.folder / "prompts.jsonl"
        draw = random.Random(0)
        with prompts.open("w", encoding="utf-8") as file:
            for _ in range(scenario.requests):
                prompt = " ".join(f"w{draw.randrange(WORDS)}" for _ in range(PROMPT_TOKENS))
                file.write(json.dumps({"prompt": prompt}) + "\n")
        if scenario.arrival == CLOSED:
            load = ["--load-pattern", "concurrency", "--concurrency", str(scenario.streams)]
        else:
            load = ["--load-pattern", scenario.arrival, "--target-qps", f"{scenario.rate_rps:g}"]
        return [
            *(self.program("inference-endpoint"), "benchmark", "online", *load, "--num-samples", str(scenario.requests)),
            *("--duration", "0", "--dataset", str(prompts), "--streaming", "on", "--endpoints", job.url, "--model", "simulated"),
            *("--tokenizer", str(job.tokenizer), "--max-output-tokens", str(scenario.tokens), "--workers", str(WORKERS)),
            *(
                "--client.worker-initialization-timeout",
                STARTS_WITHIN_S,
                "--no-cpu-affinity",
                "--report-dir",
                str(job.folder / "report"),
            ),
        ]

    def read(self, job: Job) -> Result:
        folder = job.folder / "report"
        summary = load_json(folder / "performance" / "result_summary.json")
        reported = {
            f"p{p}_{name}_ms": float(summary[key]["percentiles"][f"{p}.0"]) / 1e6 for name, key in NAMES.items() for p in (50, 99)
        }
        reported |= {"request_rps": summary["qps"], "output_tok_per_s": summary["tps"]}
        samples: dict[str, dict[str, Any]] = {}
        for line in (folder / "events.jsonl").read_bytes().splitlines():
            event = msgspec.json.decode(line)
            kind, _, what = event["event_type"].partition(".")
            if kind == "sample":
                samples.setdefault(event["sample_uuid"], {})[what] = event
        return Result([_seen(sample, job.scenario.tokens) for sample in samples.values() if "complete" in sample], reported)


def _seen(sample: dict[str, Any], tokens: int) -> Seen:
    """A sample's events have times on the monotonic clock, ns. It keeps the first piece of text and the rest, but no gaps."""
    issued, first, complete = (sample[what]["timestamp_ns"] for what in ("issued", "recv_first", "complete"))
    pieces = sample["complete"]["data"][1]
    return Seen(
        number=number_in("".join(pieces)),
        ttft_ms=(first - issued) / 1e6,
        tpot_ms=(complete - first) / (tokens - 1) / 1e6,
        e2el_ms=(complete - issued) / 1e6,
    )
