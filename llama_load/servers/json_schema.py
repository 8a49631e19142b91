"""Checks answers against JSON schemas in bounded time: both come from others.

The size of schema and answer bounds nothing: `allOf` of two references, 40 levels deep, visits its
last rule 2^40 times. So every visit of a rule spends steps of a `Budget`: one, and more for a large
value or a large part of the schema, because rules compare and quote them. A step takes about 10 us.

Patterns are RE2's, references stay within the schema. Rules that walk over the schema by themselves
are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import msgspec

from llama_load.ground.arrow import load_arrow
from llama_load.ground.errors import UsageError
from llama_load.outside.budget import Budget, TooMuchWork

MOST_SCHEMA_BYTES = 256 * 1024
# About a second: hardly an answer that fits a schema takes a tenth of it.
MOST_STEPS = 100_000
# For a schema against the rules of JSON Schema, once before the run.
MOST_STEPS_OF_A_SCHEMA = 1_000_000
# A longer pattern is compiled for each answer in more than a millisecond, which would hold up the
# streams.
MOST_PATTERN_CHARS = 1000
MOST_DEPTH = 100
# Comparing ten values, or quoting a thousand characters, takes as long as visiting a rule.
VALUES_A_STEP = 10
CHARS_A_STEP = 1000
# They walk over the schema outside of its rules, or run patterns of others on names.
REFUSED = {
    "patternProperties": "name the properties",
    "unevaluatedProperties": "use additionalProperties",
    "unevaluatedItems": "use items",
}

# Rules that look at each member of a list or object.
EACH_MEMBER = ("items", "contains", "additionalProperties", "propertyNames")

Rule = Callable[[Any, Any, Any, Any], Iterator[Any] | None]


def schema_fault(schema: str, answer: str, budget: Budget | None = None) -> str | None:
    """Why an answer is not JSON, or breaks a schema (as JSON text); None if it is valid. It names
    the broken rule's place in the schema: 'breaks the rule properties/age/type'. Without a `budget`
    the limit is `MOST_STEPS`. Raises TooMuchWork."""
    budget = budget or Budget(MOST_STEPS)
    budget.spend(len(answer) // CHARS_A_STEP)
    try:
        value = msgspec.json.decode(answer)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return "the answer is not valid JSON"

    idle = _idle_checks(schema)
    check = idle.pop() if idle else _Check(msgspec.json.decode(schema))
    try:
        broken = check.first_error(value, budget)
    except TooMuchWork:
        raise
    except RecursionError:
        return "the answer is nested too deeply for the JSON schema"
    except Exception as error:
        return f"the answer could not be checked against the JSON schema ({type(error).__name__})"
    finally:
        idle.append(check)
    return (
        None
        if broken is None
        else f"the answer breaks the rule {_place(broken.absolute_schema_path)} of the JSON schema"
    )


def check_schema(schema: str, budget: Budget | None = None) -> None:
    """UsageError, a sentence without a subject: this text is no JSON schema that answers can be
    checked with. Without a `budget` the limit is `MOST_STEPS_OF_A_SCHEMA`."""
    if len(schema) > MOST_SCHEMA_BYTES:
        raise UsageError(
            f"has a JSON schema of more than {MOST_SCHEMA_BYTES // 1024} KiB"
        )
    try:
        value = msgspec.json.decode(schema)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(f"has a JSON schema that is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError("has a JSON schema that is not an object")
    _refuse_rules(value)

    try:
        _check_against_rules(value, budget or Budget(MOST_STEPS_OF_A_SCHEMA))
        check = _Check(value)
        examples: tuple[Any, ...] = (None, {}, [], "")
        for example in examples:
            check.first_error(example, Budget(MOST_STEPS))
    except TooMuchWork:
        raise UsageError(
            "has a JSON schema that takes too long to check: it repeats references or rules too "
            "often"
        ) from None
    except RecursionError:
        raise UsageError(
            "has a JSON schema that refers to itself without end"
        ) from None
    except UsageError:
        raise
    # a reference that leads nowhere; the library has its own errors for these
    except Exception as error:
        raise UsageError(f"has a JSON schema that cannot be used: {error}") from None


def matches(pattern: str, text: str) -> bool:
    """Whether this RE2 pattern matches somewhere in the text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    readable = text.encode("utf-8", "replace").decode()
    return bool(pc.match_substring_regex(pa.array([readable]), pattern)[0].as_py())


def check_pattern(pattern: str) -> None:
    """UsageError, a sentence without a subject: no pattern that answers can be checked with."""
    import pyarrow as pa

    load_arrow()
    if len(pattern) > MOST_PATTERN_CHARS:
        raise UsageError(
            f"has a regular expression of more than {MOST_PATTERN_CHARS} characters"
        )
    try:
        matches(pattern, "")
    except pa.ArrowException as error:
        raise UsageError(
            f"has a regular expression that cannot be used ({error}); write it as for RE2"
        ) from None


