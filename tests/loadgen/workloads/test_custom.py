"""Prompts of one's own: every line of a JSONL file is a request, in the order of the file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.custom import Custom
from llama_load.loadgen.workloads.prompt_plan import Plan, PlanRequest, Traffic
from llama_load.servers.prompt import Message


class Words:
    source = "words"

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]


def write(folder: Path, lines: list) -> Path:
    path = folder / "mine.jsonl"
    path.write_text(
        "\n".join(json.dumps(line, ensure_ascii=False) for line in lines),
        encoding="utf-8",
    )
    return path


def plan(path: Path | None, num_prompts: int, **changed: object) -> Plan:
    wanted = {
        "num_prompts": num_prompts,
        "fill": True,
        "warmup": 1,
        "seed": 0,
        "counter": Words(),
    }
    wanted["dataset_path"] = None if path is None else str(path)
    return Custom().plan(PlanRequest(**wanted | changed))


def test_the_order_is_that_of_the_file_and_the_warmup_comes_from_behind(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, [{"prompt": f"say {n} 你好"} for n in range(100)])
    found = plan(path, 60, warmup=2, seed=5)
    assert [prompt.text for prompt in found.measured] == [
        f"say {n} 你好" for n in range(60)
    ]
    assert [prompt.text for prompt in found.warmup] == ["say 60 你好", "say 61 你好"]
    assert {prompt.prompt_tokens for prompt in found.measured} == {3}
    assert found.facts.dataset.prompts == 100
    assert (found.facts.distinct, found.facts.repeated, found.facts.replaced) == (
        60,
        0,
        0,
    )


def test_too_few_lines_are_all_sent_and_then_some_again(tmp_path: Path) -> None:
    path = write(tmp_path, [{"prompt": f"say {n}"} for n in range(4)])
    found = plan(path, 10, warmup=3)
    assert [prompt.text for prompt in found.measured[:4]] == [
        f"say {n}" for n in range(4)
    ]
    assert (len(found.measured), found.facts.repeated) == (10, 6)
    assert not {prompt.text for prompt in found.warmup} & {
        prompt.text for prompt in found.measured
    }
    assert len(found.warmup) == 3
    assert plan(path, 10, warmup=3) == found
    assert plan(path, 10, seed=1).measured != found.measured
    assert len(plan(path, 10, fill=False).measured) == 4


def test_the_answers_length_is_the_flags_else_the_lines_else_128(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, [{"prompt": "a", "output_tokens": 7}, {"prompt": "b"}])
    assert [prompt.max_tokens for prompt in plan(path, 2).measured] == [7, 128]
    assert [prompt.max_tokens for prompt in plan(path, 2, output_len=32).measured] == [
        32,
        32,
    ]


def test_messages_are_a_question_and_what_was_said_before_it(tmp_path: Path) -> None:
    """An answer at the end is the recorded one; a system prompt that is given goes before that of
    the line."""
    said = [
        ("system", "Be brief."),
        ("user", "one two"),
        ("assistant", "three"),
        ("user", "four 😀"),
        ("assistant", "five"),
    ]
    path = write(
        tmp_path,
        [
            {"messages": [{"role": role, "content": text} for role, text in said]},
            {"prompt": "hello"},
        ],
    )
    first, second = plan(path, 2, traffic=Traffic(system_prompt="Be kind.")).measured
    assert first.text == "four 😀"
    assert first.answer == "five"
    assert first.history == (
        Message("system", "Be kind.\n\nBe brief."),
        Message("user", "one two"),
        Message("assistant", "three"),
    )
    assert first.prompt_tokens == 4 + 2 + 1 + 2
    assert second.history == (Message("system", "Be kind."),)
    assert second.prompt_tokens == 2 + 1
    assert plan(path, 1).measured[0].history[0] == Message("system", "Be brief.")


def test_lines_that_do_not_fit_are_left_out_and_counted(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        [
            {"prompt": "w " * (50 if n == 1 else 5), "output_tokens": 10}
            for n in range(4)
        ],
    )
    found = plan(path, 3, fits=lambda prompt, answer: prompt + answer <= 20)
    assert (len(found.measured), found.facts.replaced) == (3, 1)
    with pytest.raises(UsageError, match=r"all 4 prompts of .* longer than a slot"):
        plan(path, 3, fits=lambda prompt, answer: False)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('{"prompt": "hel', r"line 3 of .* is not valid JSON"),
        ('"hello"', r"line 3 of .* is JSON, but not a prompt"),
        (
            '{"article": "hello"}',
            r"line 3 of .* has 'article', which is not .*--columns",
        ),
        ('{"category": "a"}', r"line 3 of .* has no question.* and has 'category'"),
        ('{"prompt": "  "}', r"line 3 of .* has no question"),
        (
            '{"prompt": "hello", "output_tokens": 0}',
            r"line 3 of .* has output_tokens 0; it must be 1 or more",
        ),
        (
            '{"prompt": "hello", "output_tokens": "nine"}',
            r"line 3 of .* has output_tokens 'nine'; it must be 1 or more",
        ),
        (
            '{"prompt": "hello", "max_tokens": 8, "output_len": 9}',
            r"line 3 of .* has 'max_tokens' and 'output_len', which both mean output_tokens",
        ),
        ('{"messages": []}', r"line 3 of .* has no question"),
        (
            '{"messages": [{"role": "assistant", "content": "hello"}]}',
            r"line 3 of .* has no question",
        ),
    ],
)
def test_a_line_that_is_no_prompt_is_named_even_if_it_is_not_needed(
    tmp_path: Path, line: str, sentence: str
) -> None:
    """The second line is blank: it counts, and is nothing."""
    (tmp_path / "mine.jsonl").write_text(
        f'{{"prompt": "one"}}\n\n{line}\n', encoding="utf-8-sig"
    )
    with pytest.raises(UsageError, match=sentence):
        plan(tmp_path / "mine.jsonl", 1)


def test_without_a_file_the_sentence_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--dataset-path"):
        plan(None, 1)
    with pytest.raises(UsageError, match="there is no data set"):
        plan(tmp_path / "none.jsonl", 1)
    for nothing in ("", "\n", "[]"):
        (tmp_path / "empty.jsonl").write_text(nothing)
        with pytest.raises(UsageError, match="is empty"):
            plan(tmp_path / "empty.jsonl", 1)


def test_categories_name_the_requests_and_choose_the_lines(tmp_path: Path) -> None:
    """The layout of SPEED-Bench: of several turns the first is sent."""
    path = write(
        tmp_path,
        [
            {
                "question_id": n,
                "category": "code" if n % 2 else "prose",
                "turns": [f"say {n}", "more"],
            }
            for n in range(6)
        ],
    )
    assert [(prompt.task, prompt.text) for prompt in plan(path, 2).measured] == [
        ("prose", "say 0"),
        ("code", "say 1"),
    ]
    chosen = plan(path, 3, traffic=Traffic(categories=("code",)))
    assert [prompt.text for prompt in chosen.measured] == ["say 1", "say 3", "say 5"]
    with pytest.raises(
        UsageError, match=r"no line of .* has the category 'math'; it has prose, code"
    ):
        plan(path, 3, traffic=Traffic(categories=("math",)))


def test_the_bundled_questions_have_four_categories_of_eight() -> None:
    found = Custom("speculation_prompts.jsonl").plan(
        PlanRequest(num_prompts=32, fill=False, warmup=0, seed=0, counter=Words())
    )
    assert Counter(prompt.task for prompt in found.measured) == dict.fromkeys(
        ("code", "prose", "lists", "translation"), 8
    )
    assert len({prompt.text for prompt in found.measured}) == 32
