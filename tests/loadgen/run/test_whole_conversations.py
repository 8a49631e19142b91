"""Whole conversations on the wire: what the server gets in every turn, and what the records say of
it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conftest import REPOSITORY, Finished
from tests.tool_server import ToolServer

CONVERSATIONS = REPOSITORY / "locustfiles" / "conversations.py"
AGENT = REPOSITORY / "locustfiles" / "agent.py"
TOOL = {
    "type": "function",
    "function": {"name": "read", "parameters": {"type": "object"}},
}


def call(call_id: str) -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": "read", "arguments": "{}"},
    }


TALK = {
    "id": "mend",
    "tools": [TOOL],
    "messages": [
        {"role": "user", "content": "mend it"},
        {"role": "assistant", "content": None, "tool_calls": [call("recorded")]},
        {
            "role": "tool",
            "tool_call_id": "recorded",
            "content": "the file",
            "delay_s": 0.1,
        },
        {"role": "assistant", "content": "done"},
    ],
}


def write(folder: Path, *talks: Any) -> str:
    path = folder / "talks.jsonl"
    path.write_text("".join(json.dumps(talk) + "\n" for talk in talks))
    return str(path)


def calls_read(body: dict[str, Any]) -> dict[str, Any]:
    """Calls the tool until it has its result."""
    if body["messages"][-1]["role"] == "tool":
        return {"content": "I have read it"}
    function = {"name": "read", "arguments": '{"path": "a"}'}
    return {
        "tool_calls": [
            {"index": 0, "id": "of the model", "type": "function", "function": function}
        ]
    }


def run(
    run_locust: Callable[..., Finished],
    tmp_path: Path,
    server: str,
    *more: str,
    talks: Any = (TALK,),
) -> Finished:
    arguments = (
        "-u",
        "1",
        "--warmup",
        "0",
        "--seed",
        "0",
        "--dataset-path",
        write(tmp_path, *talks),
        *more,
    )
    return run_locust(server, *arguments, locustfile=CONVERSATIONS)


def test_recorded_results_follow_the_models_own_calls_under_its_ids(
    run_locust: Any, tmp_path: Path
) -> None:
    with ToolServer(calls_read) as server:
        done = run(run_locust, tmp_path, server.url, "--num-prompts", "2")
    first, second = server.bodies
    assert first["tools"] == second["tools"] == [TOOL]
    assert [message["role"] for message in second["messages"]] == [
        "user",
        "assistant",
        "tool",
    ]
    assert second["messages"][1]["tool_calls"] == [
        {
            "id": "of the model",
            "type": "function",
            "function": {"name": "read", "arguments": '{"path": "a"}'},
        }
    ]
    assert second["messages"][2] == {
        "role": "tool",
        "tool_call_id": "of the model",
        "content": "the file",
    }
    records = done.records
    assert [
        records.strings(name)
        for name in (
            "turn",
            "turns",
            "tool_calls",
            "recorded_calls",
            "conversation_start",
        )
    ] == [[1, 2], [2, 2], [1, 0], [1, 0], [0, 0]]
    assert records.strings("delay_ms") == [None, 100.0]
    assert records.numbers("waited_ms")[1] >= 100.0


def test_a_turn_that_the_model_does_not_take_gets_the_recorded_call(
    run_locust: Any, tmp_path: Path
) -> None:
    with ToolServer(lambda _: {"content": "no tools for me"}) as server:
        done = run(run_locust, tmp_path, server.url, "--num-prompts", "2")
    answer, result = server.bodies[1]["messages"][1:]
    assert (answer["content"], answer["tool_calls"]) == (
        "no tools for me",
        [call("recorded")],
    )
    assert result["tool_call_id"] == "recorded"
    assert (
        done.records.strings("tool_calls"),
        done.records.strings("recorded_calls"),
    ) == ([0, 0], [1, 0])


def test_a_recorded_history_is_sent_as_it_was_recorded(
    run_locust: Any, tmp_path: Path
) -> None:
    with ToolServer(calls_read) as server:
        run(
            run_locust,
            tmp_path,
            server.url,
            "--num-prompts",
            "2",
            "--history",
            "recorded",
        )
    assert server.bodies[1]["messages"] == [
        {key: value for key, value in message.items() if key != "delay_s"}
        for message in TALK["messages"][:3]
    ]


def test_sub_agents_run_side_by_side_and_the_next_turn_waits_for_all(
    run_locust: Any, tmp_path: Path, llama_server: Any
) -> None:
    """On the real llama-server: two sub-agents of two turns and one."""
    talk = json.loads(json.dumps(TALK))
    two = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "x"},
        {"role": "user", "content": "two"},
    ]
    talk["messages"][1]["agents"] = [
        {"name": "a", "messages": two},
        {"name": "b", "messages": two[:1]},
    ]
    records = run(
        run_locust,
        tmp_path,
        llama_server.url,
        "--num-prompts",
        "5",
        "--output-len",
        "160",
        talks=(talk,),
    ).records
    rows = dict(
        zip(
            zip(records.strings("agent"), records.strings("turn"), strict=True),
            range(5),
            strict=True,
        )
    )
    began, ended = (
        records.instants("started_mono_ns"),
        records.instants("ended_mono_ns"),
    )
    a1, a2, b1, last = (
        rows[each] for each in (("a", 1), ("a", 2), ("b", 1), (None, 2))
    )
    assert records.strings("status") == ["ok"] * 5
    assert began[b1] < ended[a1]  # beside each other
    assert began[a2] >= ended[a1]
    assert began[last] >= max(ended[a2], ended[b1])
    assert set(records.strings("conversation_start")) == {0}


def test_a_synthetic_agent_grows_by_its_tools_outputs(
    run_locust: Any, llama_server: Any
) -> None:
    """On the real llama-server, whose template renders the tools. A round adds an answer of 16
    tokens, a call and its marks, and 100 tokens of output."""
    shape = (
        "--rounds",
        "3",
        "--system-tokens",
        "200",
        "--tool-output-tokens",
        "100",
        "--output-len",
        "16",
        "--tools",
        "2",
    )
    done = run_locust(
        llama_server.url, "-u", "1", "--num-prompts", "4", *shape, locustfile=AGENT
    )
    records = done.records.ok()
    tokens = dict(
        zip(
            zip(
                records.strings("conversation_start"),
                records.strings("turn"),
                strict=True,
            ),
            records.numbers("prompt_tokens"),
            strict=True,
        )
    )
    assert len(tokens) == 4
    for start in {start for start, _ in tokens}:
        steps = [tokens[start, turn + 1] - tokens[start, turn] for turn in (1, 2, 3)]
        assert all(100 + 16 <= step <= 100 + 16 + 100 for step in steps), steps
        assert tokens[start, 1] >= 200 + 200
    later = records.numbers("turn") > 1
    # The history of the turn before comes from the cache.
    assert (records.numbers("cached_tokens")[later] > 400).all()


def test_conversations_arrive_at_a_rate_and_turns_follow_their_waits(
    run_locust: Any, tmp_path: Path
) -> None:
    """Four a second, evenly, for a second: four conversations of two turns, whose recorded wait of
    0.1 s is twice as long."""
    load = (
        "--conversation-rate",
        "240",
        "--arrival",
        "constant",
        "-t",
        "1",
        "--speed",
        "0.5",
    )
    arguments = (
        "--warmup",
        "0",
        "--seed",
        "0",
        "--dataset-path",
        write(tmp_path, TALK),
        *load,
    )
    with ToolServer(calls_read) as server:
        done = run_locust(server.url, *arguments, locustfile=CONVERSATIONS)
    records = done.records
    assert sorted(
        zip(records.strings("conversation_start"), records.strings("turn"), strict=True)
    ) == [(start, turn) for start in (0, 2, 4, 6) for turn in (1, 2)]
    scheduled_ns = sorted(
        records.where(records.equals("turn", 1)).instants("scheduled_mono_ns")
    )
    assert [at_ns - scheduled_ns[0] for at_ns in scheduled_ns] == [
        place * 10**9 // 4 for place in range(4)
    ]
    assert not records.where(records.equals("turn", 2)).has("scheduled_mono_ns").any()
    assert set(records.strings("delay_ms")) == {None, 200.0}
    assert done.summary["llama_load"]["conversations"]["ended"] == 4


def test_a_load_in_conversations_needs_conversations(
    run_locust: Any, llama_server: Any
) -> None:
    done = run_locust(llama_server.url, "--conversations", "8", "--num-prompts", "8")
    assert done.code == 2
    assert "--conversations needs conversations of several turns" in done.err
