"""The clients that the referee judges."""

from benchmarks.referee.clients.aiperf import Aiperf
from benchmarks.referee.clients.client import Client, NoResult, Result, Seen, caches
from benchmarks.referee.clients.endpoints import Endpoints
from benchmarks.referee.clients.genai_bench import GenaiBench
from benchmarks.referee.clients.guidellm import Guidellm
from benchmarks.referee.clients.inference_perf import InferencePerf
from benchmarks.referee.clients.k6 import K6
from benchmarks.referee.clients.locust_clients import HttpUser, LlamaLoad, LlamaLoadNormal
from benchmarks.referee.clients.vllm_bench import VllmBench

CLIENTS: tuple[Client, ...] = (
    LlamaLoad(),
    LlamaLoadNormal(),
    VllmBench(),
    Aiperf(),
    Guidellm(),
    InferencePerf(),
    Endpoints(),
    GenaiBench(),
    HttpUser(),
    K6(),
)

__all__ = ["CLIENTS", "Client", "NoResult", "Result", "Seen", "caches"]
