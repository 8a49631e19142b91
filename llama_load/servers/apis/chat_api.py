"""OpenAI's chat completions: what nearly all servers have."""

from __future__ import annotations

from typing import Any

from llama_load.servers.apis.api import OpenAiText
from llama_load.servers.apis.prompt_content import Content, as_messages


class ChatApi(OpenAiText):
    """/v1/chat/completions."""

    name = "chat"
    path = "/v1/chat/completions"
    bench_name = "openai-chat"
    has_template = True
    takes_images = True
    takes_tools = True

    def prompt_fields(self, content: Content) -> dict[str, Any]:
        """See `GeneratingApi.prompt_fields`."""
        return {"messages": as_messages(content)}


CHAT = ChatApi()
