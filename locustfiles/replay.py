"""Recorded traffic: the arrival times, lengths and shared prefixes of a trace, with generated text.

llama-load run http://127.0.0.1:8080 -f replay --trace trace.jsonl --speed 2
"""

from locust import task

from llama_load import LlamaUser, Replay


class ReplayChat(LlamaUser):
    workload = Replay()

    @task
    def ask(self):
        self.chat()
