"""Your own prompts: one JSON object per line, {"prompt": "…"} or {"messages": […]}, optionally with
"output_tokens".

locust -f locustfiles/custom.py --headless --host http://127.0.0.1:8080 -u 8 --dataset-path
prompts.jsonl --num-prompts 64

llama-load datasets make prompts.jsonl generates such a file.
"""

from locust import task

from llama_load import Custom, LlamaUser


class CustomChat(LlamaUser):
    workload = Custom()

    @task
    def ask(self):
        self.chat()
