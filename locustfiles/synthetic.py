"""Synthetic prompts: generated text of an exact length in tokens, with or without a shared prefix.

llama-load run http://127.0.0.1:8080 -f synthetic -u 8 --num-prompts 64
--input-len 512 --output-len 64
"""

from locust import task

from llama_load import LlamaUser, Synthetic


class SyntheticChat(LlamaUser):
    workload = Synthetic()

    @task
    def ask(self):
        self.chat()
