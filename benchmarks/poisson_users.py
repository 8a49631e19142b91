"""The usual locustfile for Poisson arrivals: users with an exponentially distributed wait_time."""

from __future__ import annotations

import os
import random

from locust import HttpUser, task

USERS, RATE = int(os.environ["BENCH_USERS"]), float(os.environ["BENCH_RATE"])


class Waiting(HttpUser):
    """One of `USERS` users that together should reach the rate."""

    def wait_time(self) -> float:
        return random.expovariate(RATE / USERS)

    @task
    def ask(self) -> None:
        body = {
            "messages": [{"role": "user", "content": "Hello " * 40}],
            "max_tokens": 2,
            "stream": True,
        }
        for _ in self.client.post(
            "/v1/chat/completions", json=body, stream=True, name="chat"
        ).iter_lines():
            pass
