"""The results that are kept in truth/results: a column per client, and the figures of its cases."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.referee.clients import CLIENTS, REPOSITORY
from truth.columns import NOT_JUDGED, CaseResult, Column, columns_of
from truth.matching import METRICS
from truth.rules.times import DISTRIBUTIONS, error_of

FOLDER = REPOSITORY / "truth" / "results"
LATENCIES = tuple(map(str.upper, METRICS))
OURS = CLIENTS[0].title
# Files of earlier commits of llama-load: `earlier-COMMIT-….json`.
EARLIER = "earlier"
Runs = Sequence[float]


@dataclass(frozen=True, slots=True)
class Cell:
    """What a client did in a case. Figures are lists with the value of each run."""

    client: str
    case: CaseResult

    @property
    def verdict(self) -> str:
        """In a word."""
        return str(self.case["verdict"])

    @property
    def is_ours(self) -> bool:
        """Of llama-load, with whatever flags."""
        return self.client.startswith(OURS)

    def errors_of(self, latency: str) -> tuple[Runs, Runs]:
        """P50 and p99 of |client - server|, ms. Empty: the client reports none."""
        rows = self._values(error_of(latency))
        return [row[0] for row in rows], [row[1] for row in rows]

    def is_matched(self, latency: str) -> bool:
        """Whether requests were compared one by one, and not distributions."""
        seen: str = self._finding(error_of(latency)).get("seen", "")
        return DISTRIBUTIONS not in seen

    def figure(self, name: str) -> Runs:
        """The only value of a finding."""
        return [row[0] for row in self._values(name)]

    def cost(self, name: str) -> Runs:
        """A field of truth.usage.Cost; empty in results of an earlier version."""
        return [float(cost[name]) for cost in self.case.get("costs", ())]

    def _finding(self, name: str) -> dict[str, Any]:
        for each in self.case["findings"]:
            if each["figure"] == name:
                return dict(each)
        return {}

    def _values(self, name: str) -> Sequence[Runs]:
        values: Sequence[Runs] = self._finding(name).get("values", [])
        return values


def kept_columns() -> dict[str, Column]:
    """The clients that have results, by their titles."""
    columns: dict[str, Column] = {}
    for client in CLIENTS:
        results = _results_of(client.name)
        if results:
            (columns[client.title],) = columns_of(results)
    return columns


def columns_of_truth() -> list[Column]:
    """Those of truth's own table: each client with the flags that truth gives it, and earlier
    commits of llama-load."""
    results: list[dict[str, Any]] = []
    for client in CLIENTS:
        if not client.env:
            results += _results_of(client.name)
    return columns_of([*results, *_results_of(EARLIER)])


def _results_of(name: str) -> list[dict[str, Any]]:
    files = sorted(FOLDER.glob(f"{name}-*.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in files]


def cells_of(columns: Mapping[str, Column], number: str) -> list[Cell]:
    """Of a case, those that can be judged. A case that is void or was not asked says nothing of its
    client."""
    cells: list[Cell] = []
    for client, column in columns.items():
        case = column.cases.get(number)
        if case and case["verdict"] not in NOT_JUDGED:
            cells.append(Cell(client, case))
    return cells
