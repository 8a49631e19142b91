"""Servers that report odd values: unexpected values are ignored, and nothing raises."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_load.ground.errors import UsageError
from llama_load.loadgen.preflight.servers import text_rows
from llama_load.outside.bound_headers import bound
from llama_load.servers import probe as probe_module
from llama_load.servers.apis import EMBEDDINGS, RERANK
from llama_load.servers.body import BodyOptions
from llama_load.servers.model_list import listed_models
from llama_load.servers.probe import Probe, ProbeSettings
from llama_load.servers.prompt import Prompt
from tests.conftest import REPOSITORY, Finished
from tests.json_server import json_server, streamed
from tests.scripted_server import ScriptedServer

GOOD = {
    "/health": {},
    "/v1/models": {"data": [{"id": "m", "owned_by": "llamacpp"}]},
    "/props": {"total_slots": 2},
}


@pytest.mark.parametrize(
    "odd",
    [
        {"/props": {"total_slots": "4", "default_generation_settings": [1]}},
        {
            "/props": {
                "total_slots": -1,
                "default_generation_settings": {"n_ctx": "4096", "params": [1]},
            }
        },
        {"/props": [1], "/health": 7, "/version": "x"},
        {
            "/v1/models": {
                "data": [
                    {"id": "m", "aliases": 3, "owned_by": ["x"], "max_model_len": "8k"}
                ]
            }
        },
        {"/v1/models": {"data": [{"id": 5}, 7, None, {"id": "m"}]}},
        {"/props": {"total_slots": 2, "chat_template": "\ud800"}},
        {
            "/apply-template": {"prompt": "question"},
            "/tokenize": {"count": float("inf")},
        },
        {"/apply-template": [1]},
        {"/apply-template": {"prompt": 5}},
        {"/apply-template": {"prompt": "question"}, "/tokenize": [1, 2]},
        {"/apply-template": {"prompt": "question"}, "/tokenize": {"tokens": None}},
    ],
)
def test_odd_values_are_not_reported(odd: dict[str, Any]) -> None:
    with json_server(GOOD | odd) as server:
        target = Probe(ProbeSettings(server.url)).ask()
    assert target.model == "m"
    assert target.slots in (2, None)
    assert target.ctx_per_slot is None
    assert target.template_tokens is None


def several(*entries: dict[str, Any]) -> dict[str, Any]:
    """A server with these models, of which b has twice as many tokens for everything."""

    def tokens(body: Any) -> object:
        return {
            "tokens": [0]
            * len(body["content"].split())
            * (2 if body["model"] == "b" else 1)
        }

    return GOOD | {
        "/v1/models": {"data": [entry | {"owned_by": "llamacpp"} for entry in entries]},
        "/tokenize": tokens,
    }


def test_models_that_count_tokens_differently_are_known() -> None:
    with json_server(several({"id": "a"}, {"id": "b"}, {"id": "c"})) as server:
        target = Probe(ProbeSettings(server.url, models=("a", "b", "c"))).ask()
        assert target.other_counts == ("b",)
        assert [target.counts_differ(name) for name in ("a", "b", "c", None)] == [
            False,
            True,
            False,
            False,
        ]
        assert Probe(ProbeSettings(server.url, models=("b",))).ask().other_counts == ()


def test_two_names_of_one_model_are_refused() -> None:
    """Its figures would be shown as those of two."""
    with json_server(several({"id": "m", "aliases": ["n"]})) as server:
        with pytest.raises(
            UsageError, match=r"--model names one model of .* twice: m and n"
        ):
            Probe(ProbeSettings(server.url, models=("m", "n"))).ask()
        assert Probe(ProbeSettings(server.url, models=("n",))).ask().model == "n"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["data", "id", "aliases", "owned_by", "max_model_len"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(json_values)
def test_any_list_of_models_is_read(value: Any) -> None:
    for model in listed_models(value):
        assert isinstance(model.name, str)
        assert all(isinstance(alias, str) for alias in model.aliases)


def test_the_context_is_that_of_the_model_asked_for() -> None:
    models = [
        {"id": "small", "max_model_len": 512},
        {"id": "large", "max_model_len": 131072},
    ]
    with json_server({"/health": {}, "/v1/models": {"data": models}}) as server:
        assert (
            Probe(ProbeSettings(server.url, models=("large",))).ask().ctx_per_slot
            == 131072
        )
        assert Probe(ProbeSettings(server.url)).ask().ctx_per_slot == 512


def test_a_gateway_that_hides_everything_but_the_api_is_fine() -> None:
    hidden = {
        "/props": (403, {}, {}),
        "/health": (302, {}, {"Location": "/login"}),
        "/version": (302, {}, {"Location": "/login"}),
    }
    with json_server(hidden | {"/v1/models": {"data": [{"id": "m"}]}}) as server:
        assert Probe(ProbeSettings(server.url)).ask().backend == "openai"


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        ({"/v1/models": (401, {}, {})}, "wants a key, and none was given"),
        (GOOD | {"/props": (401, {}, {})}, "wants a key"),
        (
            {"/v1/models": (302, {}, {"Location": "http://elsewhere/"})},
            "redirects to http://elsewhere/",
        ),
        ({"/health": (503, None, {})}, "is not ready;"),
        (
            {"/health": (503, {"error": {"message": "Loading model"}}, {})},
            "is not ready (Loading model)",
        ),
        ({}, "no API of an LLM server is found at"),
    ],
)
def test_what_cannot_be_used_is_reported_in_a_sentence(
    answers: dict[str, Any], sentence: str
) -> None:
    with (
        json_server(answers) as server,
        pytest.raises(
            UsageError, match=sentence.replace("(", r"\(").replace(")", r"\)")
        ),
    ):
        Probe(ProbeSettings(server.url)).ask()


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b'{"data": [{"id": "m\\ud800"}]}'],
    ids=["deep", "surrogate"],
)
def test_a_list_of_models_that_is_no_json_is_none(body: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    with (
        ScriptedServer([answer + body]) as server,
        pytest.raises(UsageError, match="no API of an LLM server"),
    ):
        Probe(ProbeSettings(server.url)).ask()


def test_an_answer_without_end_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However much comes; tests/test_hostile_inputs.py has what takes long."""
    monkeypatch.setattr(probe_module, "MOST_BYTES", 1 << 20)
    with (
        ScriptedServer(
            [b"HTTP/1.1 200 OK\r\n\r\n", *[b"x" * 100_000, 0.05] * 200]
        ) as server,
        pytest.raises(UsageError, match="it sends more than 1 MiB"),
    ):
        Probe(ProbeSettings(server.url)).ask()


