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

    from llama_load.ground.version import __version__
    from llama_load.lab.python_run import Result, compare, run
    from llama_load.loadgen.swarm.load_shapes import Ramp, Soak, Spike, Stages
    from llama_load.loadgen.swarm.surroundings import Surroundings
    from llama_load.loadgen.users.answer_check import Answer
    from llama_load.loadgen.users.user import LlamaUser
    from llama_load.loadgen.workloads.agent import Agent
    from llama_load.loadgen.workloads.custom import Custom
    from llama_load.loadgen.workloads.documents import Documents
    from llama_load.loadgen.workloads.embeddings import Queries, TextBatches
    from llama_load.loadgen.workloads.mixed import Mixed
    from llama_load.loadgen.workloads.recorded import Conversations
    from llama_load.loadgen.workloads.replay import Replay
    from llama_load.loadgen.workloads.sharegpt import ShareGPT
    from llama_load.loadgen.workloads.synthetic import Synthetic
    from llama_load.loadgen.workloads.vision import Vision

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
    "Agent": "loadgen.workloads.agent",
    "Answer": "loadgen.users.answer_check",
    "Conversations": "loadgen.workloads.recorded",
    "Custom": "loadgen.workloads.custom",
    "Documents": "loadgen.workloads.documents",
    "LlamaUser": "loadgen.users.user",
    "Mixed": "loadgen.workloads.mixed",
    "Queries": "loadgen.workloads.embeddings",
    "Replay": "loadgen.workloads.replay",
    "Result": "lab.python_run",
    "ShareGPT": "loadgen.workloads.sharegpt",
    "Synthetic": "loadgen.workloads.synthetic",
    "TextBatches": "loadgen.workloads.embeddings",
    "Vision": "loadgen.workloads.vision",
    "__version__": "ground.version",
    "compare": "lab.python_run",
    "run": "lab.python_run",
    **dict.fromkeys(("Ramp", "Soak", "Spike", "Stages"), "loadgen.swarm.load_shapes"),
}


def __getattr__(name: str) -> object:
    if name in ("Answer", "LlamaUser", "events"):
        from llama_load.loadgen.swarm.install import install

        install(_reports_and_pages)
    if name == "events":
        import locust

        return locust.events
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
    from llama_load.ground.blas_threads import load_numpy_without_threads
    from llama_load.loadgen.swarm.signals import SIGNALS, is_locust_process
    from llama_load.outside.terminal import make_output_safe

    if is_locust_process():
        SIGNALS.take()
        make_output_safe()
        load_numpy_without_threads()
