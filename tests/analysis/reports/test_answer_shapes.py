"""A run of each shape of answer comes to its end: from the bytes of the server to the written
reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from llama_load.analysis.figures.check import Check, information, limited
from llama_load.analysis.reports.write import markdown, write_html, write_reports
from llama_load.analysis.results.results import analyze
from llama_load.run_folder import Run
from llama_load.run_folder.observed.record import RequestRecord
from llama_load.servers.answer_form import AnswerForm
from llama_load.servers.apis import APIS
from llama_load.servers.prompt import Prompt
from tests.answer_pipeline import record_of
from tests.make_records import manifest, table

USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
TOOLS: dict[str, Any] = {"tools": [{"type": "function", "function": {"name": "look"}}]}


@dataclass(frozen=True)
class Shape:
    """Events of a stream, or one body; the API that reads them; what was asked for."""

    events: tuple[dict[str, Any], ...] = ()
    body: dict[str, Any] | None = None
    endpoint: str = "chat"
    results: int | None = None
    asked: dict[str, Any] = field(default_factory=dict)

    def bytes(self) -> list[bytes]:
        """The answer as it comes from the socket: the head, then each event in a read of its
        own."""
        if self.body is not None:
            body = msgspec.json.encode(self.body)
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            return [head.encode(), body]
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        lines = [
            b"data: " + msgspec.json.encode(event) + b"\n\n" for event in self.events
        ]
        if self.endpoint in ("chat", "completions"):
            lines.append(b"data: [DONE]\n\n")
        return [
            head.encode(),
            *(b"%x\r\n%s\r\n" % (len(line), line) for line in lines),
            b"0\r\n\r\n",
        ]

    def record(self, number: int) -> RequestRecord:
        reader = APIS[self.endpoint].reader(self.results, streams=self.body is None)
        return record_of(
            self.bytes(),
            reader,
            number,
            self.endpoint,
            inputs=self.results,
            **self.asked,
        )


def chat(
    *deltas: dict[str, Any], reason: str = "stop", index: int = 0
) -> tuple[dict[str, Any], ...]:
    """The events of one choice."""
    events = [{"choices": [{"index": index, "delta": delta}]} for delta in deltas]
    return (
        *events,
        {"choices": [{"index": index, "delta": {}, "finish_reason": reason}]},
    )


WORDS = ({"content": "one"}, {"content": " two"}, {"content": " three"})
LAST = {"choices": [], "usage": USAGE}
LOGPROBS = tuple(
    {
        "choices": [
            {"index": 0, "delta": word, "logprobs": {"content": [{"logprob": -0.1}]}}
        ]
    }
    for word in WORDS
)
CALL = {
    "tool_calls": [
        {"index": 0, "id": "c", "function": {"name": "look", "arguments": '{"at": 1}'}}
    ]
}
SCHEMA = AnswerForm("json schema", {"type": "object"})
WHOLE = {
    "choices": [
        {"index": 0, "message": {"content": "one two three"}, "finish_reason": "stop"}
    ],
    "usage": USAGE,
}

# fmt: off
SHAPES = {
    "one answer": Shape((*chat(*WORDS), LAST)),
    "n": Shape((*chat(*WORDS), *chat(*WORDS, index=1), LAST), asked={"choices": 2}),
    "n without a stream": Shape(body=WHOLE | {"choices": [WHOLE["choices"][0], WHOLE["choices"][0] | {"index": 1}]},
                                asked={"choices": 2}),
    "logprobs": Shape((*LOGPROBS, *chat(), LAST)),
    "no usage": Shape(chat(*WORDS)),
    "continuous usage": Shape((*(event | {"usage": USAGE} for event in chat(*WORDS)), LAST)),
    "a JSON schema": Shape((*chat({"content": '{"a":'}, {"content": " 1}"}), LAST), asked={"form": SCHEMA, "answer_form": "json_schema"}),
    "reasoning": Shape((*chat({"reasoning_content": "hm"}, {"reasoning_content": " so"}, {"content": "one"}), LAST)),
    "reasoning alone": Shape((*chat({"reasoning_content": "hm"}, reason="length"), LAST)),
    "blanks first": Shape((*chat({"content": "\n"}, {"content": "one"}), LAST)),
    "tools": Shape((*chat(CALL, reason="tool_calls"), LAST), asked={"prompt": Prompt("text", 9, fields=TOOLS)}),
    "no stream": Shape(body=WHOLE),
    "completions": Shape(({"choices": [{"index": 0, "text": "one"}]}, {"choices": [{"index": 0, "text": " two",
                         "finish_reason": "length"}]}, LAST), endpoint="completions"),
    "messages": Shape(({"type": "message_start", "message": {"usage": {"input_tokens": 9}}},
                       {"type": "content_block_delta", "delta": {"text": "one"}},
                       {"type": "content_block_delta", "delta": {"text": " two"}},
                       {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
                       {"type": "message_stop"}), endpoint="messages"),
    "responses": Shape(({"type": "response.output_text.delta", "delta": "one"},
                        {"type": "response.completed", "response": {"usage": {"input_tokens": 9, "output_tokens": 1}}}),
                       endpoint="responses"),
    "completion": Shape(({"content": "one"}, {"content": "", "stop": True, "stop_type": "limit", "tokens_predicted": 1,
                                              "tokens_evaluated": 9}), endpoint="completion"),
    "infill": Shape(({"content": "one"}, {"content": "", "stop": True, "stop_type": "eos", "tokens_predicted": 1,
                                          "tokens_evaluated": 9}), endpoint="infill"),
    "embeddings": Shape(body={"data": [{"embedding": [0.5]}, {"embedding": [0.25]}], "usage": {"prompt_tokens": 9}},
                        endpoint="embeddings", results=2),
    "rerank": Shape(body={"results": [{"index": 0, "relevance_score": 0.5}, {"index": 1, "relevance_score": 0.1}],
                          "usage": {"prompt_tokens": 9}}, endpoint="rerank", results=2),
}
# fmt: on


@pytest.mark.parametrize("name", SHAPES)
def test_a_run_of_each_shape_of_answer_writes_its_reports(
    name: str, tmp_path: Path
) -> None:
    """All requests succeed, and no report fails. (With `n`, a numpy number of a check once ended
    the run without a report.)"""
    shape = SHAPES[name]
    records = table(*(shape.record(number) for number in range(3)))
    found = analyze(
        Run(
            tmp_path,
            manifest(num_prompts=3, endpoint=shape.endpoint),
            records,
            recovered=False,
        )
    )
    reports = write_reports(found)
    assert reports.results.run.unwritten is None
    assert (
        msgspec.json.decode((tmp_path / "summary.json").read_bytes())["completed"] == 3
    )
    assert "Successful requests:                     3" in markdown(found, reports.text)


def test_the_report_of_several_answers_a_request_is_written(tmp_path: Path) -> None:
    records = table(*(SHAPES["n"].record(number) for number in range(3)))
    reports = write_reports(
        analyze(Run(tmp_path, manifest(num_prompts=3), records, recovered=False))
    )
    assert write_html(reports) is None


def test_numbers_of_a_check_are_pythons() -> None:
    """Numpy's numbers are converted, and what is not a number is unknown: no check passes or fails
    by it."""
    checks = [
        information("answers_per_request", np.float64(2), ""),
        limited("failure_ratio", np.float32(0.5), "", limit=np.float64(0.25)),
        limited("unbelievable_counts", np.int64(3), ""),
        Check("failure_ratio", np.float64(0.5), 0.1, np.bool_(False), ""),  # type: ignore[arg-type]
    ]
    for check in checks:
        assert {type(check.value), type(check.limit), type(check.ok)} <= {
            float,
            int,
            bool,
            type(None),
        }
    unknown = limited("failure_ratio", float("nan"), "")
    assert (unknown.value, unknown.ok, unknown.mark) == (None, True, "?")
