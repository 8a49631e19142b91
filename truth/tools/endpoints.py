"""MLCommons endpoints (`inference-endpoint`)."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from truth.cases import CONSTANT
from truth.result import Result, Seen
from truth.tokenizer import WORDS
from truth.tools.tool import Tool, known, load_json, load_lines, number_in, times
from truth.work import Work

NAMES = {"ttft": "ttft", "tpot": "tpot", "e2el": "latency"}  # ns in its summary
# Its default of ten workers does not start within its 60 s on two cores, and beside busy programs
# nor do its services in 30 s.
WORKERS = 2
STARTS_WITHIN_S = "110"
ERROR = "error"
ANSWERED = {"issued", "recv_first", "complete"}


class Endpoints(Tool):
    name = "endpoints"
    title = "MLCommons endpoints"
    lacks: ClassVar[Mapping[str, str]] = {
        "choices": "sends no n",
        "warmup": "is not started with a warm-up here",
        "seconds": "is not started with an end by time here",
    }

    def unable(self, work: Work) -> str:
        if work.arrival == CONSTANT:
            return "has no evenly spaced arrivals"
        return super().unable(work)

    def commands(self, work: Work, folder: Path) -> list[list[str]]:
        prompts = Path(work.prompts)
        if not work.prompts:
            prompts = folder / "prompts.jsonl"
            _write_prompts(prompts, work)
        command = ["inference-endpoint", "benchmark", "online"]
        if work.closed:
            command += [
                "--load-pattern",
                "concurrency",
                "--concurrency",
                str(work.streams),
            ]
        else:
            command += [
                "--load-pattern",
                work.arrival,
                "--target-qps",
                f"{work.rate_rps:g}",
            ]
        command += ["--num-samples", str(work.requests), "--duration", "0"]
        command += ["--dataset", str(prompts)]
        command += ["--streaming", "on"]
        command += ["--endpoints", work.url]
        command += ["--model", work.model]
        command += ["--tokenizer", work.tokenizer]
        command += ["--max-output-tokens", str(work.tokens)]
        command += ["--workers", str(WORKERS)]
        command += ["--service-ready-timeout", STARTS_WITHIN_S]
        command += ["--client.worker-initialization-timeout", STARTS_WITHIN_S]
        command += ["--no-cpu-affinity"]
        command += ["--report-dir", str(self.result(folder))]
        return [command]

    def result(self, folder: Path) -> Path:
        return folder / "report"

    def read(self, path: Path) -> Result:
        """What its summary calls completed has the failed ones, too."""
        summary = load_json(path / "performance" / "result_summary.json")
        reported: dict[str, float | None] = {
            "request_rps": summary["qps"],
            "output_tok_per_s": summary["tps"],
        }
        for name, key in NAMES.items():
            percentiles = summary[key].get("percentiles", {})
            for percent in (50, 99):
                value = percentiles.get(f"{percent}.0")
                reported[f"p{percent}_{name}_ms"] = times(value, 1e-6)

        samples = _samples(path / "events.jsonl")
        answered = [sample for sample in samples.values() if set(sample) >= ANSWERED]
        failed = int(summary["n_samples_failed"])
        tokens = summary["output_sequence_lengths"].get("total")
        return Result(
            requests=[_seen(sample) for sample in answered if ERROR not in sample],
            reported=known(reported),
            completed=int(summary["n_samples_completed"]) - failed,
            failed=failed,
            output_tokens=None if tokens is None else int(tokens),
        )


def _write_prompts(path: Path, work: Work) -> None:
    draw = random.Random(work.seed or 0)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(work.requests):
            words = [f"w{draw.randrange(WORDS)}" for _ in range(work.prompt_tokens)]
            file.write(json.dumps({"prompt": " ".join(words)}) + "\n")


def _samples(path: Path) -> dict[str, dict[str, Any]]:
    """The events of each sample, by what happened."""
    samples: dict[str, dict[str, Any]] = {}
    for event in load_lines(path):
        kind, _, what = event["event_type"].partition(".")
        if kind == ERROR:
            what = ERROR
        if event["sample_uuid"]:
            samples.setdefault(event["sample_uuid"], {})[what] = event
    return samples


def _seen(sample: dict[str, Any]) -> Seen:
    """A sample's events have times on the monotonic clock, ns. It keeps the first piece of text and
    the rest, but no gaps."""
    issued = sample["issued"]["timestamp_ns"]
    first = sample["recv_first"]["timestamp_ns"]
    complete = sample["complete"]["timestamp_ns"]
    pieces = sample["complete"]["data"][1]
    text = "".join(pieces)
    tokens = len(text.split())
    return Seen(
        number=number_in(text),
        ttft_ms=(first - issued) / 1e6,
        tpot_ms=(complete - first) / (tokens - 1) / 1e6 if tokens > 1 else None,
        e2el_ms=(complete - issued) / 1e6,
        output_tokens=tokens,
    )
