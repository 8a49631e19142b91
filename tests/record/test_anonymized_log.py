"""`llama-load datasets anonymize`: logs of others as traces without texts."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from llama_load.ground.errors import UsageError
from llama_load.record import request_logs
from llama_load.record.request_logs import RequestLog
from llama_load.servers.serving.launch import Server
from llama_load.servers.token_blocks import EstimatedTokens
from tests.conftest import environment, run_program
from tests.record.test_record_command import asked, recorder, told, user

Entry = dict[str, Any]
SECRET = "the colour of the vault is mauve"
TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}  # fmt: skip


def anonymized(log: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    words = ["datasets", "anonymize", str(log), "--out", str(log.with_suffix(".trace"))]
    program = ["llama_load.cli.main", *words, *flags]
    return run_program(program, log.parent, environment())


def trace(log: Path) -> list[Entry]:
    text = log.with_suffix(".trace").read_text()
    return [json.loads(line) for line in text.splitlines()]


def as_request(body: Entry, answer: Entry, started_s: float, ended_s: float) -> Entry:
    """As a client's log."""
    return {
        "timestamp": started_s,
        "ended_at": ended_s,
        "request": {"url": "/v1/chat/completions", "body": body},
        "response": answer,
    }


def as_spend_log(body: Entry, answer: Entry, started_s: float, ended_s: float) -> Entry:
    """As LiteLLM_SpendLogs, whose bodies are texts in JSON."""
    return {
        "request_id": "chatcmpl-1",
        "call_type": "acompletion",
        "api_key": "88dc28d0f030c55ed4ab77ed8faf098196cb1c05df778539800c9f1243fe6b4b",
        "spend": 0.0,
        "prompt_tokens": answer["usage"]["prompt_tokens"],
        "completion_tokens": answer["usage"]["completion_tokens"],
        "startTime": datetime.fromtimestamp(started_s, UTC).isoformat(),
        "endTime": datetime.fromtimestamp(ended_s, UTC).isoformat(),
        "messages": "{}",
        "proxy_server_request": json.dumps(body),
        "response": json.dumps(answer),
    }


def parts(message: Entry) -> Entry:
    text = {"type": "text", "content": message["content"]}
    return {"role": message["role"], "parts": [text]}


def as_span(body: Entry, answer: Entry, started_s: float, ended_s: float) -> Entry:
    """As an exporter of OTLP/JSON, one export a line."""
    usage = answer["usage"]
    output = [{**parts(answer["choices"][0]["message"]), "finish_reason": "stop"}]
    facts = {
        "gen_ai.operation.name": {"stringValue": "chat"},
        "gen_ai.request.model": {"stringValue": "tiny"},
        "gen_ai.input.messages": {"stringValue": json.dumps([parts(each) for each in body["messages"]])},
        "gen_ai.output.messages": {"stringValue": json.dumps(output)},
        "gen_ai.tool.definitions": {"stringValue": json.dumps(body.get("tools", []))},
        "gen_ai.usage.input_tokens": {"intValue": str(usage["prompt_tokens"])},
        "gen_ai.usage.output_tokens": {"intValue": str(usage["completion_tokens"])},
    }  # fmt: skip
    span = {
        "spanId": f"{started_s}",
        "traceId": "t",
        "startTimeUnixNano": str(round(started_s * 1e9)),
        "endTimeUnixNano": str(round(ended_s * 1e9)),
        "attributes": [{"key": key, "value": value} for key, value in facts.items()],
    }
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


LAYOUTS: list[Callable[[Entry, Entry, float, float], Entry]] = [
    as_request,
    as_spend_log,
    as_span,
]


