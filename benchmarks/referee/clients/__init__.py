"""The clients that the referee judges."""

from benchmarks.referee.clients.client import Client, caches
from benchmarks.referee.clients.k6 import K6
from benchmarks.referee.clients.locust_clients import (
    HttpUser,
    LlamaLoad,
    LlamaLoadNormal,
)
from benchmarks.referee.clients.tool_client import ToolClient
from truth.tools.aiperf import Aiperf
from truth.tools.endpoints import Endpoints
from truth.tools.genai_bench import GenaiBench
from truth.tools.guidellm import Guidellm
from truth.tools.inference_perf import InferencePerf
from truth.tools.vllm import Vllm

CLIENTS: tuple[Client, ...] = (
    LlamaLoad(),
    LlamaLoadNormal(),
    ToolClient(Vllm(), "vllm", "vllm"),
    ToolClient(Aiperf(), "aiperf", "aiperf"),
    ToolClient(Guidellm(), "guidellm", "guidellm"),
    ToolClient(InferencePerf(), "inference_perf", "inference-perf"),
    ToolClient(Endpoints(), "endpoints", "inference-endpoint"),
    ToolClient(GenaiBench(), "genai_bench", "genai-bench"),
    HttpUser(),
    K6(),
)

__all__ = ["CLIENTS", "Client", "ToolClient", "caches"]
