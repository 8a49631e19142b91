"""Writes the sample traces of datasets/: `python -m scripts.make_samples`. All of it is made up
(CC0)."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "datasets"
FILES = (
    "timer.py",
    "queue.py",
    "parser.py",
    "cache.py",
    "report.py",
    "server.py",
    "config.py",
    "store.py",
)
FAULTS = (
    "loses the last line of a file that does not end with a line break",
    "counts the same request twice after a retry",
    "waits for ever when the list is empty",
    "compares two times of different zones",
    "leaves a temporary file behind when it is interrupted",
    "rounds a rate down to zero below one a second",
)
NAMES = (
    "read",
    "count",
    "merge",
    "close",
    "open",
    "next",
    "total",
    "limit",
    "parse",
    "write",
    "first",
    "last",
)
TOOLS = (
    ("read_file", "Read a file of the project.", {"path": "The file's path."}),
    (
        "edit_file",
        "Replace a text in a file by another one.",
        {"path": "The file's path.", "old": "The text.", "new": "Its successor."},
    ),
    (
        "run_tests",
        "Run the tests of a file and return what failed.",
        {"path": "The file's path."},
    ),
)


def _tools() -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": description,
                "parameters": {
                    "type": "object",
                    "properties": {
                        key: {"type": "string", "description": text}
                        for key, text in properties.items()
                    },
                    "required": list(properties),
                },
            },
        }
        for name, description, properties in TOOLS
    ]


def _code(draw: random.Random, lines: int) -> str:
    """Lines that look like Python."""
    body = []
    for _ in range(lines):
        one, two, three = draw.sample(NAMES, 3)
        body.append(
            draw.choice(
                (
                    f"    {one}_{two} = {three}({one}, {draw.randrange(100)})",
                    f"    if {one} > {two}:",
                    f"        {three}()",
                )
            )
        )
    return f"def {draw.choice(NAMES)}({draw.choice(NAMES)}):\n" + "\n".join(body)


def _call(number: int, name: str, **arguments: str) -> list[dict[str, Any]]:
    return [
        {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
    ]


def _agent(number: int) -> dict[str, Any]:
    """An agent that reads a file, edits it and runs its tests; every fourth one has two
    sub-agents."""
    draw = random.Random(f"agent {number}")
    file, fault = draw.choice(FILES), draw.choice(FAULTS)
    first: dict[str, Any] = {
        "role": "assistant",
        "content": f"I read {file} first.",
        "tool_calls": _call(1, "read_file", path=file),
    }
    if number % 4 == 3:
        first["agents"] = [_sub_agent(draw, kind) for kind in ("explorer", "tester")]
    old, new = draw.sample(NAMES, 2)
    messages = [
        {
            "role": "system",
            "content": "You are a coding agent. Read before you edit, edit little, and test what "
            "you have edited.",
        },
        {
            "role": "user",
            "content": f"{file} {fault}. Please find out why, and mend it.",
        },
        first,
        {
            "role": "tool",
            "tool_call_id": "call_1",
            "content": _code(draw, 20 + draw.randrange(40)),
            "delay_s": 0.1,
        },
        {
            "role": "assistant",
            "content": f"The fault is in {old}: I replace it.",
            "tool_calls": _call(
                2, "edit_file", path=file, old=f"{old}()", new=f"{new}()"
            ),
        },
        {
            "role": "tool",
            "tool_call_id": "call_2",
            "content": "1 replacement",
            "delay_s": 0.05,
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": _call(3, "run_tests", path=file),
        },
        {
            "role": "tool",
            "tool_call_id": "call_3",
            "content": f"{draw.randrange(5, 60)} passed in {draw.random():.2f} s",
            "delay_s": 0.8,
        },
        {
            "role": "assistant",
            "content": f"{file} is mended: {old} was called where {new} belongs. Its tests pass.",
        },
        {
            "role": "user",
            "content": f"Is there another place that {fault}?",
            "delay_s": 2.5,
        },
        {
            "role": "assistant",
            "content": f"I have looked for calls of {old} in the other files: there is none.",
        },
    ]
    return {"id": f"agent-{number}", "tools": _tools(), "messages": messages}


def _sub_agent(draw: random.Random, kind: str) -> dict[str, Any]:
    file = draw.choice(FILES)
    return {
        "name": kind,
        "messages": [
            {
                "role": "system",
                "content": f"You are the {kind} of a coding agent. Answer in one sentence.",
            },
            {
                "role": "user",
                "content": f"Which functions of {file} matter here?\n\n{_code(draw, 15)}",
            },
            {
                "role": "assistant",
                "content": f"Two of them: {draw.choice(NAMES)} and {draw.choice(NAMES)}.",
            },
            {"role": "user", "content": "Is either of them called from elsewhere?"},
            {"role": "assistant", "content": "No."},
        ],
    }


def _otel() -> dict[str, Any]:
    """The first agents as an export of spans: the operation chat, with all messages."""
    spans = []
    for number in range(3):
        agent, at_ns = _agent(number), 1_700_000_000_000_000_000 + number * 60 * 10**9
        messages = [
            message for message in agent["messages"] if message["role"] != "system"
        ]
        for place, message in enumerate(messages):
            if message["role"] != "assistant":
                at_ns += int(message.get("delay_s", 0.0) * 1e9)
                continue
            spans.append(_span(number, agent, messages[:place], message, at_ns))
            at_ns += 10**9
    scope = {"scope": {"name": "sample"}, "spans": spans}
    return {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [scope]}]}


def _span(
    number: int,
    agent: dict[str, Any],
    before: list[dict[str, Any]],
    reply: dict[str, Any],
    at_ns: int,
) -> dict[str, Any]:
    facts = {
        "gen_ai.operation.name": "chat",
        "gen_ai.conversation.id": agent["id"],
        "gen_ai.system_instructions": json.dumps(
            [{"type": "text", "content": agent["messages"][0]["content"]}]
        ),
        "gen_ai.input.messages": json.dumps([_parts(message) for message in before]),
        "gen_ai.output.messages": json.dumps(
            [_parts(reply) | {"finish_reason": "stop"}]
        ),
        "gen_ai.tool.definitions": json.dumps(
            [{"type": "function", **tool["function"]} for tool in agent["tools"]]
        ),
    }
    return {
        "traceId": f"{number + 1:032x}",
        "spanId": f"{number + 1:08x}{len(before):08x}",
        "name": "chat",
        "startTimeUnixNano": str(at_ns),
        "endTimeUnixNano": str(at_ns + 10**9),
        "attributes": [
            {"key": key, "value": {"stringValue": value}}
            for key, value in facts.items()
        ],
    }


def _parts(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        return {
            "role": "tool",
            "parts": [
                {
                    "type": "tool_call_response",
                    "id": message["tool_call_id"],
                    "response": message["content"],
                }
            ],
        }
    parts: list[dict[str, Any]] = (
        [{"type": "text", "content": message["content"]}] if message["content"] else []
    )
    for call in message.get("tool_calls", ()):
        function = call["function"]
        parts.append(
            {
                "type": "tool_call",
                "id": call["id"],
                "name": function["name"],
                "arguments": json.loads(function["arguments"]),
            }
        )
    return {"role": message["role"], "parts": parts}


def _weka(number: int) -> dict[str, Any]:
    """An agent whose context grows by blocks, with a sub-agent and a compaction."""
    draw, block = random.Random(f"trace {number}"), 64
    shared = list(range(1, 9))  # system prompt and tools, the same in all traces
    ids, fresh, at_s = (
        list(shared),
        iter(range(1000 * (number + 1), 1000 * (number + 2))),
        0.0,
    )
    requests: list[dict[str, Any]] = []
    for turn in range(8):
        if turn == 6:
            ids = list(shared)
        ids += [next(fresh) for _ in range(draw.randrange(2, 6))]
        out, think = draw.randrange(20, 90), round(draw.random(), 2)
        requests.append(
            {
                "t": round(at_s, 2),
                "type": "s",
                "in": len(ids) * block - draw.randrange(block),
                "out": out,
                "hash_ids": list(ids),
            }
            | {"think_time": think, "api_time": 1.0, "stop": "tool_use"}
        )
        at_s += 1.0 + think
        if turn == 1:
            inner = [*shared, next(fresh), next(fresh)]
            own = [
                {
                    "t": 0.0,
                    "type": "s",
                    "in": len(inner) * block,
                    "out": 40,
                    "hash_ids": inner,
                }
            ]
            requests.append(
                {
                    "t": round(at_s, 2),
                    "type": "subagent",
                    "agent_id": "explorer",
                    "requests": own,
                }
            )
    return {
        "id": f"trace-{number}",
        "block_size": block,
        "hash_id_scope": "global",
        "requests": requests,
    }


def _arrivals() -> list[tuple[float, int, int, list[int]]]:
    """Seconds, prompt tokens, answer tokens, blocks of 16 tokens; every other request continues an
    earlier one."""
    draw = random.Random("arrivals")
    made: list[tuple[float, int, int, list[int]]] = []
    at_s, fresh = 0.0, iter(range(10**6))
    for number in range(40):
        at_s += draw.expovariate(4.0)
        ids = list(made[number - 2][3]) if number % 2 and number > 2 else []
        ids += [next(fresh) for _ in range(draw.randrange(8, 24))]
        made.append(
            (
                round(at_s, 3),
                len(ids) * 16 - draw.randrange(16),
                draw.randrange(8, 64),
                ids,
            )
        )
    return made


def samples() -> Iterator[tuple[str, str]]:
    """The name and the text of each sample."""
    arrivals = _arrivals()
    yield "agent_messages.jsonl", _lines(_agent(number) for number in range(24))
    yield "agent_spans.json", json.dumps(_otel(), indent=1) + "\n"
    yield "agent_traces.jsonl", _lines(_weka(number) for number in range(4))
    yield (
        "mooncake_sample.jsonl",
        _lines(
            {
                "timestamp": round(at_s * 1000),
                "input_length": prompt,
                "output_length": answer,
                "hash_ids": ids[: -(-prompt // 512)],
            }
            for at_s, prompt, answer, ids in arrivals
        ),
    )
    yield (
        "bailian_sample.jsonl",
        _lines(
            {
                "chat_id": number,
                "parent_chat_id": number - 2 if number % 2 and number > 2 else -1,
                "timestamp": at_s,
            }
            | {
                "input_length": prompt,
                "output_length": answer,
                "type": "text",
                "turn": 1,
                "hash_ids": ids,
            }
            for number, (at_s, prompt, answer, ids) in enumerate(arrivals)
        ),
    )
    rows = [
        f"{at_s:.3f},ChatGPT,{prompt},{answer},{prompt + answer},Conversation log"
        for at_s, prompt, answer, _ in arrivals
    ]
    yield (
        "burstgpt_sample.csv",
        "\n".join(
            [
                "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
                *rows,
            ]
        )
        + "\n",
    )
    rows = [
        f"2024-05-10 00:00:{at_s:010.7f},{prompt},{answer}"
        for at_s, prompt, answer, _ in arrivals
    ]
    yield (
        "azure_sample.csv",
        "\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]) + "\n",
    )


def _lines(entries: Any) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


if __name__ == "__main__":
    for name, text in samples():
        (FOLDER / name).write_text(text, encoding="utf-8")
