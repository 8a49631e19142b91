"""Answers that a prompt's own body forces into a form, beside free text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from llama_load.analysis.figures.summary import valid_ratio
from llama_load.analysis.topics.answer_forms.form_figures import answer_forms
from llama_load.servers.answer_form import form_of
from tests.make_records import record, table

SCHEMA = {"type": "json_schema", "json_schema": {"schema": {}}}


@pytest.mark.parametrize(
    ("body", "form"),
    [
        ({"response_format": SCHEMA}, "json_schema"),
        ({"response_format": {"type": "json_object"}}, "json_schema"),
        ({"text": {"format": SCHEMA}}, "json_schema"),
        ({"json_schema": {}}, "json_schema"),
        ({"grammar": 'root ::= "a"'}, "grammar"),
        ({"structured_outputs": {"choice": ["a", "b"]}}, "grammar"),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": None, "grammar": None, "prompt": "json"}, None),
        ({"text": "a", "messages": []}, None),
    ],
)
def test_the_form_of_a_body_is_that_which_it_asks_for(
    body: dict[str, Any], form: str | None
) -> None:
    assert form_of(body) == form


def test_forms_of_prompts_stand_beside_the_free_answers_of_the_others() -> None:
    """A recording's `response_format`: nobody checks its answers, so that no share of them is
    valid."""
    rows = [
        record(0, answer_form="json_schema"),
        record(1, answer_form="json_schema"),
        record(2),
    ]
    measured = table(*rows)
    forms = answer_forms(SimpleNamespace(measured=measured))
    assert forms is not None
    assert [(each.form, each.requests) for each in forms] == [
        ("free", 1),
        ("json_schema", 2),
    ]
    assert [each.valid_ratio for each in forms] == [None, None]
    assert valid_ratio(measured.ok()) is None
    assert answer_forms(SimpleNamespace(measured=table(rows[2]))) is None
