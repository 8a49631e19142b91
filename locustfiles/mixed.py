"""Documents and images in turn, with answers of 128 tokens; the report has a row per request.

llama-load run http://127.0.0.1:8080 -f mixed -u 4 --num-prompts 8
"""

from locust import task

from llama_load import Documents, LlamaUser, Mixed, Vision


class DocumentsAndImages(LlamaUser):
    workload = Mixed(document=Documents(), vision=Vision())

    @task
    def ask(self):
        self.chat()
