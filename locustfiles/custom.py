"""Your own prompts: one JSON object per line, {"prompt": "…"} or {"messages": […]}, optionally with
"output_tokens".

llama-load run http://127.0.0.1:8080 -f custom -u 8 -n 64 --dataset-path prompts.jsonl

llama-load datasets make prompts.jsonl generates such a file.
"""

from locust import task

from llama_load import Custom, LlamaUser


class CustomChat(LlamaUser):
    workload = Custom()

    @task
    def ask(self):
        self.chat()
