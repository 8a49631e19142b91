"""Answers that the locustfile or the data set rejects, against the real llama-server."""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from llama_load.servers.serving.launch import Server
from tests.conftest import Finished

Run = Callable[..., Finished]

JUDGES = """
import gevent
from locust import events as locust_events, task
from llama_load import LlamaUser, events

HEARD = []

@events.llm_request.add_listener
def heard(record, **_):
    HEARD.append((record.request_id, record.status))

@locust_events.quitting.add_listener
def check(environment, **_):
    print("published twice" if len(set(dict(HEARD))) < len(HEARD) else "published once", len(HEARD))

class Judge(LlamaUser):
    count = 0

    @task
    def ask(self):
        number = Judge.count = Judge.count + 1
        kind = number % 6
        if kind == 0:
            answer = self.chat("plain", max_tokens=4)
            assert answer.ok
            answer.fail(f"it is wrong:\\n{answer.record.output_tokens} tokens")
            assert not answer.ok and answer.record.ttft_ms is None and answer.text
        elif kind == 1:
            with self.chat("as Locust has it", max_tokens=4, catch_response=True, name="with") as answer:
                gevent.sleep(0.02)
                answer.failure(ValueError("no good"))
        elif kind == 2:
            with self.document("a text", "a question", max_tokens=4, name="named") as answer:
                answer.success()
        elif kind == 3:
            self.kept = self.chat("kept until the next request", max_tokens=4)
        elif kind == 4:
            # More greenlets at once than requests may be in flight, all with an open record.
            outer = self.chat("outer", max_tokens=2)
            jobs = [gevent.spawn(self.chat, "inner", max_tokens=2) for _ in range(3)]
            gevent.joinall(jobs)
            outer.fail("late, but before the next request of this greenlet")
        else:
            self.chat("dropped", max_tokens=4)
"""


def test_a_locustfile_rejects_answers(
    llama_server: Server, tmp_path: Path, run_locust: Run
) -> None:
    """Each record is published once, however its task treats the answer; a rejected one is a
    failure without latencies; open records do not keep others from being sent."""
    (tmp_path / "judges.py").write_text(JUDGES)
    arguments = ("-u", "2", "--num-prompts", "24", "--fail-if", "failure_ratio>0.9")
    done = run_locust(llama_server.url, *arguments, locustfile=tmp_path / "judges.py")
    assert "published once" in done.out
    assert done.code == 0, done.err
    rows = done.records.measured().table.to_pylist()
    assert len(rows) == 24
    wrong = [row for row in rows if row["status"] == "wrong_answer"]
    assert Counter(row["status"] for row in rows) == {
        "ok": 24 - len(wrong),
        "wrong_answer": len(wrong),
    }
    assert {row["error"] for row in wrong} >= {"it is wrong: 4 tokens", "no good"}
    assert all(
        row["ttft_ms"] is None and row["e2el_ms"] is None and not row["itl_ms"]
        for row in wrong
    )
    # what came is on record
    assert all(row["output_tokens"] and row["first_token_mono_ns"] for row in wrong)
    assert {row["name"] for row in rows} >= {"with", "named", "Judge"}
    assert done.summary["failed"] == len(wrong) > 3
    assert "wrong answer" in done.out


HOLDERS = """
import gevent
from locust import task
from llama_load import LlamaUser

class Holder(LlamaUser):
    @task
    def ask(self):
        outer = self.chat("outer", max_tokens=2)
        gevent.joinall([gevent.spawn(self.chat, "inner", max_tokens=2) for _ in range(3)])
        outer.fail("rejected after the others")
"""


