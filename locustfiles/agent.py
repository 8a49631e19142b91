"""A coding agent against a local model: a system prompt with tools, then rounds of tool calls and
outputs in a growing context.

llama-load run http://127.0.0.1:8080 -f agent -u 2 --num-prompts 36
--rounds 8 --tool-time lognormal:2,1
"""

from locust import task

from llama_load import Agent, LlamaUser


class CodingAgent(LlamaUser):
    workload = Agent()

    @task
    def work(self):
        self.chat()
