"""No schema and no answer takes more than a bounded number of steps, whatever they are."""

from __future__ import annotations

import json
from typing import Any

import gevent
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_load.ground.errors import UsageError
from llama_load.loadgen.users.answer_work import TOO_LONG, fault_of
from llama_load.outside.budget import Budget, TooMuchWork
from llama_load.servers.expect import Expect
from llama_load.servers.json_schema import MOST_STEPS, check_schema, schema_fault

pytestmark = pytest.mark.hypothesis


def doubled(last: dict[str, Any], levels: int = 40) -> dict[str, Any]:
    """A schema whose last rule is visited 2^40 times."""
    links = {
        f"a{level}": {"allOf": [{"$ref": f"#/$defs/a{level + 1}"}] * 2}
        for level in range(levels)
    }
    return {"$defs": links | {f"a{levels}": last}}


TWICE = doubled({"type": "null"})
LONG_TEXT = json.dumps(["x" * 1000] * 500)
MANY_VALUES = json.dumps([1] * 200_000)
STOCK = {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": "(a+)+$"}


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        (TWICE | {"properties": {"a": {"$ref": "#/$defs/a0"}}}, '{"a": null}'),
        # 8^12 visits
        (
            {"type": "array", "items": {"allOf": [{"$ref": "#"}] * 8}},
            "[" * 12 + "]" * 12,
        ),
        (
            doubled({"not": {}})
            | {"properties": {"a": {"anyOf": [{"$ref": "#/$defs/a0"}, True]}}},
            '{"a": 1}',
        ),
        (
            TWICE
            | {"items": {"if": {"$ref": "#/$defs/a0"}, "then": {"$ref": "#/$defs/a0"}}},
            "[null]",
        ),
        ({"anyOf": [{"type": "null"}] * 4000}, LONG_TEXT),  # each quotes the answer
        ({"items": {"allOf": [{"pattern": "(x{1,9}){1,9}y?"}] * 3000}}, LONG_TEXT),
        (
            {"allOf": [{"uniqueItems": True}] * 3000},
            json.dumps([[number, "x" * 100] for number in range(2000)]),
        ),
        (
            {
                "$defs": {"c": {"const": [1] * 20_000}},
                "allOf": [{"$ref": "#/$defs/c"}] * 2000,
            },
            json.dumps([1] * 20_000),
        ),
        (
            {"contains": {"contains": {"contains": {"const": 7}}}},
            json.dumps([[[1] * 100] * 100] * 40),
        ),
        (
            {
                "$defs": {"c": {"$anchor": "c", "enum": list(range(20_000))}},
                "allOf": [{"$ref": "#c"}] * 2000,
            },
            "1",
        ),
        ({"items": {}}, MANY_VALUES),
        ({"items": {"allOf": [True] * 1000}}, MANY_VALUES),
    ],
)
def test_work_that_multiplies_has_an_end(schema: dict[str, Any], answer: str) -> None:
    """Checked without a budget, most of these would take hours."""
    with pytest.raises(TooMuchWork):
        schema_fault(json.dumps(schema), answer, Budget(5000))


def test_a_schema_that_multiplies_is_refused_before_the_run() -> None:
    with pytest.raises(UsageError, match="takes too long to check"):
        check_schema(json.dumps(TWICE | {"$ref": "#/$defs/a0"}))
    with pytest.raises(UsageError, match="more than 100 levels"):
        check_schema('{"a":' * 400 + "1" + "}" * 400)
    with pytest.raises(UsageError, match="use additionalProperties"):
        check_schema('{"unevaluatedProperties": false}')
    with pytest.raises(UsageError, match="takes too long"):
        check_schema(json.dumps({"required": ["a", "b"]}), Budget(20))


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": STOCK}},
        {"$defs": {"b": STOCK}, "properties": {"a": {"$ref": "#/$defs/b"}}},
    ],
)
def test_a_part_of_a_schema_chooses_no_other_rules(schema: dict[str, Any]) -> None:
    """With "$schema" in a part, the library took its own rules for it: without a budget, and with
    patterns that backtrack for ever."""
    text = json.dumps(schema)
    check_schema(text)
    fault = schema_fault(text, json.dumps({"a": "a" * 60 + "b"}))
    assert fault is not None
    assert fault.endswith("pattern of the JSON schema")


def test_what_the_library_cannot_handle_is_a_fault() -> None:
    assert "could not be checked" in (
        schema_fault('{"multipleOf": 1e-300}', "1" + "0" * 4000) or ""
    )


def test_an_ordinary_answer_takes_few_steps() -> None:
    """A long document of a hundred parts stays below a fifth of the limit, and a short answer is
    checked in the event loop."""
    part = {
        "type": "object",
        "properties": {name: {"type": "string"} for name in "abcdefgh"},
        "required": ["a"],
        "additionalProperties": False,
    }
    budget = Budget(MOST_STEPS)
    answer = [dict.fromkeys("abcdefgh", "some words " * 10)] * 100
    assert (
        schema_fault(
            json.dumps({"type": "array", "items": part}), json.dumps(answer), budget
        )
        is None
    )
    assert budget.left > 0.8 * MOST_STEPS


def test_a_check_that_takes_long_leaves_the_event_loop() -> None:
    """Others go on meanwhile; what takes too long is a fault."""
    turns = 0

    def others() -> None:
        nonlocal turns
        while True:
            gevent.sleep(0.001)  # a turn of the loop
            turns += 1

    watching = gevent.spawn(others)
    text = json.dumps(TWICE | {"properties": {"a": {"$ref": "#/$defs/a0"}}})
    assert (
        fault_of(lambda budget: schema_fault(text, '{"a": null}', budget)) == TOO_LONG
    )
    assert turns > 10
    watching.kill()
    assert (
        fault_of(lambda budget: Expect(contains="a").fault("b", budget))
        == "the answer does not contain the expected text"
    )


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["a", "b", "properties", "$schema"]), inner, max_size=3
        )
    ),
    max_leaves=12,
)
RULES = (
    "type", "enum", "const", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "items", "prefixItems", "contains", "properties",
    "additionalProperties", "propertyNames", "required", "minimum", "multipleOf", "minLength", "pattern", "format", "uniqueItems",
    "dependentSchemas", "dependentRequired", "$ref", "$dynamicRef", "$dynamicAnchor", "$anchor", "$id", "$schema", "$defs",
)  # fmt: skip
names = st.sampled_from(RULES)
references = st.sampled_from(
    [
        "#",
        "#/$defs/a",
        "#/properties/b",
        "#a",
        "a",
        "b",
        "https://json-schema.org/draft/2020-12/schema",
    ]
)
schemas = st.recursive(
    st.booleans() | references | values,
    lambda inner: (
        st.dictionaries(names, inner, max_size=4)
        | st.dictionaries(st.sampled_from("ab"), inner)
        | st.lists(inner, max_size=3)
    ),
    max_leaves=20,
)


@given(schema=st.dictionaries(names, schemas, min_size=1, max_size=4), answer=values)
def test_a_schema_is_refused_or_answers_are_judged(
    schema: dict[str, Any], answer: Any
) -> None:
    """Nothing else is raised, and nothing runs on."""
    text = json.dumps(schema)
    try:
        check_schema(text)
    except UsageError:
        return
    try:
        fault = schema_fault(text, json.dumps(answer))
    except TooMuchWork:
        return
    assert fault is None or isinstance(fault, str)
