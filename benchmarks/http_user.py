"""The usual locustfile for LLM servers: an HttpUser that reads the stream with iter_lines and
json.loads."""

from __future__ import annotations

import json
import os
import resource
import time
import uuid
from pathlib import Path

import gevent
from locust import HttpUser, events, task

OUT = Path(os.environ["BENCH_OUT"])
REQUESTS = int(os.environ["BENCH_REQUESTS"])
TOKENS = int(os.environ["BENCH_TOKENS"])
taken = 0
rows: list[dict] = []
started: list[float] = []


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@events.test_start.add_listener
def on_start(**_: object) -> None:
    started.append(cpu_s())


@events.quitting.add_listener
def on_quitting(**_: object) -> None:
    OUT.write_text(json.dumps({"cpu_s": cpu_s() - started[0], "rows": rows}))


class Plain(HttpUser):
    @task
    def ask(self) -> None:
        global taken
        if taken >= REQUESTS:
            time.sleep(60)
            return
        taken += 1
        request_id = uuid.uuid4().hex
        body = {
            "messages": [{"role": "user", "content": "Hello " * 40}],
            "max_tokens": TOKENS,
            "stream": True,
        }
        body["stream_options"] = {"include_usage": True}
        stamps = []
        begin = time.perf_counter()
        headers = {"X-Request-Id": request_id}
        response = self.client.post(
            "/v1/chat/completions", json=body, stream=True, headers=headers, name="chat"
        )
        for line in response.iter_lines():
            if line.startswith(b"data: ") and line != b"data: [DONE]":
                event = json.loads(line[6:])
                if event["choices"] and event["choices"][0]["delta"].get("content"):
                    stamps.append(time.perf_counter())
        gaps = [(b - a) * 1e3 for a, b in zip(stamps, stamps[1:], strict=False)]
        rows.append(
            {
                "request_id": request_id,
                "ttft_ms": (stamps[0] - begin) * 1e3,
                "itl_ms": gaps,
            }
        )
        if len(rows) == REQUESTS:
            gevent.spawn(self.environment.runner.quit)
