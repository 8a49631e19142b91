"""The runs whose outputs are kept: recorded, played by the search for flaws, simulated, and made of
rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from llama_load.loadgen.schedule.segments import LoadModel
from llama_load.run_folder import Run, load_run
from llama_load.run_folder.observed.record import RequestRecord, to_batch
from llama_load.run_folder.observed.records import Records
from scripts.record_printed import PRINTED
from tests.golden.made_runs import MADE
from tests.search.changes import effects_of
from tests.search.client import run_of
from tests.search.draw import drawn
from tests.search.loop import Loop
from tests.virtual_run import VirtualRun, staged

Make = Callable[[], Run]
# Without those whose connections are cut off: their ends are instants of the machine's clock.
SEEDS = tuple(seed for seed in range(1, 40) if seed not in (5, 17, 29))
# Enough for most checks, and a third of the time of a whole case.
REQUESTS = 48


def _recorded(folder: Path) -> Run:
    return replace(load_run(folder), path=Path("run"))


def _played(seed: int) -> Run:
    """A workload, a load, a server and up to three flaws and oddities."""
    case = replace(drawn(seed), requests=REQUESTS)
    effects = effects_of(case, flaws=True)
    return run_of(case, effects, Loop(case, effects).play())


class _KeepingRun(VirtualRun):
    """A simulated run that keeps its records."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.records: list[RequestRecord] = []
        super().__init__(*arguments, **named)

    def record_of(self, *arguments: Any) -> RequestRecord:
        record = super().record_of(*arguments)
        self.records.append(record)
        return record


def _simulated(model: LoadModel | None = None, **named: Any) -> Run:
    """By the controller and its phases, on a clock of its own."""
    run = _KeepingRun(model, **named).begin().over()
    table = pa.Table.from_batches([to_batch(run.records)])
    return Run(Path("run"), run.manifest, Records(table), recovered=False)


SIMULATED: dict[str, Make] = {
    "simulated: a closed loop": partial(_simulated, users=3, requests=24, warmup=3),
    "simulated: a run time": partial(_simulated, users=2, run_time_s=20.0),
    "simulated: stages": partial(
        _simulated, staged("1:8,2:8,4:16"), users=4, service_s=0.5
    ),
    "simulated: timed stages": partial(
        _simulated, staged("1:10s,3:10s"), users=3, service_s=0.5
    ),
    "simulated: arrivals": partial(
        _simulated, LoadModel(rate_rps=4.0), users=8, requests=32, service_s=0.7
    ),
    "simulated: late leases": partial(
        _simulated, users=4, requests=24, delivery_s=0.3, filling=4
    ),
}
RUNS: dict[str, Make] = {
    **{
        f"recorded: {folder.name}": partial(_recorded, folder)
        for folder in sorted(PRINTED.iterdir())
        if folder.is_dir()
    },
    **{f"played: {seed}": partial(_played, seed) for seed in SEEDS},
    **SIMULATED,
    **MADE,
}
