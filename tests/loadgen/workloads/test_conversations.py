"""Conversations of several turns, and data files of every layout: JSON lists, JSON Lines,
ShareGPT's and OpenAI's names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.data_files import Turn, alternating, messages
from llama_load.loadgen.workloads.prompt_plan import Plan, PlanRequest, Traffic
from llama_load.loadgen.workloads.sharegpt import ShareGPT
from llama_load.servers.prompt import Message, Prompt
from tests.loadgen.workloads.data import first_exchanges


class Words:
    """Counts words, and remembers what it was asked."""

    source = "words"

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def count(self, texts: Sequence[str]) -> list[int]:
        self.asked.append(list(texts))
        return [len(text.split()) for text in texts]


def chat(name: str, exchanges: int) -> dict:
    """Question k has 3 + k words, answer k has 10 + k (k = 1, 2, …)."""
    turns = []
    for k in range(1, exchanges + 1):
        turns.append({"from": "human", "value": f"{name}q{k} " + "w " * (2 + k)})
        turns.append({"from": "gpt", "value": f"{name}a{k} " + "w " * (9 + k)})
    return {"id": name, "conversations": turns}


def write(folder: Path, entries: list) -> Path:
    path = folder / "chats.json"
    path.write_text(json.dumps(entries, ensure_ascii=False), encoding="utf-8")
    return path


def plan(
    path: Path,
    num_prompts: int,
    *,
    turns: int | None = None,
    system_prompt: str | None = None,
    **changed: object,
) -> Plan:
    wanted = {
        "num_prompts": num_prompts,
        "fill": True,
        "warmup": 1,
        "seed": 0,
        "counter": Words(),
        "dataset_path": str(path),
    }
    traffic = Traffic(turns=turns, system_prompt=system_prompt)
    return ShareGPT().plan(PlanRequest(**wanted | {"traffic": traffic} | changed))


def chats_in(prompts: list[Prompt]) -> list[list[Prompt]]:
    found: list[list[Prompt]] = []
    while prompts:
        count = 1 + prompts[0].more
        found.append(prompts[:count])
        prompts = prompts[count:]
    return found


def test_a_turn_carries_what_was_said_before_it(tmp_path: Path) -> None:
    found = plan(write(tmp_path, [chat("c", 3)]), 3, system_prompt="Be kind.").measured
    assert [(prompt.turn, prompt.more, prompt.conversation) for prompt in found] == [
        (1, 2, "c"),
        (2, 1, "c"),
        (3, 0, "c"),
    ]
    system = Message("system", "Be kind.")
    first = (Message("user", found[0].text), Message("assistant", found[0].answer))
    second = (Message("user", found[1].text), Message("assistant", found[1].answer))
    assert [prompt.history for prompt in found] == [
        (system,),
        (system, *first),
        (system, *first, *second),
    ]
    # 2 words of the system prompt; question 1 has 4, answer 1 has 11; question 2 has 5, answer 2
    # has 12; question 3 has 6.
    assert [prompt.prompt_tokens for prompt in found] == [
        2 + 4,
        6 + 11 + 5,
        22 + 12 + 6,
    ]
    assert [prompt.max_tokens for prompt in found] == [11, 12, 13]


def test_a_history_is_as_long_as_the_answers_that_are_asked_for(tmp_path: Path) -> None:
    """Answers of 100 words instead of the recorded 11 and 12, and 5 tokens of template an exchange:
    4, 4 + 105 + 5, 114 + 105 + 6."""
    path = write(tmp_path, [chat("c", 3)])
    asked = plan(path, 3, answer_len=100, exchange_tokens=5).measured
    assert [prompt.prompt_tokens for prompt in asked] == [4, 114, 225]
    short = plan(
        path,
        3,
        answer_len=100,
        exchange_tokens=5,
        fill=False,
        fits=lambda prompt, _: prompt + 100 <= 300,
    )
    assert [prompt.turn for prompt in short.measured] == [1, 2]
    assert short.facts.shortened == 1
    recorded = Traffic(turns=None, generated_history=False)
    assert [
        prompt.prompt_tokens
        for prompt in plan(path, 3, answer_len=100, traffic=recorded).measured
    ] == [4, 20, 38]


@pytest.mark.parametrize("turns", [1, 2, 3, None])
@pytest.mark.parametrize("count", [1, 5, 12, 13, 40])
def test_the_plan_holds_exactly_the_requests_wanted(
    tmp_path: Path, turns: int | None, count: int
) -> None:
    """12 exchanges in all; whole conversations come again where they are not enough, and the last
    one is cut."""
    path = write(tmp_path, [chat("a", 3), chat("b", 1), chat("c", 5), chat("d", 3)])
    found = plan(path, count, turns=turns)
    assert len(found.measured) == count
    assert found.facts.distinct + found.facts.repeated == count
    recorded = {"a": 3, "b": 1, "c": 5, "d": 3}
    for place, requests in enumerate(chats := chats_in(found.measured)):
        assert [prompt.turn for prompt in requests] == list(range(1, len(requests) + 1))
        assert [prompt.more for prompt in requests] == list(
            range(len(requests) - 1, -1, -1)
        )
        assert len({prompt.conversation for prompt in requests}) == 1
        whole = min(recorded[requests[0].conversation], turns or 99)
        assert (
            len(requests) == whole
            or (place == len(chats) - 1 and len(requests) < whole)
            or found.facts.distinct == count
        )
    assert sum(found.turns_from(place) == 1 for place in range(count)) == len(chats)
    assert plan(path, count, turns=turns) == found


def test_more_turns_take_the_conversations_that_one_turn_takes(tmp_path: Path) -> None:
    path = write(tmp_path, [chat(f"c{n}", 1 + n % 4) for n in range(50)])
    single = [prompt.text for prompt in plan(path, 20, turns=1).measured]
    firsts = [
        prompt.text
        for prompt in plan(path, 50, turns=None).measured
        if prompt.turn == 1
    ]
    assert firsts == single[: len(firsts)]


def test_a_conversation_is_shortened_to_the_turns_that_fit(tmp_path: Path) -> None:
    """Of "long", the first turn needs 15 tokens, the second 32, the third 62."""
    path = write(tmp_path, [chat("long", 3)])
    found = plan(path, 2, fits=lambda prompt, answer: prompt + answer <= 40)
    assert [(prompt.turn, prompt.more) for prompt in found.measured] == [(1, 1), (2, 0)]
    found = plan(path, 3, fits=lambda prompt, answer: prompt + answer <= 40)
    assert (found.facts.distinct, found.facts.repeated, found.facts.shortened) == (
        2,
        1,
        1,
    )
    assert found.measured[2].text == found.measured[0].text
    with pytest.raises(UsageError, match="longer than a slot"):
        plan(path, 3, fits=lambda prompt, answer: prompt + answer <= 14)


def test_a_conversation_whose_first_turn_does_not_fit_is_replaced(
    tmp_path: Path,
) -> None:
    path = write(
        tmp_path,
        [
            chat("a", 2),
            {"id": "b", "conversations": [{"value": "w " * 90}, {"value": "a " * 9}]},
        ],
    )
    found = plan(path, 4, fits=lambda prompt, answer: prompt + answer <= 50)
    assert {prompt.conversation for prompt in found.measured} == {"a"}
    assert found.facts.replaced == 1


def test_the_system_prompt_goes_before_single_turns_too(tmp_path: Path) -> None:
    found = plan(
        write(tmp_path, [chat("a", 2)]), 1, turns=1, system_prompt="Answer in Chinese."
    ).measured[0]
    assert found.history == (Message("system", "Answer in Chinese."),)
    assert found.prompt_tokens == 3 + 4


def test_the_answers_length_can_be_given(tmp_path: Path) -> None:
    assert {
        prompt.max_tokens
        for prompt in plan(write(tmp_path, [chat("a", 3)]), 3, output_len=16).measured
    } == {16}


def test_warmup_prompts_come_from_other_conversations(tmp_path: Path) -> None:
    """Also where the file has the same question twice, and where it has none to spare."""
    entries = [chat("a", 3), chat("b", 3), {**chat("a", 1), "id": "again"}]
    found = plan(write(tmp_path, entries), 3, warmup=3)
    assert len(found.warmup) == 3
    assert not {prompt.text for prompt in found.warmup} & {
        prompt.text for prompt in found.measured
    }
    assert all(prompt.more == 0 for prompt in found.warmup)


def test_every_text_is_counted_once_and_in_batches(tmp_path: Path) -> None:
    counter = Words()
    plan(
        write(tmp_path, [chat(f"c{n}", 4) for n in range(100)]),
        40,
        counter=counter,
        system_prompt="Be kind.",
    )
    asked = [text for batch in counter.asked for text in batch]
    assert len(asked) == len(set(asked))
    assert max(len(batch) for batch in counter.asked) <= 32
    # 32 conversations ahead with a question and an answer each, the system prompt, and 3 more
    # exchanges of each of 10.
    assert len(asked) == 32 * 2 + 1 + 10 * 3 * 2


OPENAI = [
    {"role": "system", "content": "You are a poet."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "Look at this"},
            {"type": "image_url", "image_url": {"url": "x"}},
        ],
    },
    {"role": "user", "content": "写一首诗 about the sea 🌊 now"},
    {"role": "assistant", "content": "The sea is wide and blue."},
    {"role": "user", "content": "And one about the hills, please."},
    {"role": "assistant", "content": "The hills are green and far away."},
]


@pytest.mark.parametrize("turns", [1, None])
def test_openais_messages_are_conversations_too(
    tmp_path: Path, turns: int | None
) -> None:
    """Its system message is the system prompt, behind one that is given; two messages of the user
    are one question."""
    found = plan(
        write(tmp_path, [{"messages": OPENAI}]),
        turns or 2,
        turns=turns,
        system_prompt="Be kind.",
    ).measured
    assert found[0].text == "Look at this\n\n写一首诗 about the sea 🌊 now"
    assert found[0].answer == "The sea is wide and blue."
    assert found[0].history == (Message("system", "Be kind.\n\nYou are a poet."),)
    assert found[0].conversation == "1"
    assert [prompt.turn for prompt in found] == list(range(1, len(found) + 1))


def test_a_conversation_that_starts_with_the_assistant_loses_that_turn(
    tmp_path: Path,
) -> None:
    turns = [
        {"from": "gpt", "value": "Hello, how may I help?"},
        *chat("a", 2)["conversations"],
    ]
    found = plan(write(tmp_path, [{"id": "a", "conversations": turns}]), 2).measured
    assert [prompt.text.split()[0] for prompt in found] == ["aq1", "aq2"]


def test_a_question_that_nobody_answered_is_not_asked(tmp_path: Path) -> None:
    turns = [
        *chat("a", 1)["conversations"],
        {"from": "human", "value": "and now something else, please"},
    ]
    found = plan(write(tmp_path, [{"id": "a", "conversations": turns}]), 2)
    assert found.facts.distinct == 1


ROLES = st.sampled_from(["human", "gpt", "system", "User", "assistant", "tool", None])


@given(
    st.lists(
        st.builds(
            Turn, speaker=ROLES, value=st.sampled_from(["", "  ", "a", "b 你", None])
        )
    )
)
def test_roles_alternate_in_messages_and_nothing_is_lost(turns: list[Turn]) -> None:
    said = list(alternating(messages(turns)))
    assert all(
        one.role != other.role for one, other in zip(said, said[1:], strict=False)
    )
    assert "\n\n".join(message.text for message in said) == "\n\n".join(
        turn.text for turn in turns if turn.text.strip()
    )


def as_list(entries: list) -> str:
    return json.dumps(entries, ensure_ascii=False, indent=1)


def as_lines(entries: list) -> str:
    return (
        "\r\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries) + "\n\n"
    )


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"]
)
@pytest.mark.parametrize("text_of", [as_list, as_lines])
def test_every_layout_and_encoding_gives_the_same_conversations(
    tmp_path: Path, text_of, encoding: str
) -> None:
    entries = [chat(name, 2) for name in ("a", "世界", "😀", 'q"uo\\te}]')]
    (tmp_path / "data").write_bytes(text_of(entries).encode(encoding))
    found, digest = first_exchanges(tmp_path / "data")
    assert [name for name, _, _ in found] == ["a", "世界", "😀", 'q"uo\\te}]']
    assert [question for _, question, _ in found] == [
        entry["conversations"][0]["value"] for entry in entries
    ]
    assert len(digest) == 64


TEXT = st.text('a"\\[]{},: 😀', max_size=6)
JSON = st.recursive(
    st.none() | st.integers() | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=6,
)


@given(st.lists(st.dictionaries(TEXT, JSON, max_size=3), max_size=3), st.booleans())
def test_half_an_emoji_anywhere_leaves_the_other_entries_as_they_are(
    tmp_path_factory: pytest.TempPathFactory, extra: list, ascii_only: bool
) -> None:
    """Entries of any shape between two conversations, and one that msgspec refuses."""
    path = tmp_path_factory.getbasetemp() / "half.json"
    entries = [chat("a", 1), *extra, {"odd": "HALF"}, chat("b", 1)]
    path.write_text(
        json.dumps(entries, ensure_ascii=ascii_only).replace("HALF", "\\ud83d"),
        encoding="utf-8",
        newline="",
    )
    assert [name for name, _, _ in first_exchanges(path)[0]] == ["a", "b"]


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (
            [json.dumps(chat("a", 1)), "", '{"id": "b", "conv'],
            r"line 3 of .* is not valid JSON",
        ),
        (
            [json.dumps(chat("a", 1)), "[1, 2]"],
            r"line 2 of .* is JSON, but not in ShareGPT's layout",
        ),
        (
            [json.dumps(chat("a", 1)), '{"messages": "hello"}'],
            r"line 2 of .* is JSON, but not in ShareGPT's layout",
        ),
        (["hello there"], r"line 1 of .* is not valid JSON"),
    ],
)
def test_a_broken_line_is_named_by_its_number(
    tmp_path: Path, lines: list[str], sentence: str
) -> None:
    (tmp_path / "chats.jsonl").write_text("\n".join(lines))
    with pytest.raises(UsageError, match=sentence):
        plan(tmp_path / "chats.jsonl", 1)


@pytest.mark.parametrize(
    "text",
    [
        '[{"a": "\\ud83d"} {"b": 1}]',
        '[{"a": "\\ud83d"}',
        '[{"a": "\\ud83d"}] x',
        "[" * 100_000,
    ],
)
def test_what_is_no_list_is_refused_whatever_else_it_has(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "chats.json").write_text(text)
    with pytest.raises(UsageError, match="not valid JSON"):
        first_exchanges(tmp_path / "chats.json")


def test_a_broken_entry_of_a_list_is_named(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        [
            chat("a", 1),
            {
                "conversations": [
                    {"from": "human", "value": 5},
                    {"from": "gpt", "value": "x"},
                ]
            },
        ],
    )
    with pytest.raises(
        UsageError,
        match=r"entry 2 of .*chats\.json is JSON, but not in ShareGPT's layout",
    ):
        plan(path, 2)
