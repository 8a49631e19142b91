"""The meters of the live page."""

from __future__ import annotations

from collections import deque

from llama_load.loadgen.run.live_meters import present_values
from llama_load.loadgen.run.live_telemetry import LiveSeries


def gpu(source: str, number: str, watts: float, **labels: str) -> list[LiveSeries]:
    """What a source samples of a GPU."""
    own = {"gpu": number}
    return [
        LiveSeries(source, "gpu_info", own | labels, deque([(0, 1.0)])),
        LiveSeries(source, "gpu_power_watts", own, deque([(0, watts)])),
    ]


def test_a_gpu_seen_twice_is_shown_once() -> None:
    one = [
        *gpu("gpus", "0", 300, uuid="GPU-a"),
        *gpu("http://x/metrics", "0", 301, uuid="GPU-a"),
    ]
    assert present_values(one) == {"GPU power (W): GPU 0": 300}
    two = present_values([*one, *gpu("http://y/metrics", "0", 200, uuid="GPU-b")])
    assert two == {
        "GPU power (W): GPU 0 of gpus": 300,
        "GPU power (W): GPU 0 of http://y/metrics": 200,
    }
