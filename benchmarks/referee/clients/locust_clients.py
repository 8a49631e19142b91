"""llama-load, and Locust's HttpUser with a plain locustfile."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from benchmarks.referee.clients.client import Client
from benchmarks.referee.scenarios import CLOSED, POISSON, Job, Scenario
from llama_load.run_folder import load_run
from llama_load.version import __version__
from truth.result import Result, Seen
from truth.tools.tool import load_json

BENCHMARKS = Path(__file__).resolve().parents[2]
LOCUST = (sys.executable, "-m", "locust", "--headless", "--loglevel", "ERROR")
COLUMNS = ["request_id", "ttft_ms", "tpot_ms", "e2el_ms", "itl_ms"]
METRICS = ("ttft", "tpot", "itl", "e2el")


class LlamaLoad(Client):
    """With the real-time priority that it takes where the system allows it, except under a quota:
    real-time programs have none."""

    name = "llama-load"
    normal_priority = False

    def version(self) -> str:
        return __version__

    def command(self, job: Job) -> list[str]:
        scenario = job.scenario
        if scenario.arrival == CLOSED:
            load = ["-u", str(scenario.streams)]
        else:
            load = [
                "--request-rate",
                f"{scenario.rate_rps:g}",
                "--arrival",
                scenario.arrival,
            ]
        return [
            *(
                *LOCUST,
                "-f",
                str(BENCHMARKS / "llama_load_user.py"),
                "--host",
                job.url,
                *load,
                "--num-prompts",
                str(scenario.requests),
            ),
            *(
                "--percentile-metrics",
                ",".join(METRICS),
                "--metric-percentiles",
                "50,99",
                "--run-dir",
                str(job.folder / "run"),
            ),
            *(
                ("--client-priority", "normal")
                if self.normal_priority or scenario.quota is not None
                else ()
            ),
        ]

    def env(self, job: Job) -> dict[str, str]:
        return {"BENCH_TOKENS": str(job.scenario.tokens), "BENCH_OUT": os.devnull}

    def read(self, job: Job) -> Result:
        rows = (
            load_run(job.folder / "run")
            .records.measured()
            .ok()
            .table.select(COLUMNS)
            .to_pylist()
        )
        summary = load_json(job.folder / "run" / "summary.json")
        reported = {
            f"p{p}_{name}_ms": summary[f"p{p}_{name}_ms"]
            for p in (50, 99)
            for name in METRICS
        }
        reported |= {
            "request_rps": summary["request_throughput"],
            "output_tok_per_s": summary["output_throughput"],
        }
        return Result(
            [Seen(**row) for row in rows],
            reported,
            note=", ".join(summary["llama_load"]["verdict"]["words"]),
        )


class LlamaLoadNormal(LlamaLoad):
    """Without real-time priority, as other clients have none."""

    name = "llama-load --client-priority normal"
    normal_priority = True

    def unable(self, scenario: Scenario) -> str:
        return "" if scenario.busy else "differs only beside busy processes"


class HttpUser(Client):
    """It has no summary of tokens; its figures are those of benchmarks/http_user.py, as most people
    write it."""

    name = "Locust HttpUser"

    def version(self) -> str:
        from importlib.metadata import version

        return version("locust")

    def unable(self, scenario: Scenario) -> str:
        return (
            ""
            if scenario.arrival == CLOSED
            else f"has no {'Poisson' if scenario.arrival == POISSON else 'scheduled'} arrivals"
        )

    def command(self, job: Job) -> list[str]:
        streams = str(job.scenario.streams)
        return [
            *LOCUST,
            "-f",
            str(BENCHMARKS / "http_user.py"),
            "--host",
            job.url,
            "--only-summary",
            "-u",
            streams,
            "-r",
            streams,
        ]

    def env(self, job: Job) -> dict[str, str]:
        scenario = job.scenario
        return {
            "BENCH_OUT": str(job.folder / "out.json"),
            "BENCH_REQUESTS": str(scenario.requests),
            "BENCH_TOKENS": str(scenario.tokens),
        }

    def read(self, job: Job) -> Result:
        requests = [_seen(**row) for row in load_json(job.folder / "out.json")["rows"]]
        if not requests:
            return Result(requests)
        gaps = np.concatenate([request.itl_ms for request in requests])
        samples = {"itl": gaps} | {
            name: [getattr(each, f"{name}_ms") for each in requests]
            for name in ("ttft", "tpot", "e2el")
        }
        return Result(
            requests,
            {
                f"p{p}_{name}_ms": float(np.percentile(values, p))
                for name, values in samples.items()
                for p in (50, 99)
            },
        )


def _seen(request_id: str, ttft_ms: float, itl_ms: list[float]) -> Seen:
    e2el_ms = ttft_ms + sum(itl_ms)
    return Seen(
        None,
        request_id,
        ttft_ms,
        sum(itl_ms) / len(itl_ms) if itl_ms else None,
        e2el_ms,
        itl_ms,
    )
