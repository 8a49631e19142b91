"""Reranking: queries with documents to /v1/rerank.

llama-load run http://127.0.0.1:8080 -f rerank -u 8 --num-prompts 64
--batch-size 16
"""

from locust import task

from llama_load import LlamaUser, Queries


class Reranking(LlamaUser):
    workload = Queries()

    @task
    def rank_documents(self):
        self.rerank()
