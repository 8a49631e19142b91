"""ShareGPT chat: every user asks a question from the data set, waits for the answer, asks the next.

locust -f locustfiles/sharegpt_chat.py --headless --host http://127.0.0.1:8080 -u 8 --num-prompts 64
"""

from locust import task

from llama_load import LlamaUser, ShareGPT


class ShareGPTChat(LlamaUser):
    workload = ShareGPT()

    @task
    def ask(self):
        self.chat()
