"""Greetings, as a workload of a package: llama-load run URL -f greetings -u 2 -n 8"""

from locust import task

from llama_load import LlamaUser
from llama_load.loadgen.workloads.prompt_plan import DataFacts, Plan, PlanRequest
from llama_load.servers.prompt import Prompt


class Greetings:
    """Numbered greetings of 8 tokens."""

    name = "greetings"

    def plan(self, request: PlanRequest) -> Plan:
        """As many different prompts as the run wants."""
        wanted = request.num_prompts + request.warmup
        texts = [f"Number {number}: good morning!" for number in range(wanted)]
        counts = request.counter.count(texts)
        prompts = []
        for text, count in zip(texts, counts, strict=True):
            prompts.append(Prompt(text, count, max_tokens=8))

        measured = prompts[: request.num_prompts]
        warmup = prompts[request.num_prompts :]
        return request.plan(measured, warmup, DataFacts(path="generated greetings"))


class Greeting(LlamaUser):
    """Greets."""

    workload = Greetings()

    @task
    def greet(self) -> None:
        """One greeting."""
        self.chat()
