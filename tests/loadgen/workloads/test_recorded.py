"""Whole conversations: all roles, tool calls and results, sub-agents and waits; what is not
understood is refused by its line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.custom import Custom
from llama_load.loadgen.workloads.prompt_plan import Plan, PlanRequest, Traffic
from llama_load.loadgen.workloads.recorded import Conversations
from llama_load.loadgen.workloads.sharegpt import ShareGPT
from llama_load.loadgen.workloads.think_time import think_time
from llama_load.servers.prompt import Message, Prompt, ToolCall
from scripts.make_samples import FOLDER, samples


class Words:
    source = "words"

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]


TOOL = {
    "type": "function",
    "function": {"name": "read", "parameters": {"type": "object"}},
}


def call(call_id: str, **arguments: str) -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": "read", "arguments": json.dumps(arguments)},
    }


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


AGENT = {
    "id": "a",
    "tools": [TOOL],
    "tool_choice": "auto",
    "messages": [
        said("system", "be brief"),
        said("user", "mend it"),
        said(
            "assistant", None, tool_calls=[call("c1", path="x"), call("c2", path="y")]
        ),
        said("tool", "one two three", tool_call_id="c1", delay_s=0.5),
        said("tool", "four", tool_call_id="c2", delay_s=0.25),
        said("assistant", "done it"),
        said("user", "thanks", delay_s=3),
    ],
}


def write(folder: Path, *lines: Any, name: str = "talks.jsonl") -> Path:
    path = folder / name
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


def plan(path: Path, num_prompts: int, workload: Any = None, **changed: Any) -> Plan:
    wanted = {
        "num_prompts": num_prompts,
        "fill": False,
        "warmup": 0,
        "seed": 0,
        "counter": Words(),
        "dataset_path": str(path),
    }
    return (workload or Conversations()).plan(PlanRequest(**wanted | changed))


def test_a_history_is_as_long_as_the_answers_that_a_flag_sets(tmp_path: Path) -> None:
    """2 words, an answer of 50 (--max-tokens) instead of the recorded 3, 1 word; and a file of one
    object over several lines."""
    talk = {
        "messages": [
            said("user", "how much"),
            said("assistant", "five in all"),
            said("user", "really"),
        ]
    }
    path = tmp_path / "talk.json"
    path.write_text(json.dumps(talk, indent=1))
    assert [
        prompt.prompt_tokens for prompt in plan(path, 2, answer_len=50).measured
    ] == [2, 53]
    assert [prompt.prompt_tokens for prompt in plan(path, 2).measured] == [2, 6]


def test_every_turn_keeps_its_messages_and_the_recorded_answer(tmp_path: Path) -> None:
    first, second, third = plan(write(tmp_path, AGENT), 3).measured
    calls = (
        ToolCall("c1", "read", '{"path": "x"}'),
        ToolCall("c2", "read", '{"path": "y"}'),
    )
    assert first.history == (Message("system", "be brief"),)
    assert first.added == (Message("user", "mend it"),)
    assert first.recorded == Message("assistant", "", calls=calls)
    assert [message.call_id for message in second.added] == ["c1", "c2"]
    assert second.history == (*first.history, *first.added, first.recorded)
    assert (second.answer, third.answer) == ("done it", None)
    assert [prompt.delay_s for prompt in (first, second, third)] == [None, 0.75, 3.0]
    assert {json.dumps(dict(prompt.fields)) for prompt in (first, second, third)} == {
        json.dumps({"tools": [TOOL], "tool_choice": "auto"})
    }
    assert [
        (prompt.turn, prompt.more, prompt.turns) for prompt in (first, second, third)
    ] == [(1, 2, 3), (2, 1, 3), (3, 0, 3)]


def test_tools_count_as_tokens_of_every_prompt(tmp_path: Path) -> None:
    """be brief: 2, mend it: 2; the tool is 10 words of JSON; a call is its name and two words of
    arguments, and 32 for its marks."""
    first, second, _ = plan(write(tmp_path, AGENT), 3).measured
    tools = len(json.dumps([TOOL]).split())
    assert first.prompt_tokens == tools + 2 + 2
    assert first.max_tokens == 2 * (1 + 2 + 32)
    # At most: an answer as long as that without a call gets the recorded calls, too.
    assert second.prompt_tokens == tools + 4 + first.max_tokens + 2 * (1 + 2 + 32) + 4


def test_sub_agents_come_between_turns_with_histories_of_their_own(
    tmp_path: Path,
) -> None:
    talk = json.loads(json.dumps(AGENT))
    talk["messages"][2]["agents"] = [
        {
            "name": "one",
            "messages": [
                said("user", "q1"),
                said("assistant", "a1"),
                said("user", "q2"),
                said("assistant", "a2"),
            ],
        },
        {"name": "two", "messages": [said("user", "q3"), said("assistant", "a3")]},
    ]
    prompts = plan(write(tmp_path, talk), 6).measured
    assert [(prompt.agent, prompt.turn) for prompt in prompts] == [
        (None, 1),
        ("one", 1),
        ("one", 2),
        ("two", 1),
        (None, 2),
        (None, 3),
    ]
    assert prompts[2].history == (Message("user", "q1"), Message("assistant", "a1"))
    assert prompts[3].history == ()
    assert not prompts[1].fields
    assert prompts[0].more == 5


def test_an_image_of_any_turn_is_sent_with_every_later_one(tmp_path: Path) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    talk = {
        "messages": [
            said("user", [picture, {"type": "text", "text": "what?"}]),
            said("assistant", "x"),
            said("user", "and?"),
        ]
    }
    first, second = plan(write(tmp_path, talk), 2).measured
    assert first.added[0].images == first.images
    assert second.history[0].images == second.images == first.images
    assert second.added[0].images == ()


BROKEN = {
    "role": ([said("narrator", "x")], "message 1 has the role 'narrator'; known are"),
    "no question": ([said("system", "x")], "has no question"),
    "result of no call": (
        [said("user", "x"), said("tool", "y", tool_call_id="c9")],
        "message 2 is the result of the tool call 'c9'",
    ),
    "result without id": (
        [said("user", "x"), said("tool", "y")],
        "needs a tool_call_id",
    ),
    "call without result": (
        [
            said("user", "x"),
            said("assistant", None, tool_calls=[call("c1")]),
            said("assistant", "y"),
        ],
        "before the result of the tool call 'read'",
    ),
    "two answers": (
        [said("user", "x"), said("assistant", "y"), said("assistant", "z")],
        "message 3 is a second answer in a row",
    ),
    "empty answer": (
        [said("user", "x"), said("assistant", "")],
        "answer without text and tool calls",
    ),
    "audio": (
        [said("user", [{"type": "input_audio", "input_audio": {}}])],
        "has a part of the type 'input_audio'",
    ),
    "remote image": (
        [
            said(
                "user", [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]
            )
        ],
        "no data URL",
    ),
    "unknown key": (
        [said("user", "x", audio={"id": "1"})],
        "has 'audio', which is not understood",
    ),
    "call of the user": (
        [said("user", "x", tool_calls=[call("c1")])],
        "only an assistant calls tools",
    ),
    "call without name": (
        [
            said("user", "x"),
            said("assistant", "", tool_calls=[{"id": "1", "function": {}}]),
        ],
        "tool call 1 must be",
    ),
    "same id twice": (
        [said("user", "x"), said("assistant", "", tool_calls=[call("c"), call("c")])],
        "two tool calls with the same id",
    ),
    "negative delay": ([said("user", "x", delay_s=-1)], "delay_s -1"),
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("workload", [Conversations, Custom])
def test_what_is_not_understood_is_refused_with_its_line(
    tmp_path: Path, case: str, workload: Any
) -> None:
    messages, why = BROKEN[case]
    path = write(tmp_path, {"messages": [said("user", "fine")]}, {"messages": messages})
    with pytest.raises(UsageError) as refused:
        plan(path, 1, workload())
    assert f"line 2 of {path}" in str(refused.value)
    assert why in str(refused.value)


def test_prompts_of_ones_own_are_the_last_turn_with_all_before_it(
    tmp_path: Path,
) -> None:
    """A tool's result as the last message is a turn as well: nothing is cut from the end."""
    talk = {**AGENT, "messages": AGENT["messages"][:5]}
    (prompt,) = plan(write(tmp_path, talk), 1, Custom()).measured
    assert [message.role for message in prompt.history] == [
        "system",
        "user",
        "assistant",
    ]
    assert [message.role for message in prompt.added] == ["tool", "tool"]
    assert prompt.fields["tools"] == [TOOL]


