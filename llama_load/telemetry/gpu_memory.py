"""The memory in use on each NVIDIA GPU now, as JSON: `python -m llama_load.telemetry.gpu_memory`.

Whoever starts a server asks before: what is taken then is not the server's, where its processes cannot be seen.
"""

from __future__ import annotations

import json

from llama_load.telemetry.nvml import NvidiaGpus, has_nvml
from llama_load.telemetry.source import SourceError


def gpu_memory() -> dict[str, int]:
    """Bytes by the GPU's UUID; empty without a driver."""
    if not has_nvml():
        return {}
    try:
        values = list(NvidiaGpus().sample())
    except (SourceError, ImportError):
        return {}
    uuids = {labels["gpu"]: labels["uuid"] for value in values if "uuid" in (labels := dict(value.labels))}
    used = {dict(value.labels)["gpu"]: int(value.value) for value in values if value.metric == "gpu_memory_used_bytes"}
    return {uuids[gpu]: taken for gpu, taken in used.items() if gpu in uuids}


if __name__ == "__main__":
    print(json.dumps(gpu_memory()))