def test_users_that_hold_records_open_do_not_wait_for_each_other(
    llama_server: Server, tmp_path: Path, run_locust: Run
) -> None:
    """Two users in two processes hold an answer open and wait for six more requests, of which three are left. Whether
    they can reject it before the run is over is a matter of moments."""
    file = tmp_path / "holders.py"
    file.write_text(HOLDERS)
    arguments = ("-u", "2", "--num-prompts", "5", "--fail-if", "failure_ratio>0.9")
    done = run_locust(llama_server.url, *arguments, "--processes", "2", locustfile=file)
    assert done.code == 0, done.err
    rows = done.records.measured().table.to_pylist()
    counts = Counter(row["status"] for row in rows)
    assert counts.total() == 5 and counts["ok"] >= 3
    assert set(counts) <= {"ok", "wrong_answer"}


LOADED = """
import sys
from locust import task
from llama_load import Custom, LlamaUser

class Own(LlamaUser):
    workload = Custom()

    @task
    def ask(self):
        loaded = {"jsonschema", "pyarrow.compute"} <= set(sys.modules)
        self.chat(name=f"checks loaded: {loaded}")
"""


def test_a_data_set_rejects_answers(
    llama_server: Server, tmp_path: Path, run_locust: Run
) -> None:
    """Answers of a model of random weights are no JSON and none of two words, but all match '.'.
    The worker, which has not read the data set, has imported before its first request what checks
    them: that takes a fifth of a second."""
    lines = [
        {"prompt": "Say something.", "expect": {"regex": "(?s)."}},
        {"prompt": "Yes or no?", "expect": {"one_of": ["yes", "no"]}},
        {"prompt": "A person as JSON", "expect": {"json_schema": {"type": "object"}}},
        {"prompt": "No expectation"},
    ]
    file = tmp_path / "prompts.jsonl"
    file.write_text(
        "".join(json.dumps(line | {"output_tokens": 8}) + "\n" for line in lines)
    )
    (tmp_path / "own.py").write_text(LOADED)
    arguments = (
        "-u",
        "2",
        "--num-prompts",
        "4",
        "--warmup",
        "0",
        "--ignore-eos",
        "--dataset-path",
        str(file),
        "--processes",
        "1",
    )
    done = run_locust(llama_server.url, *arguments, locustfile=tmp_path / "own.py")
    rows = sorted(done.records.table.to_pylist(), key=lambda row: row["prompt_index"])
    assert {row["name"] for row in rows} == {"checks loaded: True"}, done.err
    assert [row["status"] for row in rows] == [
        "ok",
        "wrong_answer",
        "wrong_answer",
        "ok",
    ]
    assert [row["error"] for row in rows[1:3]] == [
        "the answer is none of the expected ones",
        "the answer is not valid JSON",
    ]
    assert done.code == 1  # failure_ratio
    assert done.summary["llama_load"]["verdict"]["word"] == "FAILED"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            "self.chat('x', top_k=5)",
            "self.chat() takes no 'top_k': a field of the body goes into extra={'top_k': …}",
        ),
        ("self.vision('x', nam='y')", "self.vision() takes no 'nam'"),
        (
            "a = self.chat('x', max_tokens=2); self.chat('y', max_tokens=2); a.fail('late')",
            "answer.fail() came too late",
        ),
    ],
)
def test_what_a_locustfile_cannot_do_ends_the_run_with_a_sentence(
    llama_server: Server, tmp_path: Path, run_locust: Run, call: str, sentence: str
) -> None:
    (tmp_path / "mine.py").write_text(
        f"from locust import task\nfrom llama_load import LlamaUser\n\nclass Mine(LlamaUser):\n    @task\n    def ask(self):\n        {call}\n"
    )
    done = run_locust(
        llama_server.url, "--num-prompts", "8", locustfile=tmp_path / "mine.py"
    )
    assert done.code == 2
    assert sentence in done.err


@pytest.mark.parametrize(
    "method", ["chat", "document", "vision", "complete", "embed", "rerank"]
)
def test_every_call_can_be_named_and_is_typed(method: str) -> None:
    from llama_load import LlamaUser

    annotations = inspect.get_annotations(getattr(LlamaUser, method))
    assert {"name", "extra", "catch_response", "return"} <= set(annotations)
    assert not any("Any" in kind for kind in annotations.values())
