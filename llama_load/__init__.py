"""Load tests for LLM servers, based on Locust.

In a locustfile: `from llama_load import LlamaUser`. In Python: `llama_load.run(url)`. Imports are
lazy, so that reading reports needs neither Locust nor gevent.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from locust.event import EventHook, Events

    from llama_load.lab.python_run import Result, compare, run
    from llama_load.swarm.load_shapes import Ramp, Soak, Spike, Stages
    from llama_load.swarm.surroundings import Surroundings
    from llama_load.users.answer_check import Answer
    from llama_load.users.user import LlamaUser
    from llama_load.version import __version__
    from llama_load.workloads.agent import Agent
    from llama_load.workloads.custom import Custom
    from llama_load.workloads.documents import Documents
    from llama_load.workloads.embeddings import Queries, TextBatches
    from llama_load.workloads.mixed import Mixed
    from llama_load.workloads.recorded import Conversations
    from llama_load.workloads.replay import Replay
    from llama_load.workloads.sharegpt import ShareGPT
    from llama_load.workloads.synthetic import Synthetic
    from llama_load.workloads.vision import Vision

    class _Events(Events):
        llm_request: EventHook
        llm_report: EventHook

    events: _Events

__all__ = [
    "Agent",
    "Answer",
    "Conversations",
    "Custom",
    "Documents",
    "LlamaUser",
    "Mixed",
    "Queries",
    "Ramp",
    "Replay",
    "Result",
    "ShareGPT",
    "Soak",
    "Spike",
    "Stages",
    "Synthetic",
    "TextBatches",
    "Vision",
    "__version__",
    "compare",
    "events",
    "run",
]

# The module of each name.
_MODULES = {
    "Agent": "workloads.agent",
    "Answer": "users.answer_check",
    "Conversations": "workloads.recorded",
    "Custom": "workloads.custom",
    "Documents": "workloads.documents",
    "LlamaUser": "users.user",
    "Mixed": "workloads.mixed",
    "Queries": "workloads.embeddings",
    "Replay": "workloads.replay",
    "Result": "lab.python_run",
    "ShareGPT": "workloads.sharegpt",
    "Synthetic": "workloads.synthetic",
    "TextBatches": "workloads.embeddings",
    "Vision": "workloads.vision",
    "__version__": "version",
    "compare": "lab.python_run",
    **dict.fromkeys(("Ramp", "Soak", "Spike", "Stages"), "swarm.load_shapes"),
}


def __getattr__(name: str) -> object:
    from llama_load.fast_imports import fast_imports

    with fast_imports():
        return _attribute(name)


def _attribute(name: str) -> object:
    if name in ("Answer", "LlamaUser", "events"):
        from llama_load.swarm.install import install

        install(_reports_and_pages)
    if name == "events":
        import locust

        return locust.events
    if name == "run":  # the room of that name, which can be called
        return import_module("llama_load.run")
    if name in _MODULES:
        return getattr(import_module(f"llama_load.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'llama_load' has no attribute {name!r}")


def _reports_and_pages() -> Surroundings:
    """What runs are handed at their ends, by whatever program they were started."""
    handed_in = import_module("llama_load.cli.reports_and_pages")
    surroundings: Surroundings = handed_in.ReportsAndPages()
    return surroundings


if "locust.main" in sys.modules:
    # as early as possible: Ctrl-C may come during the other imports
    from llama_load.blas_threads import load_numpy_without_threads
    from llama_load.swarm.signals import SIGNALS, is_locust_process
    from llama_load.terminal import make_output_safe

    if is_locust_process():
        SIGNALS.take()
        make_output_safe()
        load_numpy_without_threads()
