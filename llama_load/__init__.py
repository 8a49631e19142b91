"""Load tests for LLM servers, with Locust, whose numbers can be trusted.

In a locustfile: `from llama_load import LlamaUser`. Everything is loaded on first use, so that reading reports needs
neither Locust nor gevent.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llama_load.users.user import Answer, LlamaUser
    from llama_load.workloads.sharegpt import ShareGPT

__version__ = version("llama-load")
__all__ = ["Answer", "LlamaUser", "ShareGPT", "__version__"]


def __getattr__(name: str) -> Any:
    if name in ("Answer", "LlamaUser"):
        from llama_load.swarm.lifecycle import install
        from llama_load.users import user

        install()
        return getattr(user, name)
    if name == "ShareGPT":
        from llama_load.workloads.sharegpt import ShareGPT

        return ShareGPT
    raise AttributeError(f"module 'llama_load' has no attribute {name!r}")
