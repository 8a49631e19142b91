"""OpenAI's text completions: a prompt without a chat template."""

from __future__ import annotations

from typing import Any

from llama_load.targets.apis.api import OpenAiText
from llama_load.targets.apis.prompt_content import Content


class CompletionsApi(OpenAiText):
    """/v1/completions."""

    name = "completions"
    path = "/v1/completions"
    takes_messages = False

    def prompt_fields(self, content: Content) -> dict[str, Any]:
        """See `GeneratingApi.prompt_fields`."""
        return {"prompt": content}


COMPLETIONS = CompletionsApi()
