"""Builds a plan from the values of its file, whose shapes have been checked.

And checks what shapes cannot: names that must exist, lengths that agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from llama_load.ground.bundled import bundled
from llama_load.ground.errors import UsageError
from llama_load.lab.sweep.check_flags import check_names, check_values
from llama_load.lab.sweep.grammar import KINDS, LOAD, URL
from llama_load.lab.sweep.located import Faults, Node
from llama_load.lab.sweep.locustfile_flags import flag_fault, texts_of
from llama_load.lab.sweep.plan import (
    Column,
    FlagValues,
    Load,
    PerplexityPlan,
    Plan,
    PlannedServer,
    Setting,
    Table,
    Workload,
)
from llama_load.lab.sweep.server_spec import words
from llama_load.lab.sweep.setting_builder import SettingBuilder, url_fault
from llama_load.lab.sweep.tests_load import loads_of_tests
from llama_load.lab.sweep.values import value_fault

# Keys of a plan that are fields of `Plan` as they are.
PLAIN_KEYS = (
    "repeats",
    "order",
    "seed",
    "after-a-cell",
    "cache",
    "idle-s",
    "cell-time-limit-s",
    "title",
    "language",
)


class PlanBuilder:
    """Builds one plan; faults are noted at their lines."""

    def __init__(self, root: Node, raw: dict[str, Any], faults: Faults) -> None:
        """`raw`: the values below `root`."""
        self._root = root
        self._raw = raw
        self._faults = faults
        self._numbers: dict[
            int, int
        ] = {}  # of loads and workloads in the file, by their id
        named = []
        for workload in raw.get("workload") or []:
            if workload and workload.get("file"):
                named.append(Path(workload["file"]))
        self._locustfiles = texts_of(named)

    def plan(self, wrong: tuple[type[Exception], ...]) -> Plan:
        """The plan, if there are no faults.

        Errors of the classes `wrong` end a part of the checks, not all of them.
        """
        raw = self._raw
        servers: tuple[PlannedServer, ...] = ()
        workloads: tuple[Workload, ...] = ()
        tables: tuple[Table, ...] = ()
        settings: list[Setting] = []
        loads: list[Load] = []

        with suppress(*wrong):
            servers = tuple(
                self._server(name, server) for name, server in raw["servers"].items()
            )
        builder = SettingBuilder(self._root, servers, self._locustfiles, self._faults)
        for name, targets in (raw.get("vary") or {}).items():
            with suppress(*wrong):
                settings.append(builder.setting(name, targets))
        for number, load in enumerate(raw.get("load") or []):
            with suppress(*wrong):
                loads += self._loads(number, load)
        with suppress(*wrong):
            self._check_labels(servers, loads)
        with suppress(*wrong):
            workloads = self._workloads(raw.get("workload"))
        with suppress(*wrong):
            self._check_flags("flags", raw.get("flags", {}), "flags")

        check_names(self._root, self._faults)
        plan = Plan(
            servers,
            tuple(loads),
            workloads,
            tuple(settings),
            flags=raw.get("flags") or {},
        )
        with suppress(*wrong):
            check_values(self._root, plan, self._numbers, self._faults)

        names = set(raw.get("vary") or {})
        with suppress(*wrong):
            tables = self._tables(names)
        with suppress(*wrong):
            self._check_effects(names)

        perplexity = raw.get("perplexity")
        plain = {}
        for key in PLAIN_KEYS:
            if key in raw:
                plain[key] = raw[key]

        return replace(
            plan,
            perplexity=None if perplexity is None else PerplexityPlan(**perplexity),
            llama_bench_files=tuple(raw.get("rows-from", {}).get("llama-bench", [])),
            tables=tables,
            effects=tuple(raw.get("effects", [])),
            **_fields(plain),
        )

    def _fault(self, part: str, sentence: str, *path: str | int) -> None:
        """A fault at the deepest node that the path of names and places leads to."""
        self._faults.add(self._root.at(part, *path), sentence)

    def _check_labels(
        self, servers: Sequence[PlannedServer], loads: Sequence[Load]
    ) -> None:
        for server in servers:
            labels = []
            for load in loads:
                if load.is_for(server.name):
                    labels.append(load.label)

            for label in sorted(set(labels)):
                if labels.count(label) > 1:
                    self._fault(
                        "load",
                        f"two loads of {server.name} are labelled {label}; give each its own label",
                    )

    def _check_effects(self, settings: set[str]) -> None:
        for name in self._raw.get("effects", []):
            fault = value_fault(name, settings)
            if fault:
                self._fault("effects", f"effects: {fault}")

    def _check_flags(
        self, where: str, flags: FlagValues, part: str, *path: str | int
    ) -> None:
        for name in flags:
            fault = flag_fault(name, self._locustfiles)
            if fault:
                self._fault(part, f"{where}: {fault}", *path, name)

    def _server(self, name: str, raw: dict[str, Any]) -> PlannedServer:
        (kind,) = (key for key in raw if key in KINDS)
        where = f"servers.{name}.{kind}"
        if kind == URL:
            settings = {URL: raw[URL]}
            fault = url_fault(str(raw[URL]))
            if fault:
                self._fault("servers", f"{where} {fault}", name)
        else:
            settings = raw[kind]
            try:
                words(settings.get("args", []))
            except UsageError as error:
                self._fault("servers", f"{where}.args: {error}", name)

        server = PlannedServer(
            name, kind, settings, raw.get("label", name), raw.get("backend", "")
        )
        model = server.start.required_model if server.start else ""
        if model and "model" not in settings and not self._is_varied(name, "model"):
            self._fault("servers", f"{where}: model is missing; give {model}", name)
        return server

    def _is_varied(self, server: str, key: str) -> bool:
        """Whether a setting changes this key of the server, or of all."""
        for targets in self._raw.get("vary", {}).values():
            if f"{server}.{key}" in targets or key in targets:
                return True
        return False

    def _loads(self, number: int, raw: dict[str, Any]) -> list[Load]:
        """The loads of an entry: one, or one for each test."""
        where = f"load[{number + 1}]"
        flags: FlagValues = {
            name: value for name, value in raw.items() if name not in LOAD.keys
        }
        self._check_flags(where, flags, "load", number)
        for name in raw.get("servers", []):
            if name not in self._raw["servers"]:
                known = ", ".join(self._raw["servers"])
                self._fault(
                    "load", f"{where}: there is no server {name}; servers are {known}"
                )

        servers = tuple(raw.get("servers", ()))
        takes_s = raw.get("takes-s")
        if "tests" in raw:
            depths = raw.get("depth", [0])
            loads = loads_of_tests(
                raw["tests"], depths, flags, servers=servers, takes_s=takes_s
            )
        else:
            label = raw.get("label") or _load_label(flags, raw.get("search"))
            loads = [
                Load(
                    label,
                    flags,
                    search=raw.get("search"),
                    servers=servers,
                    takes_s=takes_s,
                )
            ]
        for load in loads:
            self._numbers[id(load)] = number
        return loads

    def _workloads(self, raw: list[dict[str, Any]] | None) -> tuple[Workload, ...]:
        workloads = []
        for number, entry in enumerate(raw or [{"file": "sharegpt_chat"}]):
            path = Path(entry["file"])
            packed = bundled("locustfiles") / f"{path.stem}.py"
            is_packed = "/" not in entry["file"] and packed.is_file()
            if not path.is_file() and not is_packed:
                known = ", ".join(
                    sorted(file.stem for file in bundled("locustfiles").glob("*.py"))
                )
                self._fault(
                    "workload",
                    f"workload: there is no locustfile {path}; "
                    f"give the path of one, or one of {known}",
                )

            flags = entry.get("flags", {})
            self._check_flags("workload", flags, "workload", number, "flags")
            file = path if path.is_file() else packed
            workload = Workload(str(file), entry.get("label", path.stem), flags)
            self._numbers[id(workload)] = number
            workloads.append(workload)
        return tuple(workloads)

    def _tables(self, settings: set[str]) -> tuple[Table, ...]:
        tables = []
        for number, raw in enumerate(self._raw.get("tables", []), 1):
            names = [column["value"] for column in raw["columns"]]
            names += [*raw.get("where", {}), *raw.get("sort-by", [])]
            if "group-by" in raw:
                names.append(raw["group-by"])
            for name in names:
                fault = value_fault(name, settings, raw.get("rows", ""))
                if fault:
                    self._fault("tables", f"tables[{number}]: {fault}")

            columns = tuple(Column(**_fields(column)) for column in raw["columns"])
            sort_by = tuple(raw.get("sort-by", ()))
            tables.append(
                Table(**_fields(raw) | {"columns": columns, "sort_by": sort_by})
            )
        return tuple(tables)


def _load_label(flags: FlagValues, search: Mapping[str, Any] | None) -> str:
    """`u=8 num-prompts=64`."""
    parts = []
    if search is not None:
        parts.append(f"capacity within {' '.join(search['goodput'])}")
    for name, values in flags.items():
        value = ",".join(map(str, values))
        if value == "True":
            parts.append(name)
        elif values != [""]:
            parts.append(f"{name}={value}")
    return " ".join(parts) or "default"


def _fields(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a plan as names of fields."""
    fields = {}
    for key, value in raw.items():
        fields[key.replace("-", "_")] = value

    return fields
