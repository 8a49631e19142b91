"""ShareGPT chat: every user sends its next question when the previous one is answered.

locust -f locustfiles/sharegpt_chat.py --headless --host http://127.0.0.1:8080 -u 8 --num-prompts 64

Add --bust-prefix-cache to repeat a run: the server's prompt cache has the prompts of the previous one.
"""

from locust import task

from llama_load import LlamaUser, ShareGPT


class ShareGPTChat(LlamaUser):
    workload = ShareGPT()

    @task
    def ask(self):
        self.chat()
