"""NVIDIA GPUs, by the driver's library (NVML). `python -m llama_load.telemetry.nvml` prints `memory_in_use` as JSON."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from llama_load.observed.telemetry_names import GPUS
from llama_load.telemetry.server_processes import ServerProcesses
from llama_load.telemetry.source import Source, SourceError, Value

LIBRARY = "libnvidia-ml.so.1"
MOST_GPUS = 64
# Reasons to lower the clocks: power cap, hardware slowdown, software and hardware thermal slowdown, power brake. Not: idle, clocks
# that were set, sync boost, display.
THROTTLED = 0x04 | 0x08 | 0x20 | 0x40 | 0x80
# A GPU with more than this in use has processes, even if NVML lists none (it does not see into other containers).
MOST_UNUSED_BYTES = 1 << 30


def has_nvml() -> bool:
    """Whether this machine has the driver's library. (Cheaper than importing pynvml to find out.)"""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return True


class NvidiaGpus(Source):
    """All NVIDIA GPUs of this machine. What a GPU does not support is left out."""

    name = GPUS

    def __init__(self, servers: ServerProcesses | None = None, memory_before: Mapping[str, int] | None = None) -> None:
        """`servers`: whose memory is shown apart from others'; `memory_before`: bytes in use before their start, by UUID. Raises
        SourceError where there is no driver."""
        import pynvml

        self._nvml: Any = pynvml
        self._servers = servers
        self._memory_before = memory_before or {}
        try:
            pynvml.nvmlInit()
            count = min(pynvml.nvmlDeviceGetCount(), MOST_GPUS)
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(count)]
        except pynvml.NVMLError as error:
            raise SourceError(f"no NVIDIA GPU can be read: {error}") from None
        self._unsupported: set[tuple[int, str]] = set()
        self._labels = [self._described(number) for number in range(count)]

    def sample(self) -> Iterator[Value]:
        """Memory, utilisation, power, energy, temperature, clocks, and the memory of the servers' processes."""
        taken: list[dict[int, int | None] | None] = []
        lost: SourceError | None = None
        alive = 0
        for number, labels in enumerate(self._labels):
            label = (("gpu", str(number)),)
            try:
                taken.append(self._processes(number))
                values = list(self._of_gpu(number))
            except SourceError as error:  # one that is lost must not take the others with it
                lost = error
                taken[number:] = [None]
                yield Value("gpu_up", 0.0, label)
                continue
            alive += 1
            yield Value("gpu_up", 1.0, label)
            yield Value("gpu_info", 1.0, labels)
            before = self._memory_before.get(dict(labels).get("uuid", ""))
            if before is not None:
                yield Value("gpu_memory_before_bytes", float(before), label)
            for metric, value in values:
                yield Value(metric, float(value), label)
        if lost is not None and not alive:
            raise lost
        yield from self._of_servers(taken)

    def _described(self, number: int) -> tuple[tuple[str, str], ...]:
        nvml, handle = self._nvml, self._handles[number]
        functions = {
            "gpu": lambda: str(number),
            "name": lambda: nvml.nvmlDeviceGetName(handle),
            "uuid": lambda: nvml.nvmlDeviceGetUUID(handle),
            "driver": nvml.nvmlSystemGetDriverVersion,
            "cuda": lambda: "{}.{}".format(*divmod(nvml.nvmlSystemGetCudaDriverVersion() // 10, 100)),
        }
        answers = {name: self._ask(number, name, function) for name, function in functions.items()}
        return tuple((name, value) for name, value in answers.items() if value is not None)

    def _ask(self, number: int, what: str, function: Callable[[], Any]) -> Any:
        """An answer of the driver; None, from then on, where the GPU does not support the question."""
        nvml = self._nvml
        if (number, what) in self._unsupported:
            return None
        try:
            return function()
        except (
            nvml.NVMLError_NotSupported,
            nvml.NVMLError_FunctionNotFound,
            nvml.NVMLError_NoPermission,
            nvml.NVMLLibraryMismatchError,  # an older driver has only an older version of the function
        ):
            self._unsupported.add((number, what))
        except nvml.NVMLError as error:
            raise SourceError(f"GPU {number} does not answer: {error}") from None
        return None

    def _of_gpu(self, number: int) -> Iterator[tuple[str, float]]:
        nvml, handle = self._nvml, self._handles[number]

        def ask(function: Callable[..., Any], *more: Any) -> Any:
            return self._ask(number, function.__name__ + repr(more), partial(function, handle, *more))

        if (memory := ask(nvml.nvmlDeviceGetMemoryInfo)) is not None:
            yield "gpu_memory_used_bytes", memory.used
            yield "gpu_memory_total_bytes", memory.total
        if (rates := ask(nvml.nvmlDeviceGetUtilizationRates)) is not None:
            yield "gpu_utilization_ratio", rates.gpu / 100
            yield "gpu_memory_utilization_ratio", rates.memory / 100
        if (milliwatts := ask(nvml.nvmlDeviceGetPowerUsage)) is not None:
            yield "gpu_power_watts", milliwatts / 1e3
        if (milliwatts := ask(nvml.nvmlDeviceGetEnforcedPowerLimit)) is not None:
            yield "gpu_power_limit_watts", milliwatts / 1e3
        if (millijoules := ask(nvml.nvmlDeviceGetTotalEnergyConsumption)) is not None:
            yield "gpu_energy_joules_total", millijoules / 1e3
        if (degrees := ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU)) is not None:
            yield "gpu_temperature_celsius", degrees
        if (megahertz := ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM)) is not None:
            yield "gpu_sm_clock_hertz", megahertz * 1e6
        if (megahertz := ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM)) is not None:
            yield "gpu_memory_clock_hertz", megahertz * 1e6
        if (reasons := ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons)) is not None:
            yield "gpu_throttle_reasons", reasons
            yield "gpu_throttled", bool(reasons & THROTTLED)

    def _processes(self, number: int) -> dict[int, int | None] | None:
        """Bytes of each process on a GPU (None: the driver does not say); None where it lists no processes."""
        nvml, handle = self._nvml, self._handles[number]
        functions = (nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetGraphicsRunningProcesses)
        lists = [self._ask(number, function.__name__, partial(function, handle)) for function in functions]
        if lists[0] is None:
            return None
        return {process.pid: process.usedGpuMemory for processes in reversed(lists) for process in processes or []}

    def _of_servers(self, taken: list[dict[int, int | None] | None]) -> Iterator[Value]:
        """Which GPUs the servers use, and how much of their memory; nothing where that is not known."""
        servers = self._servers
        if servers is None or not servers.pids:
            return
        memory = [
            [processes.get(pid, 0) if processes else 0 for pid in servers.pids if processes and pid in processes]
            for processes in taken
        ]
        if not any(memory) and not self._sees_all(taken):
            visible = self._visible(servers.environment("CUDA_VISIBLE_DEVICES"))
            if visible is not None:
                for number in range(len(self._handles)):
                    yield Value("gpu_in_use", float(number in visible), (("gpu", str(number)),))
            return
        for number, sizes in enumerate(memory):
            label = (("gpu", str(number)),)
            yield Value("gpu_in_use", float(bool(sizes)), label)
            known = [size for size in sizes if size is not None]
            if len(known) == len(sizes):
                yield Value("gpu_memory_server_bytes", float(sum(known)), label)

    def _sees_all(self, taken: list[dict[int, int | None] | None]) -> bool:
        """Whether NVML lists the processes of every GPU, with the numbers that they have here (not in another container)."""
        import psutil

        for number, processes in enumerate(taken):
            if processes is None or not all(map(psutil.pid_exists, processes)):
                return False
            memory = self._ask(number, "memory", partial(self._nvml.nvmlDeviceGetMemoryInfo, self._handles[number]))
            is_used = memory is not None and memory.used > MOST_UNUSED_BYTES
            if is_used and not processes:
                return False
        return True

    def _visible(self, text: str | None) -> set[int] | None:
        """The numbers of the GPUs in a CUDA_VISIBLE_DEVICES: numbers, or beginnings of UUIDs. None where it is not set."""
        if text is None:
            return None
        numbers = set()
        for word in filter(None, map(str.strip, text.split(","))):
            with suppress(ValueError):
                numbers.add(int(word))
                continue
            numbers |= {number for number, labels in enumerate(self._labels) if dict(labels).get("uuid", "").startswith(word)}
        return numbers


def memory_in_use() -> dict[str, int]:
    """Bytes in use on each GPU now, by its UUID; empty without a driver.

    Whoever starts a server asks before: what is taken then is not the server's, where its processes cannot be seen.
    """
    try:
        values = list(NvidiaGpus().sample()) if has_nvml() else []
    except (SourceError, ImportError):
        return {}
    uuids = {labels["gpu"]: labels["uuid"] for value in values if "uuid" in (labels := dict(value.labels))}
    used = {dict(value.labels)["gpu"]: int(value.value) for value in values if value.metric == "gpu_memory_used_bytes"}
    return {uuids[gpu]: taken for gpu, taken in used.items() if gpu in uuids}


if __name__ == "__main__":
    print(json.dumps(memory_in_use()))
