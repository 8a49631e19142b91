"""A YAML file as values that know their lines, so that every fault can name one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_load.ground.errors import UsageError
from llama_load.ground.units import quantity
from llama_load.outside.foreign_files import TooLarge, read_foreign
from llama_load.outside.foreign_text import printable

if TYPE_CHECKING:
    import yaml

MOST_BYTES = 128 << 10  # PyYAML reads 60 kB a second; the bundled plans have 2 to 4 kB
# aliases may repeat parts of a small file very often, and so may ${name}
MOST_NODES = 100_000
MOST_CHARS = 1 << 20  # of all texts, likewise
_TAG = "tag:yaml.org,2002:"
_UNUSABLE = re.compile("[\0\ud800-\udfff]")
_TEXTS = ("str", "value", "timestamp")
_CONSTRUCTED = ("null", "bool", "int", "float")
MOST_DIGITS = 100
_SUBSTITUTION = re.compile(r"\$\{([^}]{0,200})\}")


@dataclass(frozen=True, slots=True)
class Node:
    """A value of the file: a scalar, a list of nodes, or nodes by key.

    `line` counts from 1; 0 for what stands in no file.
    """

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
                items = node.items()
                if step < len(items):
                    node = items[step]
            else:
                members = node.keys()
                if step not in members:
                    break
                node = members[step]
        return node

    def plain(self) -> Any:
        """The value without lines."""
        if isinstance(self.value, dict):
            plain = {}
            for key, node in self.value.items():
                plain[key] = node.plain()

            return plain

        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


@dataclass(slots=True)
class Faults:
    """What is wrong with a plan, collected so that all of it is reported at once."""

    source: str
    lines: dict[str, int] = field(default_factory=dict)

    def add(self, node: Node, sentence: str) -> None:
        """Note a fault at the line of a node."""
        self.lines.setdefault(sentence, node.line)

    def raise_if_any(self) -> None:
        """UsageError, with a line for each fault in the order of the file."""
        if not self.lines:
            return

        rows = []
        for text, line in sorted(self.lines.items(), key=lambda fault: fault[1]):
            where = f"line {line}: " if line else ""
            rows.append(f"  {where}{printable(text)}")
        count = quantity(len(rows), "fault")
        raise UsageError("\n".join([f"{self.source} has {count}:", *rows]))


def read_yaml(path: Path, faults: Faults) -> Node:
    """Read a file with PyYAML's parser. UsageError: it cannot be read or is not YAML."""
    try:
        data = read_foreign(path, MOST_BYTES)
    except TooLarge:
        raise UsageError(
            f"{path} is larger than a plan may be ({MOST_BYTES >> 10} KiB)"
        ) from None
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}; "
            "give the path of a plan, or the name of a bundled one"
        ) from None
    return parse_yaml(data, str(path), faults)


def parse_yaml(data: bytes | str, source: str, faults: Faults, line: int = 0) -> Node:
    """The document as nodes, all at one `line` if it is given.

    UsageError: not YAML, or too deep or too large once its aliases are followed.
    """
    import yaml

    if len(data) > MOST_BYTES:
        raise UsageError(
            f"{source} is larger than a plan may be ({MOST_BYTES >> 10} KiB)"
        )
    reader = _Reader(faults, line)
    try:
        root = _root(data, source)
        return Node(None, 1) if root is None else reader.node(root)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        problem = printable(str(error.problem or error.context))
        raise UsageError(f"{source}, line {line}: not YAML: {problem}") from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise UsageError(
            f"{source} is not YAML: {printable(str(error), 200)}"
        ) from None
    except RecursionError:
        raise UsageError(f"{source}, line {reader.line}: nested too deeply") from None
    except _TooMany:
        raise UsageError(
            f"{source}, line {reader.line}: the plan has over {MOST_NODES:,} values or "
            f"{MOST_CHARS:,} characters once its aliases are followed"
        ) from None


def _root(data: bytes | str, source: str) -> yaml.Node | None:
    """PyYAML's nodes of a document; None if it is empty."""
    import yaml

    loader = yaml.SafeLoader(data)
    try:
        return loader.get_single_node()
    except RecursionError:
        raise UsageError(
            f"{source}, line {loader.line + 1}: nested too deeply"
        ) from None
    finally:
        loader.dispose()


class _TooMany(Exception):
    """More values than a plan may have."""