def test_a_log_becomes_the_trace_that_a_recording_of_the_same_requests_is(
    llama_server: Server, tmp_path: Path
) -> None:
    """On the real llama-server: lengths, blocks, turns and roles are the same, in each layout, also
    if the lines of the log are in another order."""
    exchanges = []
    out = tmp_path / "recorded.jsonl"
    with recorder(llama_server.url, out, "--digest") as running:
        for question in ("One?", "Two?"):
            system = {"role": "system", "content": f"{SECRET}. " * 12}
            history = [system, user(question)]
            for turn in range(3):
                body = {"model": "tiny", "messages": list(history), "tools": [TOOL]}
                began_s = time.time()
                answer = asked(running.url, history, tools=[TOOL])
                exchanges.append((body, answer, began_s, time.time()))
                history += [told(answer), user(f"And {turn}, please? " * 8)]
    same = ("input_length", "output_length", "turn", "hash_ids", "roles")
    recorded = [{name: line[name] for name in same} for line in running.lines]
    assert len({tuple(line["hash_ids"][:4]) for line in recorded}) == 1
    for layout in LAYOUTS:
        log = tmp_path / f"{layout.__name__}.jsonl"
        lines = [json.dumps(layout(*exchange)) for exchange in reversed(exchanges)]
        log.write_text("\n".join(lines))
        done = anonymized(log, "--host", llama_server.url)
        assert done.returncode == 0, done.stderr
        assert "6 requests of 2 conversations" in done.stdout
        assert "tokens come from the server" in done.stdout
        found = trace(log)
        assert [{name: line[name] for name in same} for line in found] == recorded
        assert [line["parent_chat_id"] for line in found] == [-1, 1, 2, -1, 4, 5]
        waits = [line.get("wait_s") for line in found]
        assert waits[0] is waits[3] is None
        assert all(0 <= wait < 1 for wait in (*waits[1:3], *waits[4:]))
        text = log.with_suffix(".trace").read_text()
        assert "mauve" not in text and "please" not in text and "88dc" not in text


def test_what_is_no_request_is_counted_and_left_out(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    entries = [
        {"messages": [user("Without a time")]},
        {"timestamp": 5, "messages": [user("Good")]},
        {"startTime": "2026-01-01T00:00:00Z", "messages": "{}", "call_type": "acompletion"},
        {"timestamp": 6, "model": "m", "input": "A text", "url": "/v1/embeddings"},
        {"timestamp": 7000000000000, "prompt": "Later, in ms"},
    ]  # fmt: skip
    log.write_text("\n".join(map(json.dumps, entries)))
    done = anonymized(log)
    assert done.returncode == 0, done.stderr
    assert [line["timestamp"] for line in trace(log)] == [0, 6999999995]
    assert "tokens come from an estimate" in done.stdout
    assert "Left out, 1 time: a request without a time" in done.stdout
    assert "store_prompts_in_spend_logs" in done.stdout
    assert "embeddings: a trace has no such requests" in done.stdout
    again = anonymized(log)
    assert again.returncode == 2
    assert "exists; choose another --out" in again.stderr


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty"),
        ("no JSON", "not valid JSON"),
        ("[1]", "not a request of OpenAI's API"),
        ('{"messages": [{"role": "user"}]}', "without a time"),
        ('{"resourceSpans": 5}', "no JSON export of OpenTelemetry spans"),
    ],
)
def test_a_log_without_requests_is_refused_by_a_sentence(
    text: str, sentence: str, tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(text)
    done = anonymized(log)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert not log.with_suffix(".trace").exists()


def test_an_estimate_begins_alike_where_texts_do() -> None:
    tokens = EstimatedTokens()
    counted = []
    for end in ("One", "Two"):
        body = {"messages": [user("A long beginning. " * 20 + end)]}
        counted.append(tokens.tokens(body, None).tokens)
    one, two = counted
    common = sum(a == b for a, b in zip(one, two, strict=True))
    assert common == len(one) - 1


def span(number: int) -> Entry:
    said = '[{"role": "user", "parts": [{"type": "text", "content": "a"}]}]'
    facts = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": said,
        "gen_ai.output.messages": said.replace("user", "assistant"),
    }
    attributes = [
        {"key": key, "value": {"stringValue": text}} for key, text in facts.items()
    ]
    started_ns = 10**18 + number
    return {
        "spanId": str(number),
        "traceId": str(number),
        "startTimeUnixNano": str(started_ns),
        "endTimeUnixNano": str(started_ns + 1),
        "attributes": attributes,
    }


def in_turns(folder: Path, exports: int, spans: int) -> Path:
    """A log whose exports have spans in turns."""
    log = folder / "spans.jsonl"
    lines = []
    for first in range(exports):
        own = [span(first + exports * turn) for turn in range(spans)]
        export = {"resourceSpans": [{"scopeSpans": [{"spans": own}]}]}
        lines.append(json.dumps(export))
    log.write_text("\n".join(lines))
    return log


def test_requests_of_several_exports_in_turns_are_decoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_logs, "MOST_TIMES_DECODED", 1)
    log = RequestLog(in_turns(tmp_path, 20, 5))
    assert [seen.started_ns - 10**18 for seen in log] == list(range(100))


def test_a_log_that_would_be_decoded_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its exports do not fit the memory, and have their requests in turns."""
    monkeypatch.setattr(request_logs, "MOST_KEPT_BYTES", 1)
    log = RequestLog(in_turns(tmp_path, 3, 40))
    with pytest.raises(UsageError, match="another order than that of their times"):
        list(log)
