"""What a data set may expect of its answers, and what it may not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.custom import Custom
from llama_load.loadgen.workloads.prompt_plan import PlanRequest
from llama_load.servers.expect import MOST_ANSWER_CHARS, Expect
from tests.loadgen.workloads.test_custom import Words

PERSON = json.dumps(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": "^[A-Z]"},
            "tags": {"type": "array", "uniqueItems": True},
            "friend": {"$ref": "#"},
        },
        "required": ["name"],
        "additionalProperties": False,
    }
)


@pytest.mark.parametrize(
    ("expect", "answer", "is_valid"),
    [
        (Expect(contains="Paris"), "It is Paris.", True),
        (Expect(contains="Paris"), "It is paris.", False),
        (Expect(one_of=("yes", "no")), " yes\n", True),
        (Expect(one_of=("yes", "no")), "yes and no", False),
        (Expect(regex=r"^\d+$"), "42", True),
        (Expect(regex=r"^\d+$"), "42 €", False),
        (Expect(regex="价格"), "价格：三", True),
        (Expect(contains="Paris", regex="Rome"), "Paris only", False),
        (
            Expect(json_schema=PERSON),
            '{"name": "Ada", "friend": {"name": "Bob"}, "tags": [1, 2]}',
            True,
        ),
        (
            Expect(json_schema=PERSON),
            '{"name": "Ada", "friend": {"name": "bob"}}',
            False,
        ),
        (
            Expect(json_schema=PERSON),
            '{"name": "Ada", "tags": [{"a": 1}, {"a": 1}]}',
            False,
        ),
        (Expect(json_schema=PERSON), '{"name": "Ada", "age": 3}', False),
        (Expect(json_schema=PERSON), '```json\n{"name": "Ada"}\n```', False),
        (Expect(json_schema=PERSON), "[" * 100_000, False),
        (Expect(json_schema="{}"), "1" * (MOST_ANSWER_CHARS + 1), False),
    ],
)
def test_answers_are_checked(expect: Expect, answer: str, is_valid: bool) -> None:
    """All conditions must hold; blanks around the answer do not count. The fault does not quote the
    answer."""
    expect.check()
    fault = expect.fault(answer)
    assert (fault is None) == is_valid
    assert fault is None or answer[:20] not in fault


def test_a_pattern_that_backtracks_elsewhere_takes_linear_time() -> None:
    """(a+)+$ on 2^17 letters takes `re` longer than the universe has; if this came to use `re`, the
    test would not end."""
    assert Expect(regex="(a+)+$").fault("a" * 2**17 + "b") is not None
    assert (
        Expect(json_schema='{"pattern": "(a+)+$"}').fault('"' + "a" * 2**17 + 'b"')
        is not None
    )


@pytest.mark.parametrize(
    ("expect", "sentence"),
    [
        ({}, "expects nothing"),
        ("", "expects nothing"),
        ({"contain": "x"}, "unknown field"),
        ({"regex": "(?=x)"}, "write it as for RE2"),
        ({"regex": r"(a)\1"}, "write it as for RE2"),
        ({"regex": "x" * 1001}, "more than 1000 characters"),
        ({"json_schema": []}, "not an object"),
        ({"json_schema": {"type": "objekt"}}, "no valid JSON schema: at type"),
        ({"json_schema": {"$ref": "#"}}, "without end"),
        ({"json_schema": {"$ref": "http://127.0.0.1:9/schema"}}, "cannot be used"),
        ({"json_schema": {"$ref": "#/$defs/nothing"}}, "cannot be used"),
        (
            {"json_schema": {"properties": {"a": {"pattern": "("}}}},
            "write it as for RE2",
        ),
        ({"json_schema": {"patternProperties": {"a": {}}}}, "patternProperties"),
        ({"one_of": "yes"}, "Expected `array"),
        (5, "Expected"),
    ],
)
def test_what_cannot_be_checked_is_refused_with_its_line(
    expect: object, sentence: str, tmp_path: Path
) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(
        json.dumps({"prompt": "a"})
        + "\n"
        + json.dumps({"prompt": "b", "expect": expect})
        + "\n"
    )
    with pytest.raises(UsageError, match="line 2") as refused:
        Custom().plan(
            PlanRequest(
                num_prompts=2,
                fill=False,
                warmup=0,
                seed=0,
                counter=Words(),
                dataset_path=str(file),
            )
        )
    assert sentence in str(refused.value)
