"""Reranking: queries with documents to /v1/rerank.

locust -f locustfiles/rerank.py --headless --host http://127.0.0.1:8080 -u 8 --num-prompts 64
--batch-size 16
"""

from locust import task

from llama_load import LlamaUser, Queries


class Reranking(LlamaUser):
    workload = Queries()

    @task
    def rank_documents(self):
        self.rerank()
