"""The objectives of a search: for all requests, or for those of one workload, and which requests of a run met them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.errors import UsageError
from llama_load.metrics.definitions import BY_KEY
from llama_load.metrics.slo import Slo, met, parse_slo
from llama_load.observed.record import OK
from llama_load.observed.records import Records


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
        ms = self.slo.limit_ms
        return f"{self.name} {f'{ms / 1e3:g} s' if ms >= 1000 else f'{ms:g} ms'}"


@dataclass(frozen=True, slots=True)
class Judged:
    """Requests in order of start: whether each met all its objectives; for each objective the share that met it, and the percentile
    of its metric at the share asked for, ms (None without a value)."""

    good: NDArray[np.bool_]
    shares: dict[str, float]
    reached_ms: dict[str, float | None]


def parse_objectives(texts: Sequence[str]) -> tuple[Objective, ...]:
    """Read `ttft:2000 tpot:100` and `document=ttft:8000`. UsageError names what is wrong."""
    objectives = []
    for word in (word for text in texts for word in text.split()):
        workload, is_own, objective = word.rpartition("=")
        try:
            objectives.append(Objective(parse_slo(objective), workload if is_own else ""))
        except ValueError as error:
            raise UsageError(f"{error}; an objective of one workload is WORKLOAD=METRIC:MILLISECONDS") from None
    if len({(parsed.workload, parsed.slo.metric) for parsed in objectives}) < len(objectives):
        raise UsageError("--goodput has two objectives for the same metric; give one of them")
    if not objectives:
        raise UsageError("a search needs objectives, such as --goodput 'ttft:2000 tpot:100'")
    return tuple(objectives)


def judge(records: Records, objectives: Sequence[Objective], share: float) -> Judged:
    """Judge measured requests. A failed one meets nothing; a cancelled one is left out. An objective of a workload replaces the
    general one of the same metric there. UsageError: a metric was not measured, or a workload is not in the run."""
    ended = records.where(records.equals("status", OK) | records.is_failed())
    ended = ended.take(np.argsort(ended.instants("started_mono_ns"), kind="stable"))
    is_ok = ended.equals("status", OK)
    good = is_ok.copy()
    shares, reached = {}, {}
    own_metrics = {(objective.workload, objective.slo.metric) for objective in objectives if objective.workload}
    names = np.array([str(name) for name in ended.strings("workload")])
    for objective in objectives:
        metric = objective.slo.metric
        if objective.workload:
            rows = names == objective.workload
            if not rows.any() and len(rows):
                known = ", ".join(sorted(set(names.tolist())))
                raise UsageError(f"no request is of the workload {objective.workload!r}; the run has {known}")
        else:
            rows = np.array([(name, metric) not in own_metrics for name in names.tolist()], dtype=np.bool_)
        chosen = ended.where(rows & is_ok) if (rows & is_ok).any() else None
        meets = np.zeros(len(good), dtype=np.bool_)
        if chosen is not None:
            met_rows = met(chosen, objective.slo)
            if met_rows is None:
                raise UsageError(
                    f"the run has no {BY_KEY[metric].name}, so {objective.slo.text} cannot be judged (see --no-stream)"
                )
            meets[rows & is_ok] = met_rows
        good &= meets | ~rows
        shares[objective.text] = float(meets[rows].mean()) if rows.any() else 1.0
        values = np.empty(0) if chosen is None else BY_KEY[metric].of_each(chosen)
        values = values[~np.isnan(values)]
        reached[objective.text] = float(np.quantile(values, share)) if len(values) else None
    return Judged(good, shares, reached)
