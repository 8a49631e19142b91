"""Completions: the questions of the data set as plain text to /v1/completions, without a chat
template.

llama-load run http://127.0.0.1:8080 -f completions -u 8 --num-prompts 64
"""

from locust import task

from llama_load import LlamaUser, ShareGPT


class Completions(LlamaUser):
    workload = ShareGPT()

    @task
    def go_on(self):
        self.complete()
