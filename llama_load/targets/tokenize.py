"""The server's own token counting, where it offers one."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import requests

from llama_load.errors import UsageError
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

    def _one(self, text: str) -> int:
        path, body = "/tokenize", {"content": text, "add_special": True}
        if self._backend == VLLM:
            body = {"model": self._model or "", "prompt": text}
        elif self._backend == LLAMA_CPP_PYTHON:
            path, body = "/extras/tokenize/count", {"input": text}
        try:
            response = self._session.post(self._url + path, json=body, timeout=TIMEOUT_S)
            response.raise_for_status()
            answer: dict[str, Any] = response.json()
        except (requests.RequestException, ValueError) as error:
            raise UsageError(f"the server does not count tokens at {path}: {error}; give --tokenizer instead") from None
        if "tokens" in answer:
            return len(answer["tokens"])
        return int(answer["count"])
