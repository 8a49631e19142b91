"""A plan as it was read: servers, settings, loads, workloads, and the tables that it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from llama_load.ground.languages import ENGLISH
from llama_load.lab.sweep.grammar import CELLS, INTERLEAVED, LEAVE, RESTART, STYLES
from llama_load.servers.kinds import STARTS, ServerStart

FlagValues = dict[str, list[Any]]
OF_STARTS = (
    "server_start_s",
    "cold_start_s",
)  # values that contain the start of a server


@dataclass(frozen=True, slots=True)
class PlannedServer:
    """A server: its kind (a key of `grammar.KINDS`) and that kind's settings."""

    name: str
    kind: str
    settings: Mapping[str, Any]
    label: str
    backend: str = ""

    @property
    def start(self) -> ServerStart | None:
        """How it is started; None: it runs already, and the plan has its URL."""
        return STARTS.get(self.kind)


@dataclass(frozen=True, slots=True)
class Workload:
    """A locustfile with its flags."""

    file: str
    label: str
    flags: FlagValues = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Load:
    """Flags of locust that set the load.

    `test`: pp512 or tg128, with `depth` tokens before it; it has a workload of its own.
    """

    label: str
    flags: FlagValues
    test: str = ""
    depth: int = 0
    # the capacity is searched: see `grammar.SEARCH`
    search: Mapping[str, Any] | None = None
    servers: tuple[str, ...] = ()  # only these; () is all
    takes_s: float | None = None

    def is_for(self, server: str) -> bool:
        """Whether the server of this name gets this load."""
        return not self.servers or server in self.servers


@dataclass(frozen=True, slots=True)
class Target:
    """What a setting changes.

    A field of a server (or of all, if `server` is empty), or a flag of locust.
    """

    server: str
    path: tuple[str, ...]  # ("model",), ("args",), ("env", "NAME") or ("flags", "NAME")
    is_added: bool  # to what is there


@dataclass(frozen=True, slots=True)
class Setting:
    """A varied setting: its values with their labels, and what each target becomes.

    `values` also replace {name} in texts.
    """

    name: str
    labels: tuple[str, ...]
    values: tuple[Any, ...]
    targets: tuple[tuple[Target, tuple[Any, ...]], ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    value: str
    name: str = ""
    best: str = ""
    decimals: int | None = None
    scale: float = 1.0
    unit: str = ""
    spread: bool | None = None
    align: str = ""
    width: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    where: Mapping[str, list[str]] = field(default_factory=dict)
    loss_against: Mapping[str, list[str]] = field(default_factory=dict)
    cost_against: Mapping[str, list[str]] = field(default_factory=dict)
    difference_to: Mapping[str, list[str]] = field(default_factory=dict)

    @property
    def against(self) -> Mapping[str, list[str]]:
        """The settings of the cells that it is compared with; empty: none."""
        return self.loss_against or self.cost_against


@dataclass(frozen=True, slots=True)
class Table:
    """A table: which rows, which columns, which layout."""

    columns: tuple[Column, ...]
    title: str = ""
    rows: str = CELLS
    where: Mapping[str, list[str]] = field(default_factory=dict)
    group_by: str = ""
    sort_by: tuple[str, ...] = ()
    style: str = STYLES[0]
    note: str = ""


@dataclass(frozen=True, slots=True)
class PerplexityPlan:
    """What to score, and how."""

    text: str = ""
    context: int = 512
    stride: int | None = None
    binary: str = ""
    args: str = ""  # further flags of the program


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole plan."""

    servers: tuple[PlannedServer, ...]
    loads: tuple[Load, ...]
    workloads: tuple[Workload, ...]
    settings: tuple[Setting, ...] = ()
    repeats: int = 1
    order: str = INTERLEAVED
    seed: int = 0
    flags: FlagValues = field(default_factory=dict)
    after_a_cell: str = RESTART
    cache: str = LEAVE
    idle_s: float = 30.0
    cell_time_limit_s: float = 7200.0
    perplexity: PerplexityPlan | None = None
    llama_bench_files: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    effects: tuple[str, ...] = ()
    title: str = ""
    language: str = ENGLISH

    @property
    def setting_names(self) -> list[str]:
        """The names of all settings that vary."""
        return [setting.name for setting in self.settings]

    @property
    def times_starts(self) -> bool:
        """Whether a table shows how long servers take to start."""
        for table in self.tables:
            if any(column.value in OF_STARTS for column in table.columns):
                return True
        return False

    @property
    def has_tests(self) -> bool:
        """Whether a load is a test of llama-bench."""
        return any(load.test for load in self.loads)
