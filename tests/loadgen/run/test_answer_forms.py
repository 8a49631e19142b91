"""Answers forced into a form, and the same answers alone and under load, on the real
llama-server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llama_load.servers.serving.launch import Server
from tests.conftest import Finished

Run = Callable[..., Finished]


@pytest.mark.parametrize("endpoint", ["chat", "completion"])
def test_half_of_the_answers_follow_a_schema(
    llama_server: Server, run_locust: Run, tmp_path: Path, endpoint: str
) -> None:
    """The server forces every second answer to be one of two names; its own text is no JSON. A
    model of random weights fills every place where JSON allows blanks until the answer is cut off,
    so the schema allows them only around the name."""
    file = tmp_path / "name.json"
    file.write_text('{"enum": ["Ada", "Bob"]}')
    arguments = (
        "-u",
        "2",
        "--num-prompts",
        "4",
        "--json-schema",
        str(file),
        "--structured-output-ratio",
        "0.5",
    )
    done = run_locust(
        llama_server.url,
        *arguments,
        "--max-tokens",
        "40",
        "--endpoint",
        endpoint,
        "--save-texts",
    )
    assert done.code == 0, done.err
    rows = sorted(
        done.records.measured().table.to_pylist(), key=lambda row: row["prompt_index"]
    )
    assert [row["answer_form"] for row in rows] == ["free", "json_schema"] * 2
    for row in rows:
        is_name = row["output_text"].strip() in ('"Ada"', '"Bob"')
        assert (
            row["valid_answer"] == is_name == (row["answer_form"] == "json_schema")
        ), row["output_text"]
    schema = next(
        form
        for form in done.summary["llama_load"]["answer_forms"]
        if form["form"] == "json_schema"
    )
    assert (
        schema["requests"],
        schema["valid_ratio"],
        done.summary["valid_answer_ratio"],
    ) == (2, 1.0, 1.0)
    assert "Forms of Answers" in done.out


def test_a_grammar_in_a_swarm(
    llama_server: Server, run_locust: Run, tmp_path: Path
) -> None:
    """Workers have no file: the grammar comes from the master."""
    file = tmp_path / "yes.gbnf"
    file.write_text('root ::= "yes" | "no"')
    arguments = (
        "-u",
        "2",
        "--num-prompts",
        "3",
        "--grammar",
        str(file),
        "--save-texts",
        "--processes",
        "1",
    )
    done = run_locust(llama_server.url, *arguments)
    assert {row["output_text"] for row in done.records.table.to_pylist()} <= {
        "yes",
        "no",
    }, done.err
    assert done.summary["valid_answer_ratio"] is None


@pytest.mark.parametrize(
    ("text", "arguments", "sentence"),
    [
        (
            '{"type": "objekt"}',
            ["--json-schema", "FILE"],
            "has no valid JSON schema: at type",
        ),
        ("", ["--grammar", "FILE"], "is empty"),
        ("{}", ["--json-schema", "FILE", "--grammar", "FILE"], "can follow only one"),
        ("{}", ["--json-schema", "FILE", "--ignore-eos"], "must be able to end"),
        (
            "{}",
            ["--structured-output-ratio", "0.5"],
            "needs --json-schema or --grammar",
        ),
        (
            "{}",
            ["--json-schema", "FILE", "--endpoint", "messages"],
            "not supported for llama-server with --endpoint messages",
        ),
        (
            "{}",
            ["--json-schema", "nowhere.json"],
            "there is no file of --json-schema at nowhere.json",
        ),
        ("{}", ["--same-answer"], "such as --stages 1,8"),
        ("{}", ["--same-answer", "--stages", "2,8"], "such as --stages 1,8"),
        (
            "{}",
            ["--same-answer", "--stages", "1,8", "--temperature", "0.5"],
            "needs temperature 0",
        ),
    ],
)
def test_bad_input_is_refused_in_a_sentence(
    llama_server: Server,
    run_locust: Run,
    tmp_path: Path,
    text: str,
    arguments: list[str],
    sentence: str,
) -> None:
    file = tmp_path / "form"
    file.write_text(text)
    done = run_locust(
        llama_server.url,
        "--num-prompts",
        "2",
        *(str(file) if word == "FILE" else word for word in arguments),
    )
    assert done.code == 2
    assert sentence in done.err


def test_a_server_of_equal_answers_alone_and_under_load(
    llama_server: Server, run_locust: Run
) -> None:
    arguments = ("--stages", "1:3,3:3", "--same-answer", "--max-tokens", "8")
    done = run_locust(llama_server.url, *arguments)
    same: dict[str, Any] = done.summary["llama_load"]["same_answers"]
    assert same["compared"] == 3, done.err + done.out
    assert same["unstable"] == 0
    assert same["differing"] == len(same["examples"])
    assert "Same Answers under Load" in done.out
