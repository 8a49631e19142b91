"""What people write today for Poisson arrivals: Locust users that wait for exponentially distributed times between
their requests."""

from __future__ import annotations

import os
import random

from locust import HttpUser, task

USERS, RATE = int(os.environ["BENCH_USERS"]), float(os.environ["BENCH_RATE"])


class Waiting(HttpUser):
    """One of so many users who together are to make the rate."""

    def wait_time(self) -> float:
        return random.expovariate(RATE / USERS)

    @task
    def ask(self) -> None:
        body = {"messages": [{"role": "user", "content": "Hello " * 40}], "max_tokens": 2, "stream": True}
        for _ in self.client.post("/v1/chat/completions", json=body, stream=True, name="chat").iter_lines():
            pass
