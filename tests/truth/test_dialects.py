"""Dialects of gateways: what each form has, and that our own client reads it; without a server."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from llama_load.servers.apis import APIS
from tests.answer_pipeline import record_of
from truth.cases import read_cases
from truth.server.dialects import DIALECTS, FORMS, TAILS, UNENDED
from truth.server.plain import PAGE, STREAM_END, STREAM_HEAD
from truth.server.shapes import CHAT_ONLY, Asked, Step, plain

ASKED = Asked(number=3, tokens=8, prompt_tokens=56, usage=True)
CASES = [case for case in read_cases() if case.suite == "dialects"]


def pieces(steps: Sequence[Step], end: bytes = STREAM_END) -> list[bytes]:
    """The answer as the server sends it, a step in a read."""
    bodies = [step.data for step in steps if step.data]
    chunks = [b"%x\r\n%b\r\n" % (len(body), body) for body in bodies]
    return [STREAM_HEAD, *chunks, end]


def test_every_dialect_has_a_case() -> None:
    shapes = {case.server.shape for case in CASES} - {"plain"}
    faults = {case.server.fault for case in CASES} - {""}
    assert shapes == DIALECTS.keys()
    # the other two are F3 and F4
    assert faults == TAILS.keys() - {"error_event", "no_finish"} | {"page"}
    assert len(CASES) >= 20


@pytest.mark.parametrize("name", DIALECTS)
def test_llama_load_reads_a_dialect_right(name: str) -> None:
    steps = FORMS[name](ASKED)
    assert sum(step.tokens for step in steps) == 8
    reads = pieces(steps, b"" if name in UNENDED else STREAM_END)
    record = record_of(reads, APIS["chat"].reader(), endpoint="chat")
    assert record.status == "ok", record.error
    assert record.output_tokens == 8
    assert len(record.itl_ms or ()) == sum(step.tokens > 0 for step in steps) - 1


@pytest.mark.parametrize("name", sorted(DIALECTS.keys() - set(CHAT_ONLY)))
def test_a_dialect_of_the_completions_api_is_read_right(name: str) -> None:
    asked = Asked(number=3, tokens=8, prompt_tokens=56, usage=True, chat=False)
    reads = pieces(FORMS[name](asked), b"" if name in UNENDED else STREAM_END)
    record = record_of(reads, APIS["completions"].reader(), endpoint="completions")
    assert (record.status, record.output_tokens) == ("ok", 8), record.error


@pytest.mark.parametrize("name", TAILS)
def test_llama_load_calls_a_broken_answer_failed(name: str) -> None:
    """Three tokens, the tail, and a proper end of the body."""
    steps = plain(ASKED)[:3]
    if TAILS[name]:
        steps.append(Step(TAILS[name]))
    record = record_of(pieces(steps), APIS["chat"].reader(), endpoint="chat")
    assert record.status != "ok"


def test_llama_load_calls_a_page_failed() -> None:
    record = record_of([PAGE], APIS["chat"].reader(), endpoint="chat")
    assert record.status == "no_stream"


def test_json_on_several_lines_is_one_value() -> None:
    step = FORMS["data_lines"](ASKED)[5]
    lines = step.data.decode().strip().split("\n")
    assert len(lines) > 2 and all(line.startswith("data: ") for line in lines)
    joined = "\n".join(line.removeprefix("data: ") for line in lines)
    assert json.loads(joined)["choices"][0]["delta"] == {"content": " tok"}
