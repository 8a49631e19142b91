"""The clients that are known: their commands, and readers of their results."""

from truth.problem import Problem
from truth.tools.aiperf import Aiperf
from truth.tools.csv_rows import CsvRows
from truth.tools.endpoints import Endpoints
from truth.tools.evalscope import Evalscope
from truth.tools.genai_bench import GenaiBench
from truth.tools.guidellm import Guidellm
from truth.tools.inference_perf import InferencePerf
from truth.tools.llama_benchy import LlamaBenchy
from truth.tools.llama_load import LlamaLoad
from truth.tools.otlp import Otlp
from truth.tools.tool import READING_FAILED, NoResult, Tool, as_read
from truth.tools.vllm import Vllm

TOOLS: tuple[Tool, ...] = (
    Vllm(),
    Aiperf(),
    Guidellm(),
    InferencePerf(),
    Endpoints(),
    GenaiBench(),
    LlamaBenchy(),
    Evalscope(),
    LlamaLoad(),
    Otlp(),
    CsvRows(),
)
NAMES = tuple(tool.name for tool in TOOLS)


def tool_named(name: str) -> Tool:
    """Problem: there is no such client."""
    for tool in TOOLS:
        if tool.name == name:
            return tool
    raise Problem(f"there is no client {name!r}; there are {', '.join(NAMES)}")


__all__ = [
    "NAMES",
    "READING_FAILED",
    "TOOLS",
    "NoResult",
    "Tool",
    "as_read",
    "tool_named",
]
