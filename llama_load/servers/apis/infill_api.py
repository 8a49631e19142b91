"""llama-server's /infill: code that goes on after a beginning, for models with fill-in-the-middle
tokens."""

from __future__ import annotations

from typing import Any

from llama_load.servers.apis.completion_api import CompletionApi
from llama_load.servers.apis.prompt_content import Content


class InfillApi(CompletionApi):
    """/infill. The prompt is the text before the gap; nothing follows the gap."""

    name = "infill"
    path = "/infill"

    def prompt_fields(self, content: Content) -> dict[str, Any]:
        """See `GeneratingApi.prompt_fields`."""
        return {"input_prefix": content, "input_suffix": ""}


INFILL = InfillApi()
