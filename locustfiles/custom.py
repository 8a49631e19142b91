"""Your own prompts: a line of JSON a request, {"prompt": "…"} or {"messages": […]}, with "output_tokens" if you like.

locust -f locustfiles/custom.py --headless --host http://127.0.0.1:8080 -u 8 --dataset-path prompts.jsonl --num-prompts 64
"""

from locust import task

from llama_load import Custom, LlamaUser


class CustomChat(LlamaUser):
    workload = Custom()

    @task
    def ask(self):
        self.chat()
