"""The APIs of LLM servers: one file for each. Ask the object; its name is for flags, records and
reports."""

from __future__ import annotations

from llama_load.servers.apis.api import Api
from llama_load.servers.apis.chat_api import CHAT
from llama_load.servers.apis.completion_api import COMPLETION
from llama_load.servers.apis.completions_api import COMPLETIONS
from llama_load.servers.apis.embeddings_api import EMBEDDINGS
from llama_load.servers.apis.infill_api import INFILL
from llama_load.servers.apis.messages_api import MESSAGES
from llama_load.servers.apis.rerank_api import RERANK
from llama_load.servers.apis.responses_api import RESPONSES

__all__ = [
    "APIS",
    "CHAT",
    "COMPLETIONS",
    "EMBEDDINGS",
    "NOT_CACHED",
    "OFFERED",
    "RERANK",
    "WITH_TEMPLATE",
    "Api",
]

APIS: dict[str, Api] = {
    api.name: api
    for api in (
        CHAT,
        COMPLETIONS,
        MESSAGES,
        RESPONSES,
        COMPLETION,
        INFILL,
        EMBEDDINGS,
        RERANK,
    )
}
OFFERED = tuple(name for name, api in APIS.items() if api.is_offered)
# Of records, by their API's name: servers keep nothing of their prompts; their prompts go into the
# chat template.
NOT_CACHED = frozenset(name for name, api in APIS.items() if not api.is_cached)
WITH_TEMPLATE = frozenset(name for name, api in APIS.items() if api.has_template)
