"""ShareGPT chat: every user sends its next question when the previous one is answered.

llama-load run http://127.0.0.1:8080 -f sharegpt_chat -u 8 --num-prompts 64

Repeat it as often as you like: each run's prompts are new to the server's cache (--seed 0 sends
them as they are).
"""

from locust import task

from llama_load import LlamaUser, ShareGPT


class ShareGPTChat(LlamaUser):
    workload = ShareGPT()

    @task
    def ask(self):
        self.chat()
