"""OpenAI's text completions: a prompt without a chat template."""

from __future__ import annotations

from llama_load.servers.apis.api import OpenAiText


class CompletionsApi(OpenAiText):
    """/v1/completions."""

    name = "completions"
    path = "/v1/completions"
    takes_messages = False


COMPLETIONS = CompletionsApi()
