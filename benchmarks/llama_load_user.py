"""llama-load's chat user; it also writes its CPU time since the start of the test."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

from locust import events, task

from llama_load import LlamaUser

OUT = Path(os.environ["BENCH_OUT"])
TOKENS = int(os.environ["BENCH_TOKENS"])
marks: list[float] = []


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@events.llm_request.add_listener
def on_request(record: object, **_: object) -> None:
    if not marks:
        marks.append(cpu_s())  # the warm-up request has ended: the measurement begins


@events.test_stopping.add_listener
def on_stopping(**_: object) -> None:
    OUT.write_text(json.dumps({"cpu_s": cpu_s() - marks[0], "rows": []}))


class Chat(LlamaUser):
    @task
    def ask(self) -> None:
        self.chat("Hello " * 40, max_tokens=TOKENS)
