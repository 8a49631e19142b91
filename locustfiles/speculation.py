"""Questions by category, for speculative decoding: code, prose, lists, translation; or your own, in
the layout of SPEED-Bench.

llama-load run http://127.0.0.1:8080 -f speculation -u 1 --num-prompts 32
--temperature 0

Reports have a row per category with the share of drafted tokens that was accepted. `llama-load
sweep speculation` compares with and without a draft model.
"""

from locust import task

from llama_load import Custom, LlamaUser


class Speculation(LlamaUser):
    workload = Custom("speculation_prompts.jsonl")

    @task
    def ask(self):
        self.chat()
