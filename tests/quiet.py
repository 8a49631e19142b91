"""Whether the machine was quiet while something was timed on it.

A virtual machine stands still for up to seconds at times, and other processes may need its CPUs.
Such a run says nothing about the accuracy of the client, so it may be repeated; a run on a quiet
machine may not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

import psutil

from llama_load.lab.sweep.machine_watch import own_cpu_s

T = TypeVar("T")

TRIES = 3
LOOK_EVERY_S = 0.005
# A thread that only sleeps is back within 20 ms, also while a client and its server keep two CPUs
# busy.
PAUSE_S = 0.1
# Cores; what the kernel notes of the whole machine and of its processes differs by up to a tenth.
STOLEN = 0.05
OTHERS = 0.3


class Watch:
    """Looks at the machine from `with` to its end; then `disturbances` says what was not quiet, a
    sentence each."""

    def __init__(self) -> None:
        self.disturbances: list[str] = []
        self._pause_s = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._begun_s, self._stolen_s, self._others_s = (
            time.monotonic(),
            stolen_s(),
            others_s(),
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        took_s = time.monotonic() - self._begun_s
        stolen, others = (
            (stolen_s() - self._stolen_s) / took_s,
            (others_s() - self._others_s) / took_s,
        )
        if self._pause_s > PAUSE_S:
            self.disturbances.append(
                f"the machine stood still for {self._pause_s:.2f} s"
            )
        if stolen > STOLEN:
            self.disturbances.append(f"the hypervisor took {stolen:.2f} cores away")
        if others > OTHERS:
            self.disturbances.append(f"other processes used {others:.2f} cores")

    def _look(self) -> None:
        before_s = time.monotonic()
        while not self._over.wait(LOOK_EVERY_S):
            now_s = time.monotonic()
            self._pause_s = max(self._pause_s, now_s - before_s - LOOK_EVERY_S)
            before_s = now_s


def stolen_s() -> float:
    """CPU time that the hypervisor gave to others so far, s."""
    return float(getattr(psutil.cpu_times(), "steal", 0.0))


def others_s() -> float:
    """CPU time of all processes so far but this one and its descendants, s."""
    times = psutil.cpu_times()
    busy = sum(
        getattr(times, name, 0.0)
        for name in ("user", "nice", "system", "irq", "softirq")
    )
    return busy - own_cpu_s()


def undisturbed(
    run: Callable[[Path], T], check: Callable[[T], None], folder: Path
) -> None:
    """Check what was timed in a run; repeat it if the check fails and the machine was not quiet
    meanwhile.

    What must hold on any machine is asserted in `run`, which is never repeated because of its own
    failure.
    """
    for number in range(1, TRIES + 1):
        with Watch() as watch:
            done = run(folder / f"run-{number}")
        try:
            check(done)
            return
        except AssertionError as error:
            error.add_note(
                f"attempt {number} of {TRIES}: {'; '.join(watch.disturbances) or 'the machine was quiet'}"
            )
            if number == TRIES or not watch.disturbances:
                raise
