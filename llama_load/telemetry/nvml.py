"""NVIDIA GPUs, by the driver's library (NVML).

`python -m llama_load.telemetry.nvml` prints `memory_in_use` as JSON.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from llama_load.run_folder.observed.telemetry_names import GPUS
from llama_load.telemetry.server_processes import ServerProcesses
from llama_load.telemetry.source import Source, SourceError, Value

LIBRARY = "libnvidia-ml.so.1"
MOST_GPUS = 64
# Reasons to lower the clocks: power cap, hardware slowdown, software and hardware thermal slowdown,
# power brake. Not: idle, clocks that were set, sync boost, display.
THROTTLED = 0x04 | 0x08 | 0x20 | 0x40 | 0x80
# A GPU with more than this in use has processes, even if NVML lists none: it does not see into
# other containers.
MOST_UNUSED_BYTES = 1 << 30

# Bytes of each process on a GPU, by its id; None: the driver does not say.
ProcessMemory = dict[int, int | None]


def has_nvml() -> bool:
    """Whether this machine has the driver's library."""
    try:  # cheaper than to import pynvml
        ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return True


class NvidiaGpus(Source):
    """All NVIDIA GPUs of this machine. What a GPU does not support is left out."""

    name = GPUS

    def __init__(
        self,
        servers: ServerProcesses | None = None,
        memory_before: Mapping[str, int] | None = None,
    ) -> None:
        """`servers`: whose memory is shown apart from others'. SourceError: there is no driver.

        `memory_before`: bytes in use before their start, by UUID.
        """
        import pynvml

        self._nvml: Any = pynvml
        self._servers = servers
        self._memory_before = memory_before or {}
        try:
            pynvml.nvmlInit()
            count = min(pynvml.nvmlDeviceGetCount(), MOST_GPUS)
            self._handles = [
                pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(count)
            ]
        except pynvml.NVMLError as error:
            raise SourceError(f"no NVIDIA GPU can be read: {error}") from None
        self._unsupported: set[tuple[int, str]] = set()
        # When a process last computed on each GPU, by the driver's clock.
        self._seen_us: dict[int, int] = {}
        self._labels = [self._described(number) for number in range(count)]

    def sample(self) -> Iterator[Value]:
        """What each GPU reports, and the memory of the servers' processes."""
        taken: list[ProcessMemory | None] = []
        lost: SourceError | None = None
        alive = 0
        for number, labels in enumerate(self._labels):
            label = (("gpu", str(number)),)
            try:
                taken.append(self._processes(number))
                values = list(self._of_gpu(number))
            except (
                SourceError
            ) as error:  # one that is lost must not take the others with it
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
        """The labels of `gpu_info`."""
        nvml = self._nvml
        handle = self._handles[number]

        def cuda_version() -> str:
            tenths = nvml.nvmlSystemGetCudaDriverVersion() // 10  # 12040: 12.4
            return f"{tenths // 100}.{tenths % 100}"

        functions = {
            "name": partial(nvml.nvmlDeviceGetName, handle),
            "uuid": partial(nvml.nvmlDeviceGetUUID, handle),
            "driver": nvml.nvmlSystemGetDriverVersion,
            "cuda": cuda_version,
        }
        labels = [("gpu", str(number))]
        for name, function in functions.items():
            value = self._ask(number, name, function)
            if value is not None:
                labels.append((name, value))
        return tuple(labels)

    def _ask(self, number: int, what: str, function: Callable[[], Any]) -> Any:
        """An answer of the driver; None where the GPU does not support the question.

        It is not asked that again.
        """
        nvml = self._nvml
        if (number, what) in self._unsupported:
            return None
        try:
            return function()
        except (
            nvml.NVMLError_NotSupported,
            nvml.NVMLError_FunctionNotFound,
            nvml.NVMLError_NoPermission,
            # an older driver has only an older version of the function
            nvml.NVMLLibraryMismatchError,
        ):
            self._unsupported.add((number, what))
        except nvml.NVMLError as error:
            raise SourceError(f"GPU {number} does not answer: {error}") from None
        return None

    def _of_gpu(self, number: int) -> Iterator[tuple[str, float]]:
        nvml = self._nvml

        def ask(function: Callable[..., Any], *more: Any) -> Any:
            return self._ask_gpu(number, function, *more)

        memory = ask(nvml.nvmlDeviceGetMemoryInfo)
        if memory is not None:
            yield "gpu_memory_used_bytes", memory.used
            yield "gpu_memory_total_bytes", memory.total

        rates = ask(nvml.nvmlDeviceGetUtilizationRates)
        if rates is not None:
            yield "gpu_utilization_ratio", rates.gpu / 100
            yield "gpu_memory_utilization_ratio", rates.memory / 100

        power_mw = ask(nvml.nvmlDeviceGetPowerUsage)
        if power_mw is not None:
            yield "gpu_power_watts", power_mw / 1e3
        limit_mw = ask(nvml.nvmlDeviceGetEnforcedPowerLimit)
        if limit_mw is not None:
            yield "gpu_power_limit_watts", limit_mw / 1e3
        energy_mj = ask(nvml.nvmlDeviceGetTotalEnergyConsumption)
        if energy_mj is not None:
            yield "gpu_energy_joules_total", energy_mj / 1e3

        degrees = ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU)
        if degrees is not None:
            yield "gpu_temperature_celsius", degrees

        sm_mhz = ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM)
        if sm_mhz is not None:
            yield "gpu_sm_clock_hertz", sm_mhz * 1e6
        memory_mhz = ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM)
        if memory_mhz is not None:
            yield "gpu_memory_clock_hertz", memory_mhz * 1e6

        reasons = ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        if reasons is not None:
            yield "gpu_throttle_reasons", reasons
            yield "gpu_throttled", bool(reasons & THROTTLED)

    def _ask_gpu(self, number: int, function: Callable[..., Any], *more: Any) -> Any:
        """What a function of the driver says of a GPU; None where that is not supported."""
        what = function.__name__ + repr(more)
        return self._ask(number, what, partial(function, self._handles[number], *more))

    def _processes(self, number: int) -> ProcessMemory | None:
        """The memory of each process on a GPU; None where the driver lists no processes."""
        nvml = self._nvml
        compute = self._ask_gpu(number, nvml.nvmlDeviceGetComputeRunningProcesses)
        graphics = self._ask_gpu(number, nvml.nvmlDeviceGetGraphicsRunningProcesses)
        if compute is None:
            return None

        # Of a process in both lists the compute list counts.
        processes = [*(graphics or ()), *compute]
        return {process.pid: process.usedGpuMemory for process in processes}

    def _of_servers(self, taken: list[ProcessMemory | None]) -> Iterator[Value]:
        """Which GPUs the servers use, and how much of their memory; nothing if that is not known.

        `taken`: the memory of processes on each GPU.
        """
        servers = self._servers
        if servers is None or not servers.pids:
            return

        sizes_by_gpu = [_sizes_of(servers.pids, processes or {}) for processes in taken]
        if any(sizes_by_gpu) or self._sees_all(taken):
            for number, sizes in enumerate(sizes_by_gpu):
                label = (("gpu", str(number)),)
                yield Value("gpu_in_use", float(bool(sizes)), label)
                known = [size for size in sizes if size is not None]
                if len(known) == len(sizes):
                    yield Value("gpu_memory_server_bytes", float(sum(known)), label)
                others = self._others(number, servers.pids) if sizes else None
                if others is not None:
                    yield Value("gpu_others_ratio", others, label)
            return

        visible = self._visible(servers.environment("CUDA_VISIBLE_DEVICES"))
        if visible is not None:
            for number in range(len(self._handles)):
                label = (("gpu", str(number)),)
                yield Value("gpu_in_use", float(number in visible), label)

    def _others(self, number: int, pids: Sequence[int]) -> float | None:
        """The part of the time since the last look in which processes that are none of the servers'
        computed on a GPU, 0 to 1; None where the driver does not tell."""
        nvml = self._nvml

        seen_us = self._seen_us.get(number, 0)

        def computing(since_us: int = seen_us) -> Any:
            try:
                return nvml.nvmlDeviceGetProcessUtilization(
                    self._handles[number], since_us
                )
            except nvml.NVMLError as error:
                # Nothing computed since.
                if error.value in (nvml.NVML_SUCCESS, nvml.NVML_ERROR_NOT_FOUND):
                    return ()
                raise

        samples = self._ask(number, "computing", computing)
        if samples is None:
            return None

        share = 0.0
        for sample in samples:
            seen_us = max(seen_us, int(sample.timeStamp))
            if sample.pid not in pids:
                share += sample.smUtil / 100
        self._seen_us[number] = seen_us
        return min(1.0, share)

    def _sees_all(self, taken: list[ProcessMemory | None]) -> bool:
        """Whether NVML lists the processes of every GPU, with the numbers that they have here.

        In a container it may list those of others, or none.
        """
        import psutil

        for number, processes in enumerate(taken):
            if processes is None or not all(map(psutil.pid_exists, processes)):
                return False
            memory = self._ask_gpu(number, self._nvml.nvmlDeviceGetMemoryInfo)
            is_used = memory is not None and memory.used > MOST_UNUSED_BYTES
            if is_used and not processes:
                return False
        return True

    def _visible(self, text: str | None) -> set[int] | None:
        """The numbers of the GPUs in a CUDA_VISIBLE_DEVICES; None where it is not set.

        It holds numbers, or beginnings of UUIDs.
        """
        if text is None:
            return None

        visible = set()
        for part in text.split(","):
            word = part.strip()
            if not word:
                continue
            try:
                visible.add(int(word))
            except ValueError:
                visible |= self._numbers_of(word)
        return visible

    def _numbers_of(self, uuid: str) -> set[int]:
        """The GPUs whose UUID begins like this."""
        numbers = set()
        for number, labels in enumerate(self._labels):
            if dict(labels).get("uuid", "").startswith(uuid):
                numbers.add(number)
        return numbers


def _sizes_of(pids: Sequence[int], processes: ProcessMemory) -> list[int | None]:
    """The memory of those of these processes that a GPU has."""
    return [processes[pid] for pid in pids if pid in processes]


def memory_in_use() -> dict[str, int]:
    """Bytes in use on each GPU now, by its UUID; empty without a driver.

    Whoever starts a server asks before: what is taken then is not the server's, where its processes
    cannot be seen.
    """
    try:
        values = list(NvidiaGpus().sample()) if has_nvml() else []
    except (SourceError, ImportError):
        return {}

    uuids = {}
    used = {}
    for value in values:
        labels = dict(value.labels)
        if "uuid" in labels:
            uuids[labels["gpu"]] = labels["uuid"]
        if value.metric == "gpu_memory_used_bytes":
            used[labels["gpu"]] = int(value.value)
    return {uuids[gpu]: taken for gpu, taken in used.items() if gpu in uuids}


if __name__ == "__main__":
    print(json.dumps(memory_in_use()))
