"""What telemetry says of a GPU beside what another program reads from NVML in the same window.

.venv/bin/python -m benchmarks.gpu_telemetry http://127.0.0.1:8080 [-- flags of the run]

The server must be on this machine. Another process reads the driver five times a second: energy
from its counter (else from power), power, utilisation, and the memory of the server's processes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pynvml

from benchmarks.harness import heading
from llama_load.analysis.results.results import analyze
from llama_load.ground.processes import listening, with_descendants
from llama_load.ground.units import MIB, NS_PER_S
from llama_load.run_folder import load_run
from llama_load.run_folder.observed.window import Window, window_of

EVERY_S = 0.2
USUAL = ("-u", "8", "-t", "20s", "--at-end", "wait")


def main() -> None:
    """Run, and print the table."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("host", help="URL of the server")
    parser.add_argument("flags", nargs="*", help="of the run, after --")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        samples = sampled_while(arguments.host, folder, arguments.flags or USUAL)
        run = load_run(folder)
        told = analyze(run).telemetry
        window = window_of(run.records.measured())

    print(heading())
    for gpu in told.gpus:
        seen = of_window(samples[int(gpu.gpu)], window)
        print(f"GPU {gpu.gpu} {gpu.name}, {seen['samples']:.0f} samples of the driver")
        print("| figure | llama-load | NVML | difference |")
        print("|---|---:|---:|---:|")
        rows = (
            ("energy (J)", gpu.joules, seen["joules"]),
            ("power (W)", gpu.watts, seen["watts"]),
            ("utilisation", gpu.utilization, seen["utilization"]),
            ("VRAM of the server, peak (MiB)", gpu.vram_peak_mib, seen["mib"]),
        )
        for figure, one, other in rows:
            print(f"| {figure} | {row_of(one, other)} |")


def row_of(one: float | None, other: float) -> str:
    """Both values and their difference; n/a where one is missing."""
    if one is None or np.isnan(other):
        return f"{'n/a' if one is None else f'{one:.2f}'} | {other:.2f} | n/a"
    change = (one - other) / other if other else 0.0
    return f"{one:.2f} | {other:.2f} | {change:+.2%}"


def sampled_while(host: str, folder: Path, flags: Sequence[str]) -> list[list[Any]]:
    """Run against the server; the samples of each GPU meanwhile."""
    port = urlsplit(host).port or 80
    context = multiprocessing.get_context("spawn")
    over = context.Event()
    receiving, sending = context.Pipe(duplex=False)
    reader = context.Process(target=read_driver, args=(port, over, sending))
    reader.start()
    command = [sys.executable, "-m", "llama_load.cli.main", "run", host]
    command += [*flags, "--run-dir", str(folder), "--no-report-html"]
    try:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    finally:
        over.set()
    samples: list[list[Any]] = receiving.recv()
    reader.join()
    return samples


def read_driver(port: int, over: Event, sending: Any) -> None:
    """Until it is over: (instant, J, W, utilisation, MiB of the server) of each GPU."""
    pynvml.nvmlInit()
    handles = []
    for number in range(pynvml.nvmlDeviceGetCount()):
        handles.append(pynvml.nvmlDeviceGetHandleByIndex(number))
    samples: list[list[Any]] = [[] for _ in handles]
    while not over.wait(EVERY_S):
        pids = {process.pid for process in with_descendants(listening({port}))}
        for number, handle in enumerate(handles):
            joules = np.nan
            with suppress(pynvml.NVMLError):
                joules = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3
            watts = pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3
            rates = pynvml.nvmlDeviceGetUtilizationRates(handle)
            used = 0
            for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
                if process.pid in pids:
                    used += process.usedGpuMemory or 0
            instant = time.monotonic_ns()
            row = (instant, joules, watts, rates.gpu / 100, used / MIB)
            samples[number].append(row)
    sending.send(samples)


def of_window(samples: Sequence[Any], window: Window) -> dict[str, float]:
    """The driver's figures of a window."""
    instants, joules, watts, utilization, mib = np.array(samples).T
    ends = (window.begun_ns, window.ended_ns)
    inside = (instants >= ends[0]) & (instants <= ends[1])
    seconds = (ends[1] - ends[0]) / NS_PER_S
    mean_watts = float(watts[inside].mean())
    energy = mean_watts * seconds
    if not np.isnan(joules).any():
        energy = float(np.diff(np.interp(ends, instants, joules))[0])
        mean_watts = energy / seconds
    return {
        "samples": float(inside.sum()),
        "joules": energy,
        "watts": mean_watts,
        "utilization": float(utilization[inside].mean()),
        "mib": float(mib[inside].max()),
    }


if __name__ == "__main__":
    main()
