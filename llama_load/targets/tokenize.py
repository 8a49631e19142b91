"""The server's own token counting, where it offers one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import requests

from llama_load.errors import UsageError
from llama_load.targets.control import json_of
from llama_load.targets.target import LLAMA_CPP_PYTHON, LLAMA_SERVER, VLLM

AT_A_TIME = 4
TIMEOUT_S = 30


class ServerCounter:
    """Counts by asking the server: /tokenize (llama-server, vLLM) or /extras/tokenize/count (llama-cpp-python)."""

    source = "server"

    def __init__(self, session: requests.Session, url: str, backend: str, model: str | None) -> None:
        self._session = session
        self._url = url
        self._backend = backend
        self._model = model

    @staticmethod
    def offered_by(backend: str) -> bool:
        """Whether servers of this kind count tokens."""
        return backend in (LLAMA_SERVER, VLLM, LLAMA_CPP_PYTHON)

    def count(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text, special tokens included. Raises UsageError when the server refuses."""
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            return list(pool.map(self._one, texts))

    def count_messages(self, messages: Sequence[Mapping[str, Any]]) -> int:
        """The number of tokens of a conversation with its chat template; vLLM's alone counts those."""
        return self._ask("/tokenize", {"model": self._model or "", "messages": list(messages)})

    def _one(self, text: str) -> int:
        if self._backend == VLLM:
            return self._ask("/tokenize", {"model": self._model or "", "prompt": text})
        if self._backend == LLAMA_CPP_PYTHON:
            return self._ask("/extras/tokenize/count", {"input": text})
        return self._ask("/tokenize", {"content": text, "add_special": True})

    def _ask(self, path: str, body: dict[str, Any]) -> int:
        try:
            response = self._session.post(self._url + path, json=body, timeout=TIMEOUT_S)
            response.raise_for_status()
            answer: Any = json_of(response)
            return int(answer["count"]) if "count" in answer else len(answer["tokens"])
        except (requests.RequestException, ValueError, TypeError, KeyError) as error:
            raise UsageError(f"the server does not count tokens at {path}: {error}; give --tokenizer instead") from None