def test_chat_questions_refuse_conversations_with_tools(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"line 1 of .* uses tools, .* locustfiles/conversations"
    ):
        plan(write(tmp_path, AGENT), 1, ShareGPT(), traffic=Traffic(turns=None))


def test_a_conversation_is_sent_as_far_as_it_fits_and_counted(tmp_path: Path) -> None:
    found = plan(
        write(tmp_path, AGENT), 3, fits=lambda prompt, answer: prompt + answer < 85
    )
    assert len(found.measured) == 1
    assert found.measured[0].more == 0
    assert found.facts.shortened == 1


def test_think_times_are_drawn_for_users_and_left_as_recorded_for_tools(
    tmp_path: Path,
) -> None:
    found = plan(write(tmp_path, AGENT), 3).with_think_times(
        think_time("uniform:10,20"), 0
    )
    assert [prompt.delay_s for prompt in found.measured[:2]] == [None, 0.75]
    assert 10 <= (found.measured[2].delay_s or 0) <= 20


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("soon", "must look like"),
        ("uniform:5,1", "smaller number first"),
        ("lognormal:0,1", "median above 0"),
        ("constant:-1", "must"),
    ],
)
def test_a_think_time_that_is_none_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        think_time(text)


def test_a_lognormal_think_time_has_the_median_that_is_given() -> None:
    import random
    import statistics

    draw = random.Random(0)
    times = [think_time("lognormal:4,1").draw(draw) for _ in range(4000)]
    assert statistics.median(times) == pytest.approx(4, rel=0.06)
    assert statistics.mean(times) == pytest.approx(4 * 2.718281828**0.5, rel=0.1)


