"""k6 (Grafana) without extensions."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.referee.clients.client import Client
from benchmarks.referee.scenarios import CLOSED, POISSON, PROMPT_TOKENS, Job, Scenario
from truth.result import Result, Seen

SCRIPT = Path(__file__).resolve().with_name("k6.js")


class K6(Client):
    name = "k6"
    requirements = "k6"
    distribution = "k6"

    def unable(self, scenario: Scenario) -> str:
        return "has no Poisson arrivals" if scenario.arrival == POISSON else ""

    def command(self, job: Job) -> list[str]:
        return [
            *(
                self.program("k6"),
                "run",
                "--quiet",
                "--no-usage-report",
                "--out",
                f"json={job.folder / 'points.json'}",
            ),
            str(SCRIPT),
        ]

    def env(self, job: Job) -> dict[str, str]:
        scenario = job.scenario
        if scenario.arrival == CLOSED:
            load = {
                "executor": "shared-iterations",
                "vus": scenario.streams,
                "iterations": scenario.requests,
                "maxDuration": "5m",
            }
        else:
            length_s = round(scenario.requests / scenario.rate_rps)
            load = {
                "executor": "constant-arrival-rate",
                "rate": round(scenario.rate_rps),
                "duration": f"{length_s}s",
            }
            load |= {"preAllocatedVUs": 200}
        return {
            "REFEREE_URL": job.url,
            "REFEREE_TOKENS": str(scenario.tokens),
            "REFEREE_PROMPT": "Hello " * PROMPT_TOKENS,
            "REFEREE_OPTIONS": json.dumps({"scenarios": {"referee": load}}),
        }

    def read(self, job: Job) -> Result:
        """Only the end-to-end latency; the summary that it prints has the same values."""
        requests = []
        for line in (job.folder / "points.json").read_bytes().splitlines():
            if b'"referee_e2el"' in line and b'"Point"' in line:
                data = msgspec.json.decode(line)["data"]
                requests.append(
                    Seen(request_id=data["tags"]["request"], e2el_ms=data["value"])
                )
        latencies = [
            request.e2el_ms for request in requests if request.e2el_ms is not None
        ]
        return Result(
            requests,
            {f"p{p}_e2el_ms": float(np.percentile(latencies, p)) for p in (50, 99)}
            if requests
            else {},
        )
