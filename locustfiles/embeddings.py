"""Embeddings: batches of texts to /v1/embeddings.

llama-load run http://127.0.0.1:8080 -f embeddings -u 8 --num-prompts 64
--batch-size 16
"""

from locust import task

from llama_load import LlamaUser, TextBatches


class Embeddings(LlamaUser):
    workload = TextBatches()

    @task
    def embed_batch(self):
        self.embed()
