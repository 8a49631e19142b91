"""Builds the settings of a plan's `vary`, each with what it changes and its values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_load.lab.sweep.grammar import KINDS, URL
from llama_load.lab.sweep.located import Faults, Node
from llama_load.lab.sweep.locustfile_flags import flag_fault
from llama_load.lab.sweep.plan import PlannedServer, Setting, Target
from llama_load.lab.sweep.shapes import Object
from llama_load.servers.address import parse_url

LABELS = "labels"
VALUES = "values"
# Columns of tables by which rows are told apart: a setting of that name would hide them. (One named
# like a fact of the model, such as `model` or `quantization`, is shown in its place.)
RESERVED = frozenset(
    {
        "server",
        "backend",
        "workload",
        "load",
        "concurrency",
        "repeat",
        "test",
        "depth",
        "flags",
    }
)


class SettingBuilder:
    """Builds settings; faults are noted at their lines."""

    def __init__(
        self,
        root: Node,
        servers: Sequence[PlannedServer],
        locustfiles: str,
        faults: Faults,
    ) -> None:
        """`locustfiles`: texts that may define further flags."""
        self._root = root
        self._servers = servers
        self._locustfiles = locustfiles
        self._faults = faults

    def setting(self, name: str, raw: dict[str, list[Any]]) -> Setting:
        """A setting of this name; `raw`: lists by what they change, with `labels` and `values`."""
        if name in RESERVED:
            self._fault(
                name,
                f"vary.{name}: {name} has a meaning of its own in tables; "
                f"name the setting differently, such as vary.{name}-1",
            )

        lists = _as_long_as_the_longest(raw)
        targets = {}
        for text, values in lists.items():
            if text not in (LABELS, VALUES):
                targets[text] = values

        if not targets and VALUES not in lists:
            self._fault(
                name,
                f"vary.{name} changes nothing; give what it changes, such as SERVER.args+, "
                f"or values for {{{name}}}",
            )
            return Setting(name, (), (), ())

        lengths = sorted({len(values) for values in lists.values()})
        if len(lengths) > 1:
            got = " and ".join(map(str, lengths))
            self._fault(
                name, f"vary.{name}: all its lists need the same length, got {got}"
            )

        parsed = []
        for text, values in targets.items():
            target = self._target(name, text)
            if target is not None:
                parsed.append((target, tuple(values)))
        values = lists[VALUES] if VALUES in lists else next(iter(targets.values()))
        labels = short_labels([str(value) for value in lists.get(LABELS, values)])
        for text, urls in targets.items():
            if text.split(".")[-1] == URL:
                self._check_urls(name, text, [str(url) for url in urls if url != ""])
        if len(set(labels)) < len(labels):
            sentence = (
                f"vary.{name}: two values are labelled alike; give different labels"
            )
            self._fault(name, sentence)
        return Setting(name, labels, tuple(values), tuple(parsed))

    def _fault(self, setting: str, sentence: str) -> None:
        self._faults.add(self._root.at("vary", setting), sentence)

    def _check_urls(self, setting: str, target: str, urls: list[str]) -> None:
        """Faults of URLs that a setting varies."""
        for url in sorted(set(urls)):
            fault = url_fault(url)
            if fault:
                self._fault(setting, f"vary.{setting}: {target} {fault}")
            elif urls.count(url) > 1:
                self._fault(
                    setting,
                    f"vary.{setting}: {target} has {url} for {urls.count(url)} values, "
                    "but one server has one of them; give a list of URLs",
                )

    def _target(self, setting: str, text: str) -> Target | None:
        """What `SERVER.FIELD`, `SERVER.env.NAME` or `flags.NAME` changes; None, with a fault, where
        it is none of them."""
        is_added = text.endswith("+")
        parts = text.removesuffix("+").split(".")
        if parts[0] == "flags" and len(parts) == 2:
            fault = flag_fault(parts[1], self._locustfiles)
            if fault:
                self._fault(setting, f"vary.{setting}: {fault}")
            return Target("", ("flags", parts[1]), is_added)

        names = [server.name for server in self._servers]
        server = parts.pop(0) if parts[0] in names else ""
        fields = self._fields_of(server)
        is_env = len(parts) == 2 and parts[0] == "env"
        is_field = len(parts) == 1 and parts[0] in fields
        if not is_env and not is_field:
            listed = ", ".join(sorted(fields)) or "nothing of a URL"
            self._fault(
                setting,
                f"vary.{setting}: {text} changes nothing; give SERVER.FIELD "
                f"(servers: {', '.join(names)}; fields: {listed}, env.NAME) or flags.NAME",
            )
            return None
        return Target(server, tuple(parts), is_added)

    def _fields_of(self, server: str) -> set[str]:
        """What can be changed of a server beside its environment, or of all (an empty name)."""
        fields: set[str] = {URL} if server else set()
        for planned in self._servers:
            shape = KINDS[planned.kind].shape
            if server in ("", planned.name) and isinstance(shape, Object):
                fields |= set(shape.keys)
        return fields - {"env"}


def _as_long_as_the_longest(raw: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """One value alone stands for all, but for labels and values."""
    most = max(map(len, raw.values()), default=0)
    lists = {}
    for text, values in raw.items():
        if len(values) == 1 and text not in (LABELS, VALUES):
            values = values * most
        lists[text] = values
    return lists


def url_fault(url: str) -> str:
    """What is wrong with a server's URL; empty if nothing is.

    One with a {name} is known in a cell only.
    """
    if not url.startswith(("http://", "https://")):
        return f"must begin with http:// or https://, got {url}"
    try:
        if "{" not in url:
            parse_url(url)
    except ValueError as error:
        return f"cannot be used: {error}"
    return ""


def short_labels(labels: Sequence[str]) -> tuple[str, ...]:
    """The labels; paths by their last part, as long as those differ.

    a/x.gguf, b/y.gguf: x.gguf, y.gguf.
    """
    names = []
    for label in labels:
        is_path = label.startswith(("/", "./", "~")) or ".gguf" in label
        names.append(label.rsplit("/", 1)[-1] if is_path else label)
    if len(set(names)) == len(labels) and all(names):
        return tuple(names)
    return tuple(labels)
