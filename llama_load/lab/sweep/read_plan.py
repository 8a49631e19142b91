"""From a plan's file to a `Plan`: everything is checked before anything runs, and all faults are reported at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from llama_load.bundled import bundled
from llama_load.errors import UsageError
from llama_load.foreign_text import keep_secret
from llama_load.lab.sweep.check_flags import check_names, check_values
from llama_load.lab.sweep.grammar import KINDS, LOAD, PLAIN_NAME, PLAN, URL
from llama_load.lab.sweep.located import Faults, Node, read_yaml, substituted
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
    Target,
    Workload,
)
from llama_load.lab.sweep.server_spec import words
from llama_load.lab.sweep.shapes import Object
from llama_load.lab.sweep.tests_load import loads_of_tests
from llama_load.lab.sweep.values import value_fault
from llama_load.options.known_secrets import secrets_of_document
from llama_load.wire.address import parse_url

LABELS, VALUES = "labels", "values"


def plan_file(name: str) -> Path:
    """The path of a plan: a file, or a bundled plan by its name."""
    path = Path(name)
    if path.exists() or "/" in name:
        return path
    packed = bundled("plans") / f"{path.stem}.yaml"
    if packed.exists():
        return packed
    known = ", ".join(sorted(file.stem for file in bundled("plans").glob("*.yaml")))
    raise UsageError(f"there is no plan {name}; give the path of a .yaml file, or one of the bundled plans: {known}")


def read_plan(path: Path, sets: Mapping[str, str] | None = None) -> Plan:
    """Read and check a plan; `sets` replaces values of its `set`. UsageError, with every fault and its line."""
    faults = Faults(str(path))
    return plan_of(read_yaml(path, faults), sets or {}, faults)


def plan_of(root: Node, sets: Mapping[str, str], faults: Faults) -> Plan:
    """The plan of a document."""
    root = _with_sets(root, sets, faults)
    keep_secret(secrets_of_document(root.plain()))  # its text and its commands are stored and shown
    raw = PLAN.check(root, "", faults)
    if isinstance(root.value, dict):
        for part in ("servers", "vary"):
            for name, node in _members(root, part).items():
                if not PLAIN_NAME.fullmatch(name):
                    faults.add(node, f"the name {part}.{name}: must be a plain name")
    # Where shapes are wrong, the rest is checked as far as that goes, so that all faults are reported at once.
    wrong = (KeyError, TypeError, ValueError, AttributeError) if faults.lines else ()
    plan = None
    with suppress(*wrong):
        plan = _Builder(root, raw or {}, faults).plan(wrong)
    faults.raise_if_any()
    assert plan is not None
    return plan


def _with_sets(root: Node, sets: Mapping[str, str], faults: Faults) -> Node:
    import yaml

    if not isinstance(root.value, dict):
        return root
    own = root.value.get("set")
    values = {}
    if own is not None and isinstance(own.value, dict):
        values = {
            name: yaml.safe_dump(node.plain(), default_flow_style=True, allow_unicode=True, width=10**9)
            for name, node in own.value.items()
        }
        values = {name: text.removesuffix("\n").removesuffix("\n...") for name, text in values.items()}
    for name in sets:
        if name not in values:
            faults.add(root, f"--set {name}: the plan has no such value; it has {', '.join(sorted(values)) or 'none'}")
    values |= sets
    rest = {key: substituted(node, values, faults) for key, node in root.value.items() if key != "set"}
    return Node(rest | ({"set": own} if own is not None else {}), root.line)


def _members(root: Node, key: str) -> dict[str, Node]:
    node = root.value.get(key) if isinstance(root.value, dict) else None
    return node.value if node is not None and isinstance(node.value, dict) else {}


class _Builder:
    """Builds the plan from values of the right shapes, and checks what shapes cannot: names that must exist, lengths that agree."""

    def __init__(self, root: Node, raw: dict[str, Any], faults: Faults) -> None:
        self._root, self._raw, self._faults = root, raw, faults
        self._numbers: dict[int, int] = {}  # of loads and workloads in the file, by their id
        named = [Path(workload["file"]) for workload in raw.get("workload") or [] if workload and workload.get("file")]
        self._locustfiles = texts_of(named)

    def plan(self, wrong: tuple[type[Exception], ...]) -> Plan:
        """The plan, if there are no faults. Errors of the classes `wrong` end a part of the checks, not all of them."""
        raw = self._raw
        servers: tuple[PlannedServer, ...] = ()
        workloads: tuple[Workload, ...] = ()
        tables: tuple[Table, ...] = ()
        settings: list[Setting] = []
        loads: list[Load] = []
        with suppress(*wrong):
            servers = tuple(self._server(name, raw_server) for name, raw_server in raw["servers"].items())
        for name, targets in (raw.get("vary") or {}).items():
            with suppress(*wrong):
                settings.append(self._setting(name, targets, servers))
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
        plan = Plan(servers, tuple(loads), workloads, tuple(settings), flags=raw.get("flags") or {})
        with suppress(*wrong):
            check_values(self._root, plan, self._numbers, self._faults)
        dimensions = set(raw.get("vary") or {})
        with suppress(*wrong):
            tables = tuple(self._table(number, table, dimensions) for number, table in enumerate(raw.get("tables", [])))
        with suppress(*wrong):
            self._check_effects(dimensions)
        perplexity = raw.get("perplexity")
        plain = ("repeats", "order", "seed", "after-a-cell", "cache", "idle-s", "cell-time-limit-s", "title", "language")
        return replace(
            plan,
            perplexity=None if perplexity is None else PerplexityPlan(**perplexity),
            llama_bench_files=tuple(raw.get("rows-from", {}).get("llama-bench", [])),
            tables=tables,
            effects=tuple(raw.get("effects", [])),
            **_fields({key: raw[key] for key in plain if key in raw}),
        )

    def _check_labels(self, servers: Sequence[PlannedServer], loads: Sequence[Load]) -> None:
        for server in servers:
            labels = [load.label for load in loads if server.name in (load.servers or (server.name,))]
            for label in sorted({label for label in labels if labels.count(label) > 1}):
                self._fault("load", f"two loads of {server.name} are labelled {label}; give each its own label")

    def _check_effects(self, dimensions: set[str]) -> None:
        for name in self._raw.get("effects", []):
            if fault := value_fault(name, dimensions):
                self._fault("effects", f"effects: {fault}")

    def _fault(self, part: str, sentence: str, *path: str | int) -> None:
        """A fault at the deepest node that the path of names and places leads to."""
        self._faults.add(self._root.at(part, *path), sentence)

    def _server(self, name: str, raw: dict[str, Any]) -> PlannedServer:
        (kind,) = (key for key in raw if key in KINDS)
        settings = {URL: raw[URL]} if kind == URL else raw[kind]
        if kind == URL and (fault := _url_fault(str(raw[URL]))):
            self._fault("servers", f"servers.{name}.url {fault}", name)
        try:
            words(settings.get("args", []) if kind != URL else [])
        except UsageError as error:
            self._fault("servers", f"servers.{name}.{kind}.args: {error}", name)
        server = PlannedServer(name, kind, settings, raw.get("label", name), raw.get("backend", ""))
        model = server.start.required_model if server.start else ""
        if model and "model" not in settings and not self._is_varied(name, "model"):
            self._fault("servers", f"servers.{name}.{kind}: model is missing; give {model}", name)
        return server

    def _is_varied(self, server: str, key: str) -> bool:
        changed = {target for targets in self._raw.get("vary", {}).values() for target in targets}
        return bool({f"{server}.{key}", key} & changed)

    def _setting(self, name: str, raw: dict[str, list[Any]], servers: tuple[PlannedServer, ...]) -> Setting:
        if name in RESERVED:
            self._fault("vary", f"vary.{name}: this name has a meaning of its own in tables; choose another", name)
        most = max(map(len, raw.values()), default=0)
        own = (LABELS, VALUES)  # elsewhere one value stands for all
        raw = {text: values * most if len(values) == 1 and text not in own else values for text, values in raw.items()}
        targets = {text: values for text, values in raw.items() if text not in (LABELS, VALUES)}
        lengths = {len(values) for values in raw.values()}
        if not targets and VALUES not in raw:
            self._fault(
                "vary", f"vary.{name} changes nothing; give what it changes, such as SERVER.args+, or values for {{{name}}}", name
            )
            return Setting(name, (), (), ())
        if len(lengths) > 1:
            self._fault(
                "vary", f"vary.{name}: all its lists need the same length, got {' and '.join(map(str, sorted(lengths)))}", name
            )
        parsed = tuple((self._target(name, text, servers), tuple(values)) for text, values in targets.items())
        values = raw[VALUES] if VALUES in raw else next(iter(targets.values()))
        labels = short_labels([str(value) for value in raw.get(LABELS, values)])
        for text, target in targets.items():
            if text.split(".")[-1] == URL:
                self._urls(name, text, [str(url) for url in target if url != ""])
        if len(set(labels)) < len(labels):
            self._fault("vary", f"vary.{name}: two values are labelled alike; give different labels", name)
        return Setting(name, labels, tuple(values), parsed)

    def _urls(self, setting: str, target: str, urls: list[str]) -> None:
        """Faults of URLs that a setting varies."""
        for url in sorted(set(urls)):
            if fault := _url_fault(url):
                self._fault("vary", f"vary.{setting}: {target} {fault}", setting)
            elif urls.count(url) > 1:
                sentence = f"{target} has {url} for {urls.count(url)} values, but one server has one of them; give a list of URLs"
                self._fault("vary", f"vary.{setting}: {sentence}", setting)

    def _target(self, setting: str, text: str, servers: tuple[PlannedServer, ...]) -> Target:
        is_added, parts = text.endswith("+"), text.removesuffix("+").split(".")
        names = [server.name for server in servers]
        if parts[0] == "flags" and len(parts) == 2:
            if fault := flag_fault(parts[1], self._locustfiles):
                self._fault("vary", f"vary.{setting}: {fault}", setting)
            return Target("", ("flags", parts[1]), is_added)
        server = parts.pop(0) if parts[0] in names else ""
        shapes = [KINDS[planned.kind].shape for planned in servers if server in ("", planned.name)]
        known = {key for shape in shapes if isinstance(shape, Object) for key in shape.keys} | ({URL} if server else set())
        is_env = len(parts) == 2 and parts[0] == "env"
        if not (is_env or (len(parts) == 1 and parts[0] in known - {"env"})):
            fields = ", ".join(sorted(known - {"env"})) or "nothing of a URL"
            self._fault(
                "vary",
                f"vary.{setting}: {text} changes nothing; give SERVER.FIELD (servers: {', '.join(names)}; fields: {fields}, "
                "env.NAME) or flags.NAME",
                setting,
            )
        return Target(server, tuple(parts), is_added)

    def _loads(self, number: int, raw: dict[str, Any]) -> list[Load]:
        flags: FlagValues = {name: value for name, value in raw.items() if name not in LOAD.keys}
        self._check_flags(f"load[{number + 1}]", flags, "load", number)
        for name in raw.get("servers", []):
            if name not in self._raw["servers"]:
                self._fault("load", f"load[{number + 1}]: there is no server {name}; servers are {', '.join(self._raw['servers'])}")
        rest: dict[str, Any] = {"servers": tuple(raw.get("servers", ())), "takes_s": raw.get("takes-s")}
        if "tests" in raw:
            loads = loads_of_tests(raw["tests"], raw.get("depth", [0]), flags, **rest)
            self._numbers |= {id(load): number for load in loads}
            return loads
        shown = [(name, ",".join(map(str, values))) for name, values in flags.items() if values != [""]]
        words = [f"capacity within {' '.join(raw['search']['goodput'])}"] if "search" in raw else []
        words += [name if value == "True" else f"{name}={value}" for name, value in shown]
        load = Load(raw.get("label") or " ".join(words) or "default", flags, search=raw.get("search"), **rest)
        self._numbers[id(load)] = number
        return [load]

    def _check_flags(self, where: str, flags: FlagValues, part: str, *path: str | int) -> None:
        for name in flags:
            if fault := flag_fault(name, self._locustfiles):
                self._fault(part, f"{where}: {fault}", *path, name)

    def _workloads(self, raw: list[dict[str, Any]] | None) -> tuple[Workload, ...]:
        workloads = []
        for number, entry in enumerate(raw or [{"file": "sharegpt_chat"}]):
            path = Path(entry["file"])
            packed = bundled("locustfiles") / f"{path.stem}.py"
            if not (path.is_file() or ("/" not in entry["file"] and packed.is_file())):
                known = ", ".join(sorted(file.stem for file in bundled("locustfiles").glob("*.py")))
                self._fault("workload", f"workload: there is no locustfile {path}; give the path of one, or one of {known}")
            self._check_flags("workload", entry.get("flags", {}), "workload", number, "flags")
            workloads.append(
                Workload(str(path if path.is_file() else packed), entry.get("label", path.stem), entry.get("flags", {}))
            )
            self._numbers[id(workloads[-1])] = number
        return tuple(workloads)

    def _table(self, number: int, raw: dict[str, Any], dimensions: set[str]) -> Table:
        shown = [column["value"] for column in raw["columns"]]
        for name in [*shown, *raw.get("where", {}), *raw.get("sort-by", []), *([raw["group-by"]] if "group-by" in raw else [])]:
            if fault := value_fault(name, dimensions, raw.get("rows", "")):
                self._fault("tables", f"tables[{number + 1}]: {fault}")
        columns = tuple(Column(**_fields(column)) for column in raw["columns"])
        return Table(**_fields(raw) | {"columns": columns, "sort_by": tuple(raw.get("sort-by", ()))})


def _fields(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a plan as names of fields."""
    return {key.replace("-", "_"): value for key, value in raw.items()}


def _url_fault(url: str) -> str:
    """What is wrong with a server's URL; empty if nothing is. One with a {name} is known in a cell only."""
    if not url.startswith(("http://", "https://")):
        return f"must begin with http:// or https://, got {url}"
    try:
        if "{" not in url:
            parse_url(url)
    except ValueError as error:
        return f"cannot be used: {error}"
    return ""


def short_labels(labels: Sequence[str]) -> tuple[str, ...]:
    """The labels; paths by their last part, as long as those differ. a/x.gguf, b/y.gguf: x.gguf, y.gguf."""
    names = tuple(label.rsplit("/", 1)[-1] if label.startswith(("/", "./", "~")) or ".gguf" in label else label for label in labels)
    return names if len(set(names)) == len(labels) and all(names) else tuple(labels)


RESERVED = frozenset({"server", "backend", "model", "workload", "load", "concurrency", "repeat", "test", "depth", "flags"})