class _Reader:
    """Turns PyYAML's nodes into ours.

    PyYAML's constructors read scalars alone: they follow aliases in keys and merges without bound,
    and raise what their authors did not foresee. Sexagesimals (1:30) and dates are texts.
    """

    def __init__(self, faults: Faults, only_line: int) -> None:
        from yaml.constructor import SafeConstructor

        self.line = 1  # where it is
        self._faults = faults
        self._only_line = only_line
        self._count = 0
        self._chars = 0
        self._constructor = SafeConstructor()

    def node(self, node: yaml.Node) -> Node:
        """A node and all below it."""
        import yaml

        line = self._next(node)
        if isinstance(node, yaml.MappingNode):
            self._check_tag(node, "map")
            members = self._members(node)
            return Node({key: self.node(value) for key, value in members.items()}, line)
        if isinstance(node, yaml.SequenceNode):
            self._check_tag(node, "seq")
            return Node([self.node(child) for child in node.value], line)
        return Node(self._scalar(node), line)

    def _next(self, node: yaml.Node) -> int:
        """The node's line. Each node counts as often as aliases and merges lead to it."""
        self.line = self._line_of(node)
        self._count += 1
        if self._count > MOST_NODES:
            raise _TooMany
        return self.line

    def _check_tag(self, node: yaml.Node, *tags: str) -> None:
        if node.tag not in {_TAG + tag for tag in tags}:
            shown = printable(str(node.tag).replace(_TAG, "!!"), 100)
            self._fault(node, f"the tag {shown} is not allowed; leave it out")

    def _fault(self, node: yaml.Node, sentence: str) -> None:
        self._faults.add(Node(None, self._line_of(node)), sentence)

    def _line_of(self, node: yaml.Node) -> int:
        return self._only_line or int(node.start_mark.line) + 1

    def _members(self, node: yaml.MappingNode) -> dict[str, yaml.Node]:
        """The nodes by key.

        What `<<` merges in comes first, so that the node's own keys replace it.
        """
        import yaml

        merged: dict[str, yaml.Node] = {}
        own: dict[str, yaml.Node] = {}
        first: dict[str, int] = {}
        for key_node, value in node.value:
            line = self._next(key_node)
            if key_node.tag == f"{_TAG}merge":
                merged = self._merged(value, merged)
            elif not isinstance(key_node, yaml.ScalarNode):
                self._fault(key_node, "a key must be a word, not a list or a mapping")
            else:
                key = printable(str(key_node.value), 200)
                if key in first:
                    self._fault(
                        key_node, f"{key} is given twice, first in line {first[key]}"
                    )
                first.setdefault(key, line)
                own[key] = value
        return merged | own

    def _merged(
        self, value: yaml.Node, merged: dict[str, yaml.Node]
    ) -> dict[str, yaml.Node]:
        """What was merged so far, and what a further `<<` merges in."""
        import yaml

        sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
        for source in sources:
            if isinstance(source, yaml.MappingNode):
                merged = self._members(source) | merged  # the first of several wins
            else:
                self._fault(value, "<< needs a mapping, or a list of mappings")
        return merged

    def _scalar(self, node: yaml.Node) -> Any:
        text = str(node.value)
        kind = str(node.tag).removeprefix(_TAG)
        self._chars += len(text)
        if self._chars > MOST_CHARS:
            raise _TooMany
        if _UNUSABLE.search(text):
            shown = printable(text, 60)
            self._fault(
                node, f"{shown!r} has characters that no file name or flag can hold"
            )
            return None

        is_sexagesimal = kind in ("int", "float") and ":" in text
        if kind in _TEXTS or is_sexagesimal:
            return text
        if kind not in _CONSTRUCTED:
            self._check_tag(node)
            return None

        if len(text) <= MOST_DIGITS:
            with suppress(ValueError, IndexError, KeyError, OverflowError):
                return getattr(self._constructor, f"construct_yaml_{kind}")(node)
        self._fault(node, f"{printable(text, 60)!r} cannot be read as {kind}")
        return None


def substituted(root: Node, values: Mapping[str, str], faults: Faults) -> Node:
    """The nodes with every ${name} replaced.

    A scalar that is one ${name} takes the type that YAML gives the value.
    """
    return _Substitution(values, faults).replaced(root)


class _Substitution:
    """Replaces ${name} by values; `_chars` counts the characters of all texts that have one."""

    def __init__(self, values: Mapping[str, str], faults: Faults) -> None:
        self._values = values
        self._faults = faults
        self._chars = 0

    def replaced(self, node: Node) -> Node:
        """A node and all below it."""
        if isinstance(node.value, dict):
            members = {key: self.replaced(child) for key, child in node.value.items()}
            return Node(members, node.line)
        if isinstance(node.value, list):
            return Node([self.replaced(child) for child in node.value], node.line)
        if not isinstance(node.value, str):
            return node
        names = _SUBSTITUTION.findall(node.value)
        return self._filled(node, names) if names else node

    def _filled(self, node: Node, names: Sequence[str]) -> Node:
        for name in names:
            if name not in self._values:
                known = ", ".join(sorted(self._values)) or "none"
                sentence = f"${{{name}}} is not defined under set (defined: {known})"
                self._faults.add(node, sentence)
                return Node(None, node.line)

        self._chars += len(node.value)
        self._chars += sum(len(self._values[name]) for name in names)
        if self._chars > MOST_CHARS:
            self._faults.add(
                node,
                f"the plan has over {MOST_CHARS:,} characters once every ${{name}} is replaced",
            )
            return Node(None, node.line)

        if _SUBSTITUTION.fullmatch(node.value):
            text = self._values[names[0]]
            return parse_yaml(
                text, f"the value of {node.value}", self._faults, node.line
            )
        text = _SUBSTITUTION.sub(lambda match: self._values[match[1]], node.value)
        return Node(text, node.line)
