"""Answers in a form, checked against a real vLLM."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from llama_load.servers.serving.launch import Server
from tests.conftest import Finished

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(400)]
# No free text: vLLM lets control characters into strings, which JSON forbids, and a model of random
# weights writes some.
SCHEMA = """{"type": "object", "properties": {"name": {"enum": ["Ada", "Bob"]}, "age": {"type": "integer", "minimum": 0, "maximum": 130}},
"required": ["name", "age"], "additionalProperties": false}"""


def test_vllm_forces_answers_into_a_schema_and_a_grammar(
    run_locust: Callable[..., Finished], vllm: Server, tmp_path: Path
) -> None:
    """Catches a field for structured output that vLLM no longer reads."""
    schema = tmp_path / "person.json"
    schema.write_text(SCHEMA)
    arguments = (
        vllm.url,
        "-u",
        "2",
        "--num-prompts",
        "8",
        "--max-tokens",
        "120",
        "--save-texts",
    )
    done = run_locust(
        *arguments,
        "--json-schema",
        str(schema),
        "--structured-output-ratio",
        "0.5",
        folder=tmp_path / "schema",
    )
    rows = done.records.measured().table.to_pylist()
    assert {row["status"] for row in rows} == {"ok"}, done.err + done.out
    ended = [
        row
        for row in rows
        if row["answer_form"] == "json_schema" and row["finish_reason"] == "stop"
    ]
    assert ended
    assert all(row["valid_answer"] for row in ended)
    assert not any(row["valid_answer"] for row in rows if row["answer_form"] == "free")
    (tmp_path / "yes.ebnf").write_text('root ::= "yes" | "no"')
    for number, endpoint in enumerate(("chat", "completions")):
        form = ("--grammar", str(tmp_path / "yes.ebnf"), "--endpoint", endpoint)
        done = run_locust(*arguments, *form, folder=tmp_path / f"grammar-{number}")
        assert {row["output_text"] for row in done.records.table.to_pylist()} <= {
            "yes",
            "no",
        }, done.err + done.out