def test_a_name_that_does_not_resolve_is_reported_in_a_sentence() -> None:
    with pytest.raises(UsageError, match="cannot be resolved"):
        Probe(ProbeSettings("http://no-such-host.invalid:1"))


def test_keys_do_not_follow_redirects() -> None:
    """Whatever a server says, headers with secrets go to it alone."""
    with json_server({}) as other:
        there = {"Location": other.url + "/metrics"}
        with json_server(
            GOOD | {"/metrics": (302, {}, there), "/apply-template": (307, {}, there)}
        ) as server:
            Probe(
                ProbeSettings(
                    server.url, headers=bound(server.url, (("x-api-key", "SECRET"),))
                )
            ).ask()
        assert other.headers == []
        assert all(headers.get("x-api-key") == "SECRET" for headers in server.headers)


def test_connections_that_are_announced_to_be_kept_but_are_closed() -> None:
    """The server would reset the connection if a second question came on it."""
    body = json.dumps(GOOD["/v1/models"]).encode()
    answer = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        % len(body)
    )
    with ScriptedServer([answer + body, "read", "reset"]) as server:
        Probe(ProbeSettings(server.url)).ask()


LLAMA = {"id": "m", "owned_by": "llamacpp"}
VLLM = {"id": "m", "owned_by": "vllm"}
PYTHON = {"id": "m", "owned_by": "me"}


