"""The names of server kinds, for tests."""

from __future__ import annotations

from llama_load.servers.kinds.llama_cpp_python_kind import (
    LLAMA_CPP_PYTHON as _LLAMA_CPP_PYTHON,
)
from llama_load.servers.kinds.llama_server_kind import LLAMA_SERVER as _LLAMA_SERVER
from llama_load.servers.kinds.server_kind import ANY
from llama_load.servers.kinds.vllm_kind import VLLM as _VLLM

LLAMA_SERVER, VLLM, LLAMA_CPP_PYTHON, OPENAI = (
    kind.name for kind in (_LLAMA_SERVER, _VLLM, _LLAMA_CPP_PYTHON, ANY)
)
