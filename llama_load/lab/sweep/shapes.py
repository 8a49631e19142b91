"""What a value of a plan may look like.

Each shape checks a node (the plain value; None, and a fault, if the node has another shape), and
describes itself as JSON Schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from llama_load.ground.errors import did_you_mean
from llama_load.ground.units import quantity
from llama_load.lab.sweep.located import Faults, Node
from llama_load.outside.foreign_text import printable


@dataclass(frozen=True, slots=True)
class Text:
    """A text, or a number read as one; `choices` limits it."""

    choices: tuple[str, ...] = ()

    def check(self, node: Node, where: str, faults: Faults) -> Any:
        """The text."""
        if isinstance(node.value, bool) or not isinstance(
            node.value, str | int | float
        ):
            return _other(node, where, "a text", faults)
        text = str(node.value)
        if self.choices and text not in self.choices:
            return _other(node, where, f"one of {', '.join(self.choices)}", faults)
        return text

    def schema(self) -> dict[str, Any]:
        """A string; numbers too, which YAML does not quote."""
        return (
            {"enum": list(self.choices)}
            if self.choices
            else {"type": ["string", "number"]}
        )


@dataclass(frozen=True, slots=True)
class Number:
    """A number within bounds."""

    least: float = 0
    most: float = 1e9
    is_whole: bool = False

    def check(self, node: Node, where: str, faults: Faults) -> Any:
        """The number."""
        value = node.value
        kinds = int if self.is_whole else (int, float)
        is_number = isinstance(value, kinds) and not isinstance(value, bool)
        if is_number and self.least <= value <= self.most:
            return value
        kind = "whole number" if self.is_whole else "number"
        expected = f"a {kind} from {self.least:g} to {self.most:g}"
        return _other(node, where, expected, faults)

    def schema(self) -> dict[str, Any]:
        """A number with its bounds."""
        return {
            "type": "integer" if self.is_whole else "number",
            "minimum": self.least,
            "maximum": self.most,
        }


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value of one of these types.

    `expected`: what it is, in words; `names`: the types' names in JSON Schema.
    """

    types: tuple[type, ...]
    expected: str
    names: str | list[str]

    def check(self, node: Node, where: str, faults: Faults) -> Any:
        """The value."""
        if not isinstance(node.value, self.types):
            return _other(node, where, self.expected, faults)
        return node.value

    def schema(self) -> dict[str, Any]:
        """Any of the types."""
        return {"type": self.names}


YES_NO = Scalar((bool,), "true or false", "boolean")
ANY_SCALAR = Scalar(
    (str, int, float, bool),
    "a text, a number, or true or false",
    ["string", "number", "boolean"],
)


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of values of one shape; with `or_one` also a single value."""

    item: Shape
    least: int = 1
    or_one: bool = False

    def check(self, node: Node, where: str, faults: Faults) -> Any:
        """The values."""
        if not isinstance(node.value, list):
            if self.or_one:
                return [self.item.check(node, where, faults)]
            return _other(node, where, "a list", faults)
        if len(node.value) < self.least:
            expected = f"a list of at least {quantity(self.least, 'value')}"
            return _other(node, where, expected, faults)

        checked = []
        for number, child in enumerate(node.value, 1):
            checked.append(self.item.check(child, f"{where}[{number}]", faults))

        return checked

    def schema(self) -> dict[str, Any]:
        """An array."""
        item = self.item.schema()
        array = {"type": "array", "items": item, "minItems": self.least}
        if self.or_one:
            return {"anyOf": [array, item]}
        return array


@dataclass(frozen=True, slots=True)
class Key:
    """A key of an object: its shape and what it means."""

    shape: Shape
    help: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Object:
    """Keys with their shapes.

    `others`: the shape under further names, which the plan chooses; `least`: how many names it has;
    `one_of`: keys of which exactly one is given; `or_text`: a text instead stands for this key;
    `fault`: what is wrong with values whose shapes are good, or nothing.
    """

    keys: Mapping[str, Key] = field(default_factory=dict)
    others: Shape | None = None
    least: int = 0
    one_of: tuple[str, ...] = ()
    or_text: str = ""
    fault: Callable[[Any], str] = lambda _: ""

    def check(self, node: Node, where: str, faults: Faults) -> Any:
        """The values by key."""
        if self.or_text and isinstance(node.value, str):
            return {
                self.or_text: self.keys[self.or_text].shape.check(node, where, faults)
            }
        if not isinstance(node.value, dict):
            expected = "names with values"
            if self.others is None:
                expected = f"keys such as {', '.join(list(self.keys)[:3])}"
            return _other(node, where, expected, faults)
        if len(node.value) < self.least:
            return _other(node, where, f"at least {self.least} name", faults)

        before = len(faults.lines)
        checked = {}
        for name, child in node.value.items():
            place = f"{where}.{name}" if where else name
            shape = self.keys[name].shape if name in self.keys else self.others
            if shape is not None:
                checked[name] = shape.check(child, place, faults)
            else:
                advice = did_you_mean(name, list(self.keys))
                advice = advice or f"; known are {', '.join(self.keys)}"
                faults.add(child, f"{place}: there is no such key{advice}")

        self._check_names(node, where, faults)
        if len(faults.lines) == before:
            sentence = self.fault(checked)
            if sentence:
                faults.add(node, f"{where}: {sentence}")
        return checked

    def _check_names(self, node: Node, where: str, faults: Faults) -> None:
        """Faults of keys that must be given."""
        for name, key in self.keys.items():
            if key.required and name not in node.value:
                place = f"{where}: " if where else ""
                faults.add(node, f"{place}{name} is missing: {key.help}")

        given = [name for name in self.one_of if name in node.value]
        if self.one_of and len(given) != 1:
            has = " and ".join(given) or "none"
            faults.add(
                node,
                f"{where}: give exactly one of {', '.join(self.one_of)}; it has {has}",
            )

    def schema(self) -> dict[str, Any]:
        """An object with these properties."""
        described: dict[str, Any] = {
            "type": "object",
            "additionalProperties": False
            if self.others is None
            else self.others.schema(),
        }
        properties = {}
        required = []
        for name, key in self.keys.items():
            properties[name] = key.shape.schema() | {"description": key.help}
            if key.required:
                required.append(name)

        if properties:
            described["properties"] = properties
        if self.least:
            described["minProperties"] = self.least
        if required:
            described["required"] = required
        if self.one_of:
            described["oneOf"] = [{"required": [name]} for name in self.one_of]
        if self.or_text:
            return {"anyOf": [described, {"type": "string"}]}
        return described


Shape = Text | Number | Scalar | ListOf | Object


def map_of(item: Shape, least: int = 0) -> Object:
    """Values of one shape by names that the plan chooses."""
    return Object(others=item, least=least)


def _other(node: Node, where: str, expected: str, faults: Faults) -> None:
    """Note that a node has another shape than the expected one."""
    names = {dict: "keys with values", list: "a list", type(None): "nothing"}
    if node.value in ([], {}):
        names = {dict: "no keys", list: "an empty list"}
    got = names.get(type(node.value)) or repr(printable(str(node.value), 40))
    faults.add(node, f"{where or 'the plan'} must be {expected}, got {got}")