def words(field: str, answer: Callable[[int], dict]) -> Callable[[dict], Any]:
    """A tokenizer that counts a token for each 8 bytes of this field, and refuses a body without
    it."""
    return lambda body: (
        answer(-(-len(body[field]) // 8))
        if isinstance(body.get(field), str)
        else (400, {}, {})
    )


TOKENS_IN_LLAMA_FORM = {
    "/tokenize": words("content", lambda count: {"tokens": [1] * count})
}
TOKENS_IN_VLLM_FORM = {"/tokenize": words("prompt", lambda count: {"count": count})}
TOKENS_IN_PYTHON_FORM = {
    "/extras/tokenize/count": words("input", lambda count: {"count": count})
}


@pytest.mark.parametrize(
    ("answers", "backend", "source"),
    [
        ({"/v1/models": {"data": [LLAMA]}}, "openai", "estimate"),
        ({"/v1/models": {"data": [VLLM]}}, "openai", "estimate"),
        ({"/v1/models": {"data": [PYTHON]}}, "openai", "estimate"),
        (
            {"/v1/models": {"data": [LLAMA | {"meta": {"n_ctx_train": 4096}}]}},
            "llama-server",
            "estimate",
        ),
        (
            {"/v1/models": {"data": [LLAMA]}} | TOKENS_IN_LLAMA_FORM,
            "llama-server",
            "server",
        ),
        (
            {"/v1/models": {"data": [LLAMA]}, "/props": {"total_slots": 1}}
            | TOKENS_IN_LLAMA_FORM,
            "llama-server",
            "server",
        ),
        ({"/v1/models": {"data": [VLLM | {"max_model_len": 9}]}}, "vllm", "estimate"),
        ({"/v1/models": {"data": [VLLM]}} | TOKENS_IN_VLLM_FORM, "vllm", "server"),
        (
            {"/v1/models": {"data": [PYTHON]}} | TOKENS_IN_PYTHON_FORM,
            "llama-cpp-python",
            "server",
        ),
        (
            {"/v1/models": {"data": [{"id": "m"}]}} | TOKENS_IN_VLLM_FORM,
            "openai",
            "server",
        ),
        (
            {"/v1/models": {"data": [LLAMA]}, "/tokenize": {"tokens": []}},
            "openai",
            "estimate",
        ),
        (
            {"/v1/models": {"data": [LLAMA]}, "/tokenize": (200, b"<html>", {})},
            "openai",
            "estimate",
        ),
    ],
)
def test_a_server_is_what_two_signs_agree_on(
    answers: dict, backend: str, source: str
) -> None:
    """`owned_by` alone says nothing: gateways pass it on, or make it up. 16 bytes are 2 tokens
    where the server counts."""
    with json_server(answers) as server:
        probe = Probe(ProbeSettings(server.url))
        assert probe.ask().backend == backend
        counter = probe.counter()
        assert (counter.count(["x" * 16]), counter.source) == (
            [2 if source == "server" else 5],
            source,
        )


def test_a_server_that_stops_counting_leaves_the_rest_to_the_estimate() -> None:
    """It counts words, and refuses a long text. What is left is estimated, and the source says
    so."""

    def tokenize(body: dict) -> Any:
        return (413, {}, {}) if len(body["content"]) > 100 else {"tokens": [1] * 3}

    with json_server(GOOD | {"/tokenize": tokenize}) as server:
        probe = Probe(ProbeSettings(server.url))
        probe.ask()
        counter = probe.counter()
        assert (counter.count(["short"]), counter.source, counter.why) == (
            [3],
            "server",
            None,
        )
        (long, short) = counter.count(["long " * 100, "short"])
        assert (long, short) == (120, 2)
        assert (counter.source, counter.why) == (
            "estimate",
            "/tokenize answered HTTP 413",
        )


def refuses_nothing(_: object) -> tuple[int, dict, dict]:
    return 400, {"error": {"message": "messages is required"}}, {}


@pytest.mark.parametrize("status", [404, 405, 501])
def test_a_gateway_without_a_list_of_models_needs_the_models_name(status: int) -> None:
    hidden = {"/v1/models": (status, {}, {}), "/v1/chat/completions": refuses_nothing}
    with json_server(hidden) as server:
        target = Probe(ProbeSettings(server.url, models=("mine",))).ask()
        assert (target.backend, target.model) == ("openai", "mine")
        assert all(
            body == {} for path, body in server.bodies if path.startswith("/v1/")
        ), "asked, never generated"
        with pytest.raises(
            UsageError, match=r"does not list its models .* name one with --model"
        ):
            Probe(ProbeSettings(server.url)).ask()
    with (
        json_server({"/v1/chat/completions": (401, {}, {})}) as server,
        pytest.raises(
            UsageError, match="wants a key, and none was given; set --api-key"
        ),
    ):
        Probe(ProbeSettings(server.url, models=("mine",))).ask()


def test_a_gateway_that_hides_props_of_a_llama_server_accepts_the_key() -> None:
    """403 for /props is the gateway's, not the key's, if the API takes the key."""
    hidden = {
        "/v1/models": {"data": [LLAMA]},
        "/props": (403, {}, {}),
        "/v1/chat/completions": refuses_nothing,
    }
    with json_server(hidden) as server:
        assert Probe(ProbeSettings(server.url)).ask().model == "m"


def test_an_api_that_the_server_lacks_is_refused_in_its_words() -> None:
    """Transcript of llama-server b0: the flag is named. Other refusals are a doubt, and so are
    vectors of tokens in place of one of the text."""
    error = {
        "code": 501,
        "message": "This server does not support embeddings. Start it with `--embeddings`",
        "type": "not_supported_error",
    }
    answers = {
        "/v1/embeddings": (501, {"error": error}, {}),
        "/v1/rerank": (500, {"error": {"message": TOO_LARGE}}, {}),
        "/v1/a": {"data": [{"embedding": [[0.5], [0.25]]}]},
        "/v1/b": {"data": [{"embedding": [0.5, 0.25]}]},
    }
    with json_server(answers) as server:
        probe = Probe(ProbeSettings(server.url))
        assert probe.doubt_about_texts(RERANK, {}) == f"refused: {TOO_LARGE}"
        of_tokens = probe.doubt_about_texts(SimpleNamespace(path="/v1/a"), {})
        assert "a vector for each of its tokens" in of_tokens
        assert not probe.doubt_about_texts(SimpleNamespace(path="/v1/b"), {})
        with pytest.raises(UsageError, match="Start it with `--embeddings`"):
            probe.doubt_about_texts(EMBEDDINGS, {})


def test_the_longest_text_of_a_plan_is_tried_on_each_server() -> None:
    prompts = [
        Prompt("", None, inputs=("a", "bb")),
        Prompt("", None, inputs=("abcd", "c")),
    ]
    plan = SimpleNamespace(measured=prompts)
    answers = {
        "/v1/models": {"data": [LLAMA]},
        "/v1/embeddings": (500, {"error": {"message": TOO_LARGE}}, {}),
    }
    with json_server(answers) as server:
        probe = Probe(ProbeSettings(server.url))
        target = probe.ask()
        server.bodies.clear()
        (row,) = text_rows([probe], [target], [plan], BodyOptions())
        assert server.bodies[-1][1]["input"] == ["cdab"]
    assert (row.name, row.level) == ("texts", "warning")
    assert TOO_LARGE in row.value


TOO_LARGE = "input (900 tokens) is too large to process. increase the physical batch size (current batch size: 512)"


STREAMS_WITHOUT_USAGE = {
    False: {
        "choices": [
            {"index": 0, "message": {"content": "a"}, "finish_reason": "length"}
        ],
        "usage": {"prompt_tokens": 23, "completion_tokens": 1},
    },
    True: streamed(
        {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]}
    ),
}


@pytest.mark.parametrize(
    ("warmup", "template", "source"), [("1", 22, "plan+template"), ("0", None, "plan")]
)
def test_llama_cpp_python_gives_its_templates_tokens_in_one_whole_answer(
    warmup: str,
    template: int | None,
    source: str,
    run_locust: Callable[..., Finished],
    tmp_path: Path,
) -> None:
    """Its streams carry no usage. A word of one token and a prompt of 23 make a template of 22,
    which every prompt has; without a warm-up nothing is generated before the run."""

    def chat(body: dict) -> Any:
        return STREAMS_WITHOUT_USAGE[body["stream"]]

    answers = {
        "/v1/models": {"data": [PYTHON]},
        "/v1/chat/completions": chat,
    } | TOKENS_IN_PYTHON_FORM
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(json.dumps({"prompt": letter * 80}) for letter in "abcd"))
    arguments = (
        "--dataset-path",
        str(file),
        "--num-prompts",
        "3",
        "--warmup",
        warmup,
        "--seed",
        "0",
    )
    with json_server(answers) as server:
        done = run_locust(
            server.url, *arguments, locustfile=REPOSITORY / "locustfiles" / "custom.py"
        )
    assert done.code == 0, done.err
    records = done.records.measured().table.to_pylist()
    assert [(row["prompt_tokens"], row["prompt_token_source"]) for row in records] == [
        (10 + (template or 0), source)
    ] * 3
    assert done.manifest["targets"][0]["template_tokens"] == template
    whole = [
        body
        for path, body in server.bodies
        if path == "/v1/chat/completions" and not body["stream"]
    ]
    assert [body["max_tokens"] for body in whole] == [1] * (template is not None)


