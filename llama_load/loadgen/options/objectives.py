"""The objectives of a search, of all requests or of one workload, and which requests met them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.ground.errors import UsageError
from llama_load.run_folder.observed.record import OK
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.vocabulary.definitions import BY_KEY
from llama_load.run_folder.vocabulary.slo import Slo, met, parse_slo


@dataclass(frozen=True, slots=True)
class Objective:
    """An objective; `workload` is empty for one of all requests."""

    slo: Slo
    workload: str = ""

    @property
    def name(self) -> str:
        """For people: TTFT, or TTFT of document."""
        name = BY_KEY[self.slo.metric].name
        return f"{name} of {self.workload}" if self.workload else name

    @property
    def text(self) -> str:
        """For people: TTFT 2 s, TPOT 100 ms."""
        limit_ms = self.slo.limit_ms
        if limit_ms >= 1000:
            return f"{self.name} {limit_ms / 1e3:g} s"
        return f"{self.name} {limit_ms:g} ms"


@dataclass(frozen=True, slots=True)
class Judged:
    """Requests in order of start: whether each met all its objectives; for each objective the share
    that met it, and the percentile of its metric at the share asked for, ms (None without a
    value)."""

    good: NDArray[np.bool_]
    shares: dict[str, float]
    reached_ms: dict[str, float | None]


def parse_objectives(texts: Sequence[str]) -> tuple[Objective, ...]:
    """Read `ttft:2000 tpot:100` and `document=ttft:8000`. UsageError names what is wrong."""
    objectives = []
    for word in " ".join(texts).split():
        workload, is_own, objective = word.rpartition("=")
        try:
            slo = parse_slo(objective)
        except ValueError as error:
            raise UsageError(
                f"{error}; an objective of one workload is WORKLOAD=METRIC:MILLISECONDS"
            ) from None
        objectives.append(Objective(slo, workload if is_own else ""))

    metrics = {(parsed.workload, parsed.slo.metric) for parsed in objectives}
    if len(metrics) < len(objectives):
        raise UsageError(
            "--goodput has two objectives for the same metric; give one of them"
        )
    if not objectives:
        raise UsageError(
            "a search needs objectives, such as --goodput 'ttft:2000 tpot:100'"
        )
    return tuple(objectives)


def judge(records: Records, objectives: Sequence[Objective], share: float) -> Judged:
    """Judge measured requests. A failed one meets nothing; a cancelled one is left out. An
    objective of a workload replaces the general one of the same metric there. UsageError: a metric
    was not measured, or a workload is not in the run."""
    ended = records.where(records.equals("status", OK) | records.is_failed())
    ended = ended.take(np.argsort(ended.instants("started_mono_ns"), kind="stable"))
    is_ok = ended.equals("status", OK)
    good = is_ok.copy()
    shares: dict[str, float] = {}
    reached: dict[str, float | None] = {}
    names = np.array([str(name) for name in ended.strings("workload")])
    for objective in objectives:
        rows = _rows_of(objective, names, objectives)
        chosen = ended.where(rows & is_ok)
        meets = np.zeros(len(good), dtype=np.bool_)
        if len(chosen):
            meets[rows & is_ok] = _met(chosen, objective)
        good &= meets | ~rows

        shares[objective.text] = float(meets[rows].mean()) if rows.any() else 1.0
        reached[objective.text] = None
        values = BY_KEY[objective.slo.metric].of_each(chosen)
        values = values[~np.isnan(values)]
        if len(values):
            reached[objective.text] = float(np.quantile(values, share))
    return Judged(good, shares, reached)


def _rows_of(
    objective: Objective, names: NDArray[np.str_], objectives: Sequence[Objective]
) -> NDArray[np.bool_]:
    """Which requests an objective is about, by the names of their workloads."""
    if objective.workload:
        rows = names == objective.workload
        if len(rows) and not rows.any():
            known = ", ".join(sorted(set(names.tolist())))
            raise UsageError(
                f"no request is of the workload {objective.workload!r}; the run has {known}"
            )
        return np.asarray(rows)

    metric = objective.slo.metric
    with_own = [
        own.workload for own in objectives if own.workload and own.slo.metric == metric
    ]
    return ~np.isin(names, with_own)


def _met(chosen: Records, objective: Objective) -> NDArray[np.bool_]:
    """Which of these answered requests met it."""
    met_rows = met(chosen, objective.slo)
    if met_rows is None:
        name = BY_KEY[objective.slo.metric].name
        raise UsageError(
            f"the run has no {name}, so {objective.slo.text} cannot be judged (see --no-stream)"
        )
    return met_rows
