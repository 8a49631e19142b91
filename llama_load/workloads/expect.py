"""What the answer to a prompt must be like: a text in it, a regular expression, one of several answers, a JSON schema.

Regular expressions are RE2's, which take linear time: no answer of a server can make one run for hours. Faults do not quote the
answer, which is stored only on request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from llama_load.arrow import load_arrow
from llama_load.errors import UsageError

# A longer pattern is compiled for each answer in more than a millisecond, which would hold up the streams.
MOST_PATTERN_CHARS = 1000
MOST_SCHEMA_BYTES = 256 * 1024
# Checking this much takes some ms; longer answers are not what anybody expects of a schema.
MOST_ANSWER_CHARS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """The conditions of a valid answer; all that are given must hold. `json_schema` is the schema as JSON text."""

    contains: str | None = None
    regex: str | None = None
    one_of: tuple[str, ...] = ()
    json_schema: str | None = None

    def check(self) -> None:
        """UsageError, a sentence without a subject: no answer can be checked with this."""
        if not (self.contains or self.regex or self.one_of or self.json_schema):
            raise UsageError("expects nothing: give contains, regex, one_of or json_schema, with a text, list or schema")
        if self.regex:
            _check_pattern(self.regex)
        if self.json_schema:
            check_schema(self.json_schema)

    def fault(self, answer: str) -> str | None:
        """Why this is not a valid answer; None if it is. Blanks around the answer do not count, capitals do."""
        text = answer.strip()
        if len(text) > MOST_ANSWER_CHARS:
            return f"the answer has more than {MOST_ANSWER_CHARS} characters and was not checked"
        if self.contains and self.contains not in text:
            return "the answer does not contain the expected text"
        if self.one_of and text not in self.one_of:
            return "the answer is none of the expected ones"
        if self.regex and not _matches(self.regex, text):
            return "the answer does not match the expected regular expression"
        return schema_fault(self.json_schema, text) if self.json_schema else None


def load_checks() -> None:
    """Import what checks answers, which takes a fifth of a second: before there are any."""
    _matches("", "")
    schema_fault("{}", "{}")


def schema_fault(schema: str, answer: str) -> str | None:
    """Why an answer is not JSON, or breaks a schema (as JSON text); None if it is valid. It names the broken rule's place in the
    schema: 'breaks the rule properties/age/type'."""
    try:
        value = msgspec.json.decode(answer)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return "the answer is not valid JSON"
    try:
        broken = next(iter(_validator(schema).iter_errors(value)), None)
    except RecursionError:
        return "the answer is nested too deeply for the JSON schema"
    return None if broken is None else f"the answer breaks the rule {_place(broken.absolute_schema_path)} of the JSON schema"


def check_schema(schema: str) -> None:
    """UsageError, a sentence without a subject: this text is no JSON schema that answers can be checked with."""
    import jsonschema

    if len(schema) > MOST_SCHEMA_BYTES:
        raise UsageError(f"has a JSON schema of more than {MOST_SCHEMA_BYTES // 1024} KiB")
    try:
        value = msgspec.json.decode(schema)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(f"has a JSON schema that is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError("has a JSON schema that is not an object")
    _refuse_rules(value)
    try:
        jsonschema.Draft202012Validator.check_schema(value)
        for example in (b"null", b"{}", b"[]", b'""'):
            list(_validator(schema).iter_errors(msgspec.json.decode(example)))
    except jsonschema.SchemaError as error:
        raise UsageError(f"has no valid JSON schema: at {_place(error.absolute_path)}: {error.message}") from None
    except RecursionError:
        raise UsageError("has a JSON schema that refers to itself without end") from None
    except Exception as error:  # a reference that leads nowhere; the library has its own errors for these
        raise UsageError(f"has a JSON schema that cannot be used: {error}") from None


def _refuse_rules(value: object) -> None:
    """UsageError: a rule that could take endless time, or a pattern that RE2 does not know."""
    if isinstance(value, Mapping):
        if "patternProperties" in value:
            raise UsageError("has a JSON schema with patternProperties, which is not supported: name the properties")
        pattern = value.get("pattern")
        if isinstance(pattern, str):
            _check_pattern(pattern)
    if isinstance(value, Mapping | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            _refuse_rules(part)


@lru_cache(maxsize=256)
def _validator(schema: str) -> Any:
    """The validator of a schema: its patterns are RE2's, references stay within it, and no rule takes quadratic time."""
    import jsonschema
    import referencing

    def pattern(_: object, expression: str, value: object, __: object) -> Any:
        if isinstance(value, str) and not _matches(expression, value):
            yield jsonschema.ValidationError("pattern")

    def unique(_: object, is_required: bool, value: object, __: object) -> Any:
        if is_required and isinstance(value, list) and len({json.dumps(part, sort_keys=True) for part in value}) < len(value):
            yield jsonschema.ValidationError("uniqueItems")

    rules = {"pattern": pattern, "uniqueItems": unique}
    kind = jsonschema.validators.extend(jsonschema.Draft202012Validator, rules)
    return kind(msgspec.json.decode(schema), registry=referencing.Registry())


def _place(path: Sequence[object]) -> str:
    return "/".join(map(str, path))[:200] or "of its top level"


def _check_pattern(pattern: str) -> None:
    import pyarrow as pa

    load_arrow()
    if len(pattern) > MOST_PATTERN_CHARS:
        raise UsageError(f"has a regular expression of more than {MOST_PATTERN_CHARS} characters")
    try:
        _matches(pattern, "")
    except pa.ArrowException as error:
        raise UsageError(f"has a regular expression that cannot be used ({error}); write it as for RE2") from None


def _matches(pattern: str, text: str) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    return bool(pc.match_substring_regex(pa.array([text.encode("utf-8", "replace").decode()]), pattern)[0].as_py())
