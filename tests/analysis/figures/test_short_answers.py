"""Refusals are known by their texts, however late they come; classifications and greetings are no
refusals."""

from __future__ import annotations

import pytest

from llama_load.analysis.checks.alive import refusals
from llama_load.analysis.figures.check import Check
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.summary import summarize
from llama_load.run_folder.observed.record import RequestRecord
from tests.make_records import record, table


def answer(number: int, tokens: int, text: str, **changed: object) -> RequestRecord:
    """An answer of so many tokens; equal texts have equal hashes."""
    fields: dict[str, object] = {
        "prompt_sha256": f"p{number}",
        "output_sha256": text,
        "max_tokens": 256,
        "finish_reason": "stop",
    }
    return record(number, gaps_ms=(20.0,) * (tokens - 1), **fields | changed)


def check_of(made: list[RequestRecord]) -> Check:
    records = table(*made)
    (check,) = refusals(Evidence(records=records, figures=summarize(records)))
    return check


def answers(
    refused: int, *, tokens: int = 11, **changed: object
) -> list[RequestRecord]:
    """100 answers of 40 to 60 tokens, the first ones of them the same short text, as late as the
    others."""
    return [
        answer(number, tokens, "no", **changed)
        if number < refused
        else answer(number, 40 + number % 21, f"text {number}")
        for number in range(100)
    ]


def test_a_short_text_to_six_prompts_of_a_hundred_is_a_refusal() -> None:
    check = check_of(answers(6))
    assert not check.ok and check.value == pytest.approx(0.06)
    assert "6 of 100 answers are short and alike" in check.text


def test_refusals_that_repeat_what_they_refuse_are_alike() -> None:
    made = [
        answer(
            number,
            11,
            f"hash {number}",
            output_text=f"I am sorry, but {number} I cannot",
        )
        if number < 6
        else answer(
            number, 50, f"hash {number}", output_text=f"{number} is the answer to all"
        )
        for number in range(100)
    ]
    assert not check_of(made).ok


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(answers(2), id="two greetings"),
        pytest.param(answers(6, tokens=45), id="as long as the others"),
        pytest.param(answers(6, max_tokens=11), id="no more was asked for"),
        pytest.param(answers(6, answer_form="grammar"), id="forced into a form"),
        pytest.param(
            [answer(number, 4, ("yes", "no")[number % 2]) for number in range(100)],
            id="a classification",
        ),
        pytest.param(
            [
                answer(number, 4, "yes", workload="yes or no")
                if number % 2
                else answer(number, 60, f"text {number}", workload="chat")
                for number in range(100)
            ],
            id="a classification beside a chat",
        ),
        pytest.param(answers(6, prompt_sha256="p"), id="one prompt"),
    ],
)
def test_other_short_answers_are_none(made: list[RequestRecord]) -> None:
    check = check_of(made)
    assert check.ok and check.value == 0
