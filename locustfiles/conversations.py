"""Whole conversations: agents with tools, tool results, sub-agents and waits, turn by turn; by
default the bundled sample.

llama-load run http://127.0.0.1:8080 -f conversations -u 4 --num-prompts 40
--dataset-path traces.jsonl

Reads OpenAI messages, ShareGPT, OpenTelemetry spans and kv-cache-tester's traces: see
docs/conversations.md.
"""

from locust import task

from llama_load import Conversations, LlamaUser


class WholeConversations(LlamaUser):
    workload = Conversations()

    @task
    def ask(self):
        self.chat()