THINKS = """
from locust import task
from llama_load import LlamaUser, ShareGPT

class Talk(LlamaUser):
    workload = ShareGPT()

    @task
    def ask(self):
        answer = self.chat(max_tokens=8)
        assert (answer.text, answer.reasoning) == ("The answer.", "Let me think."), answer
"""


def test_a_run_against_a_gateway_that_has_the_api_alone(
    run_locust: Callable[..., Finished], tmp_path: Path
) -> None:
    """No list of models, no token counting: prompts are counted by estimate, the server's usage
    holds. Its reasoning is no history: the second turn repeats the answer alone. Odd numbers in its
    usage fail nothing."""

    def chat(body: dict) -> Any:
        if not body:
            return refuses_nothing(body)
        return streamed(
            {"choices": [{"index": 0, "delta": {"reasoning_content": "Let me "}}]},
            {
                "choices": [
                    {
                        "index": 0,
                        "delta": {"reasoning_content": "think.", "content": "The"},
                    }
                ]
            },
            {
                "choices": [
                    {
                        "index": 0,
                        "delta": {"content": " answer."},
                        "finish_reason": "stop",
                    }
                ]
            },
            {
                "choices": [],
                "usage": {
                    "prompt_tokens": 20.0,
                    "completion_tokens": 7.0,
                    "total_tokens": "many",
                },
            },
        )

    talks = tmp_path / "talks.json"
    turns = [
        {"from": "human", "value": "Why is it that the sky is so blue over there?"},
        {"from": "gpt", "value": "It is recorded that it is so, and was."},
    ] * 2
    talks.write_text(
        json.dumps([{"id": str(number), "conversations": turns} for number in range(3)])
    )
    locustfile = tmp_path / "thinks.py"
    locustfile.write_text(THINKS)
    arguments = (
        "--dataset-path",
        str(talks),
        "--turns",
        "2",
        "--num-prompts",
        "4",
        "-u",
        "1",
        "--warmup",
        "0",
        "--model",
        "mine",
    )
    with json_server({"/v1/chat/completions": chat}) as server:
        done = run_locust(server.url, *arguments, locustfile=locustfile)
    assert done.code == 0, done.err
    assert "AssertionError" not in done.err
    row = "estimated: the server has no token counting endpoint; --tokenizer counts exactly"
    assert row in " ".join(done.err.split())
    assert [
        preflight["level"]
        for preflight in done.manifest["preflight"]
        if preflight["value"] == row
    ] == ["note"]
    assert (
        done.summary["total_input_tokens"],
        done.summary["total_output_tokens"],
    ) == (80, 28)
    sent = [body["messages"] for _, body in server.bodies if "messages" in body]
    said = [
        message["content"]
        for messages in sent
        for message in messages
        if message["role"] == "assistant"
    ]
    assert said == ["The answer."] * 2
    records = done.records.table.to_pylist()
    assert {record["token_events"] for record in records} == {3}
    assert {record["output_chars"] for record in records} == {
        len("Let me think.The answer.")
    }