def test_think_times_of_a_file_name_the_line_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "times.txt"
    path.write_text("1.5\n\n2\n")
    assert think_time(f"file:{path}").numbers == (1.5, 2.0)
    path.write_text("1.5\nlong\n")
    with pytest.raises(UsageError, match="line 2 of"):
        think_time(f"file:{path}")


# ---------------------------------------------------------------------- spans and traces


def test_spans_are_read_as_the_messages_that_they_came_from() -> None:
    """The bundled spans are the first agents of the bundled messages."""
    spans = plan(FOLDER / "agent_spans.json", 15).measured
    messages = [
        prompt
        for prompt in plan(FOLDER / "agent_messages.jsonl", 15).measured
        if prompt.agent is None
    ][:15]

    def content(prompt: Prompt) -> list[tuple[str, str]]:
        return [
            (message.role, message.text) for message in (*prompt.history, *prompt.added)
        ]

    assert [content(prompt) for prompt in spans[:5]] == [
        content(prompt) for prompt in messages[:5]
    ]
    assert [prompt.calls for prompt in spans[:5]] == [
        prompt.calls for prompt in messages[:5]
    ]
    assert [prompt.delay_s for prompt in spans[1:5]] == pytest.approx(
        [prompt.delay_s for prompt in messages[1:5]]
    )
    assert spans[0].fields["tools"] == messages[0].fields["tools"]


def test_spans_without_messages_say_how_to_record_them(tmp_path: Path) -> None:
    export = json.loads((FOLDER / "agent_spans.json").read_text())
    span = export["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    span["attributes"] = [
        each for each in span["attributes"] if each["key"] != "gen_ai.input.messages"
    ]
    with pytest.raises(UsageError, match="CAPTURE_MESSAGE_CONTENT"):
        plan(write(tmp_path, export, name="spans.json"), 1)


def test_a_trace_grows_by_what_is_new_and_begins_again_after_a_compaction() -> None:
    """Turn 7 of the bundled traces drops what came before, so its prompt is whole again."""
    found = plan(FOLDER / "agent_traces.jsonl", 9)
    prompts = found.measured
    recorded = json.loads((FOLDER / "agent_traces.jsonl").read_text().splitlines()[0])[
        "requests"
    ]
    own = [prompt for prompt in prompts if prompt.agent is None]
    for prompt, entry in zip(
        own, (entry for entry in recorded if entry["type"] == "s"), strict=True
    ):
        assert prompt.prompt_tokens == pytest.approx(entry["in"], abs=8)
        assert prompt.max_tokens == entry["out"]
    assert [prompt.resets for prompt in own] == [False] * 6 + [True, False]
    assert [prompt.agent for prompt in prompts].index("explorer 1") == 2
    assert own[1].history[0] == own[0].added[0]


def test_traces_with_the_same_blocks_begin_with_the_same_text() -> None:
    prompts = plan(FOLDER / "agent_traces.jsonl", 20).measured
    first, other = [
        prompt for prompt in prompts if prompt.turn == 1 and prompt.agent is None
    ][:2]
    assert first.text != other.text
    shared = len(first.text.split()) // 3
    assert first.text.split()[:shared] == other.text.split()[:shared]


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"type": "x", "in": 1, "out": 1}, "request 1 has the type 'x'"),
        ({"type": "s", "out": 1}, "request 1 needs the tokens"),
        ({"type": "s", "in": "many", "out": 1}, "request 1 is not understood"),
        ({"type": "subagent", "requests": []}, "sub-agent before the first request"),
    ],
)
def test_a_request_of_a_trace_that_is_not_understood_is_named(
    tmp_path: Path, entry: Any, why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        plan(write(tmp_path, {"requests": [entry]}), 1)


def test_another_layout_is_refused_by_the_name_of_its_field(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError,
        match=r"line 1 of .* has 'article', which is not understood.*--columns",
    ):
        plan(write(tmp_path, {"article": "hello"}), 1)


def test_the_bundled_samples_are_what_the_script_writes() -> None:
    for name, text in samples():
        assert (FOLDER / name).read_text() == text, (
            f"run python -m scripts.make_samples ({name})"
        )