def pattern_steps(pattern: str, text: str) -> int:
    """What looking for a pattern in a text costs: 0.1 us a character where RE2 keeps a state for
    each part of the pattern."""
    return 1 + len(text) * (1 + len(pattern) // 100) // 50


def _check_against_rules(schema: Mapping[str, Any], budget: Budget) -> None:
    """UsageError: it breaks the rules of JSON Schema."""
    error = _check_of_schemas().first_error(schema, budget)
    if error is not None:
        deepest = max([error, *error.context], key=lambda each: len(each.absolute_path))
        raise UsageError(
            f"has no valid JSON schema: at {_place(deepest.absolute_path)}: {deepest.message[:300]}"
        )


def _refuse_rules(value: object, depth: int = 0) -> None:
    """UsageError: a rule that could take endless time, a pattern that RE2 does not know, or too
    many levels."""
    if depth > MOST_DEPTH:
        raise UsageError(f"has a JSON schema of more than {MOST_DEPTH} levels")
    if isinstance(value, Mapping):
        for rule, instead in REFUSED.items():
            if rule in value:
                raise UsageError(
                    f"has a JSON schema with {rule}, which is not supported: {instead}"
                )
        pattern = value.get("pattern")
        if isinstance(pattern, str):
            check_pattern(pattern)
    if isinstance(value, Mapping | list):
        parts = value.values() if isinstance(value, Mapping) else value
        for part in parts:
            _refuse_rules(part, depth + 1)


@lru_cache(maxsize=256)
def _idle_checks(schema: str) -> list[_Check]:
    """Checks with this schema that nobody uses now: making one takes longer than using it."""
    return []


@lru_cache(maxsize=1)
def _check_of_schemas() -> _Check:
    from jsonschema import Draft202012Validator

    return _Check(Draft202012Validator.META_SCHEMA, is_ours=True)


class _Check:
    """A schema whose rules spend steps at every visit. One answer at a time."""

    def __init__(self, schema: Any, *, is_ours: bool = False) -> None:
        import referencing
        from jsonschema import Draft202012Validator, validators

        rules: dict[str, Rule] = dict(Draft202012Validator.VALIDATORS)
        # the rules of schemas have harmless patterns, and refer to each other by addresses
        if not is_ours:
            rules |= {"pattern": self._pattern, "uniqueItems": self._unique_items}
        counted: dict[str, Rule] = {
            name: partial(self._visit, name, rule) for name, rule in rules.items()
        }
        for name in ("$ref", "$dynamicRef"):
            counted[name] = partial(self._follow, counted[name])

        kind = validators.extend(Draft202012Validator, counted)
        kind.evolve = _evolve
        registry = {} if is_ours else {"registry": referencing.Registry()}
        self._validator = kind(schema, **registry)
        self._budget = Budget(0)
        # By the identity of a value; those of the schema live as long as this.
        self._of_schema: dict[int, int] = {}
        self._of_answer: dict[int, int] = {}
        # The library makes an object of each part of the schema, every time: a step each.
        self._search = 0 if is_ours else _size(schema)[0]

    def first_error(self, value: Any, budget: Budget) -> Any:
        """The library's first error, in the order of the rules; None: the value fits. Raises
        TooMuchWork, and what the library raises."""
        self._budget = budget
        self._of_answer = {}
        return next(self._validator.iter_errors(value), None)

    def _visit(self, name: str, rule: Rule, *visited: Any) -> Iterator[Any]:
        _, part, value, _ = visited
        steps = (
            1
            + self._weight(part, self._of_schema)
            + self._weight(value, self._of_answer)
        )
        if isinstance(part, list | dict):
            steps += len(part)
        if name in EACH_MEMBER and isinstance(value, list | dict):
            steps += len(value)
        self._budget.spend(steps)
        yield from rule(*visited) or ()

    def _follow(self, visit: Rule, *visited: Any) -> Iterator[Any]:
        """A path is followed part by part; another reference is looked for in the whole schema."""
        reference = visited[1]
        is_path = isinstance(reference, str) and (
            reference == "#" or reference.startswith("#/")
        )
        self._budget.spend(reference.count("/") if is_path else self._search)
        yield from visit(*visited) or ()

    def _pattern(
        self, _: object, pattern: str, value: object, __: object
    ) -> Iterator[Any]:
        import jsonschema

        if isinstance(value, str):
            self._budget.spend(pattern_steps(pattern, value))
            if not matches(pattern, value):
                yield jsonschema.ValidationError("pattern")

    def _unique_items(
        self, _: object, is_required: bool, value: object, __: object
    ) -> Iterator[Any]:
        """The library compares each pair of items."""
        import jsonschema

        if is_required and isinstance(value, list):
            different = {json.dumps(part, sort_keys=True) for part in value}
            if len(different) < len(value):
                yield jsonschema.ValidationError("uniqueItems")

    def _weight(self, value: Any, known: dict[int, int]) -> int:
        """Steps for comparing or quoting a value: by the number of values and characters in it."""
        if not isinstance(value, str | list | dict):
            return 0
        weight = known.get(id(value))
        if weight is None:
            values, characters = _size(value)
            weight = values // VALUES_A_STEP + characters // CHARS_A_STEP
            known[id(value)] = weight
        return weight


def _evolve(validator: Any, **changes: Any) -> Any:
    """The validator of a part of a schema. (The library's own takes the rules that `$schema` names
    in that part: not ours.)"""
    import attrs

    return attrs.evolve(validator, **changes)


def _size(value: Any) -> tuple[int, int]:
    """How many values and how many characters are in a JSON value."""
    values = 0
    characters = 0
    waiting = [value]
    while waiting:
        part = waiting.pop()
        values += 1
        if isinstance(part, str):
            characters += len(part)
        elif isinstance(part, dict):
            characters += sum(map(len, part))
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return values, characters


def _place(path: Sequence[object]) -> str:
    return "/".join(map(str, path))[:200] or "of its top level"
