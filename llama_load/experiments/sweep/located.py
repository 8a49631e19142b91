"""A YAML file as values that know their lines, so that every fault can name one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_load.errors import UsageError
from llama_load.foreign_text import printable

if TYPE_CHECKING:
    import yaml

MOST_BYTES = 1 << 20
MOST_NODES = 100_000  # aliases may repeat parts of a small file very often
_SUBSTITUTION = re.compile(r"\$\{([^}]*)\}")


@dataclass(frozen=True, slots=True)
class Node:
    """A value of the file: a scalar, a list of nodes, or nodes by key. `line` counts from 1; 0 for what stands in no file."""

    value: Any
    line: int = 0

    def keys(self) -> dict[str, Node]:
        """The nodes by key; none if it has no keys."""
        return self.value if isinstance(self.value, dict) else {}

    def items(self) -> list[Node]:
        """The nodes of a list; another value stands for a list of one."""
        return self.value if isinstance(self.value, list) else [self]

    def at(self, *path: str | int) -> Node:
        """The deepest node that this path of keys and places leads to."""
        node = self
        for step in path:
            if isinstance(step, int):
                node = node.items()[step] if step < len(node.items()) else node
            elif step in node.keys():  # noqa: SIM118 (a method of ours)
                node = node.value[step]
            else:
                break
        return node

    def plain(self) -> Any:
        """The value without lines."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        return [node.plain() for node in self.value] if isinstance(self.value, list) else self.value


@dataclass(slots=True)
class Faults:
    """What is wrong with a plan, collected so that all of it is reported at once."""

    source: str
    found: dict[str, int] = field(default_factory=dict)

    def add(self, node: Node, sentence: str) -> None:
        """Note a fault at the line of a node."""
        self.found.setdefault(sentence, node.line)

    def raise_if_any(self) -> None:
        """UsageError, with a line for each fault in the order of the file."""
        if not self.found:
            return
        lines = sorted(self.found.items(), key=lambda fault: fault[1])
        rows = [f"  line {line}: {printable(text)}" if line else f"  {printable(text)}" for text, line in lines]
        count = "1 fault" if len(rows) == 1 else f"{len(rows)} faults"
        raise UsageError("\n".join([f"{self.source} has {count}:", *rows]))


def read_yaml(path: Path, faults: Faults) -> Node:
    """Read a file of at most 1 MiB with PyYAML's safe loader. UsageError: it cannot be read or is not YAML."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}; give the path of a plan, or the name of a bundled one"
        ) from None
    if len(data) > MOST_BYTES:
        raise UsageError(f"{path} is larger than a plan may be (1 MiB)")
    return parse_yaml(data, str(path), faults)


def parse_yaml(data: bytes | str, source: str, faults: Faults) -> Node:
    """The document as nodes. UsageError: not YAML, or too deep or too large once its aliases are followed."""
    import yaml

    try:
        loader = yaml.SafeLoader(data)
        try:
            root = loader.get_single_node()
            return _Reader(loader, faults).node(root) if root is not None else Node(None, 1)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise UsageError(f"{source}, line {line}: not YAML: {printable(str(error.problem or error.context))}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{source} is not YAML: {printable(str(error), 200)}") from None
    except RecursionError:
        raise UsageError(f"{source} is nested too deeply") from None
    except _TooMany:
        raise UsageError(f"{source} has over {MOST_NODES} values once its aliases are followed") from None


class _TooMany(Exception):
    """More values than a plan may have."""


class _Reader:
    """Turns PyYAML's nodes into ours, with the types of YAML's safe schema."""

    def __init__(self, loader: yaml.SafeLoader, faults: Faults) -> None:
        self._loader, self._faults, self._count = loader, faults, 0

    def node(self, node: yaml.Node) -> Node:
        """A node and all below it."""
        import yaml

        self._count += 1
        if self._count > MOST_NODES:
            raise _TooMany
        line = node.start_mark.line + 1
        if isinstance(node, yaml.MappingNode):
            first: dict[str, int] = {}
            for key_node, _ in node.value:
                key, place = self._key(key_node), key_node.start_mark.line + 1
                if key in first:
                    self._faults.add(Node(None, place), f"{key} is given twice, first in line {first[key]}")
                first.setdefault(key, place)
            self._loader.flatten_mapping(node)  # what `<<` merges in comes first, so that the node's own keys replace it
            members: dict[str, Node] = {}
            for key_node, value_node in node.value:
                members[self._key(key_node)] = self.node(value_node)
            return Node(members, line)
        if isinstance(node, yaml.SequenceNode):
            return Node([self.node(each) for each in node.value], line)
        try:
            return Node(self._loader.construct_object(node), line)
        except (yaml.YAMLError, ValueError) as error:
            self._faults.add(Node(None, line), f"{printable(str(node.value), 60)!r} cannot be read: {printable(str(error), 100)}")
            return Node(None, line)

    def _key(self, node: yaml.Node) -> str:
        return printable(str(node.value), 200)


def substituted(node: Node, values: Mapping[str, str], faults: Faults) -> Node:
    """The nodes with every ${name} replaced. A scalar that is one ${name} takes the type that YAML gives the value."""
    if isinstance(node.value, dict):
        return Node({key: substituted(each, values, faults) for key, each in node.value.items()}, node.line)
    if isinstance(node.value, list):
        return Node([substituted(each, values, faults) for each in node.value], node.line)
    if not isinstance(node.value, str) or "${" not in node.value:
        return node
    for name in _SUBSTITUTION.findall(node.value):
        if name not in values:
            known = ", ".join(sorted(values)) or "none"
            faults.add(node, f"${{{name}}} is not defined under set (defined: {known})")
            return Node(None, node.line)
    if _SUBSTITUTION.fullmatch(node.value):
        text = values[_SUBSTITUTION.findall(node.value)[0]]
        return _at(parse_yaml(text, f"the value of {node.value}", faults), node.line)
    return Node(_SUBSTITUTION.sub(lambda match: values[match[1]], node.value), node.line)


def _at(node: Node, line: int) -> Node:
    """The same values, all at this line."""
    if isinstance(node.value, dict):
        return Node({key: _at(each, line) for key, each in node.value.items()}, line)
    return Node([_at(each, line) for each in node.value], line) if isinstance(node.value, list) else Node(node.value, line)
