"""Long documents: every user asks a question about a text of some 11000 tokens.

locust -f locustfiles/long_document.py --headless --host http://127.0.0.1:8080 -u 4 --num-prompts 16 --document-tokens 11000
"""

from locust import task

from llama_load import Documents, LlamaUser


class LongDocument(LlamaUser):
    workload = Documents()

    @task
    def ask(self):
        self.document()
