"""Headers with fields, and fields of the body by user class and workload, as the server gets
them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from llama_load.loadgen.users.request_headers import filled, has_fields
from tests.conftest import Finished
from tests.json_server import json_server

ANSWER = {
    "choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}],
    "usage": {"completion_tokens": 1},
}


def test_fields_are_filled_and_other_braces_stay() -> None:
    headers = (
        ("X-Session", "s-{conversation}/{prompt}"),
        ("X-Plain", '{"a": 1} {other}'),
    )
    assert has_fields(headers)
    assert not has_fields(headers[1:])
    values = {
        "conversation": "grüße\r\nX: y",
        "prompt": "w3",
        "user": "h-1",
        "worker": "h",
    }
    assert filled(headers, values) == (
        ("X-Session", "s-gr%C3%BC%C3%9Fe%0D%0AX:%20y/w3"),
        headers[1],
    )


def test_the_server_gets_them(
    run_locust: Callable[..., Finished], tmp_path: Path
) -> None:
    """Each request its prompt, each user its number, each class its body; a call's keyword goes
    before the class's field."""
    (tmp_path / "mine.py").write_text("""
from locust import task
from llama_load import LlamaUser, ShareGPT

class Traffic(ShareGPT):
    body = {"priority": 1, "seed": 3, "response_format": {"type": "json_object"}}

class Mine(LlamaUser):
    workload = Traffic()
    body = {"priority": 2}
    @task
    def ask(self):
        self.chat(extra={"top_k": 5})
""")
    with json_server(
        {"/v1/models": {"data": [{"id": "m"}]}, "/v1/chat/completions": ANSWER}
    ) as server:
        arguments = (
            "-u",
            "2",
            "--num-prompts",
            "6",
            "--no-stream",
            "--header",
            "X-Session: {conversation}|{prompt}|{user}|{worker}",
        )
        done = run_locust(server.url, *arguments, locustfile=tmp_path / "mine.py")
        assert done.code == 0, done.err + done.out
        asked = [
            headers["X-Session"].split("|")
            for headers in server.headers
            if "X-Request-Id" in headers
        ]
        bodies = [
            body
            for path, body in server.bodies
            if path == "/v1/chat/completions" and body.get("messages")
        ]
    assert sorted(prompt for _, prompt, _, _ in asked) == [
        "0",
        "1",
        "2",
        "3",
        "4",
        "5",
        "w0",
    ]
    assert {user for _, _, user, _ in asked} <= {"local-1", "local-2"}
    assert {worker for *_, worker in asked} == {"local"}
    assert done.records.measured().values_of("answer_form") == ["json_schema"]
    assert {(body["priority"], body["seed"], body["top_k"]) for body in bodies} == {
        (2, 3, 5)
    }
