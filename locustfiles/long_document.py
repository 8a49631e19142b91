"""Long documents: every request asks a question about a text of 11000 tokens (--document-tokens).

llama-load run http://127.0.0.1:8080 -f long_document -u 4 --num-prompts 16
--document-tokens 11000
"""

from locust import task

from llama_load import Documents, LlamaUser


class LongDocument(LlamaUser):
    workload = Documents()

    @task
    def ask(self):
        self.document()
