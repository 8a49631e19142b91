"""`llama-load record` between real clients and the real llama-server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from llama_load.servers.serving.projector_maker import cached_projector
from tests.conftest import TINY, Finished, embedded_server
from tests.record.test_record_command import (
    CONVERSATIONS,
    PIXEL,
    Recorder,
    recorder,
    user,
)

pytestmark = pytest.mark.heavy

KEY = "sk-record/0123456789+canary"
TOOL = {
    "type": "function",
    "function": {
        "name": "read",
        "description": "Read a file",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string", "maxLength": 8}},
            "required": ["path"],
        },
    },
}


@contextmanager
def recorded(
    model: Path, folder: Path, *flags: str, out: str = "talk.jsonl"
) -> Iterator[Recorder]:
    with (
        embedded_server(model, folder, "-a", "tiny", *flags) as server,
        recorder(server.url, folder / out) as running,
    ):
        yield running
    assert running.code == 0, running.said


def test_the_openai_package(
    tiny_model: Path, tmp_path: Path, run_locust: Callable[..., Finished]
) -> None:
    """Streams, tools, an image, completions and responses; then the recording is sent again.
    Catches requests as the openai package sends them, and answers that it refuses through us."""
    openai = pytest.importorskip("openai")
    projector = str(cached_projector(TINY.dim))
    with recorded(tiny_model, tmp_path, "--mmproj", projector) as running:
        client = openai.OpenAI(base_url=f"{running.url}/v1", api_key=KEY, max_retries=0)
        create = client.chat.completions.create
        history: list[Any] = [
            {"role": "system", "content": "Be brief. " * 20},
            user("Hello?"),
        ]
        said = []
        for turn in range(3):
            stream = create(
                model="tiny",
                messages=history,
                max_tokens=12,
                stream=True,
                temperature=0,
            )
            pieces = [chunk.choices[0].delta.content or "" for chunk in stream]
            said.append("".join(pieces))
            history += [{"role": "assistant", "content": said[-1]}, user(f"{turn}?")]

        call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}  # fmt: skip
        asked = [user("Read a.")]
        create(model="tiny", messages=asked, tools=[TOOL], max_tokens=12)
        asked += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "print(1)"},
        ]
        create(model="tiny", messages=asked, tools=[TOOL], max_tokens=12)
        parts = [
            {"type": "text", "text": "What is it?"},
            {"type": "image_url", "image_url": {"url": PIXEL}},
        ]
        image = {"role": "user", "content": parts}
        create(model="tiny", messages=[image], max_tokens=8)
        client.completions.create(model="tiny", prompt="Once", max_tokens=8)
        events = client.responses.create(
            model="tiny", input="Hello there", max_output_tokens=8, stream=True
        )
        kinds = [event.type for event in events]
        assert kinds[-1] == "response.completed"
        with pytest.raises(openai.APIStatusError):
            client.embeddings.create(model="tiny", input="words")
    talks = running.lines
    talk, asked_first, with_tool, with_image, response = talks
    texts = [
        each["content"] for each in talk["messages"] if each["role"] == "assistant"
    ]
    assert texts == said
    assert talk["sampling"] == {"temperature": 0}
    assert asked_first["tools"] == with_tool["tools"] == [TOOL]
    # The model did not call the tool, the client says it did: another history.
    assert with_tool["branch_of"] == asked_first["id"]
    assert with_tool["messages"][1]["tool_calls"] == [call]
    assert with_image["messages"][0]["content"][1]["image_url"]["url"] == PIXEL
    assert response["messages"][0] == user("Hello there")
    assert "9 requests, 1 without a complete answer" in running.said
    assert KEY not in running.said + running.out.read_text()

    with embedded_server(
        tiny_model, tmp_path / "again", "--mmproj", projector
    ) as server:
        run = run_locust(
            server.url,
            *("-u", "8", "--num-prompts", "21", "--warmup", "0"),
            *("--dataset-path", str(running.out)),
            folder=tmp_path / "run",
            locustfile=CONVERSATIONS,
        )
    assert run.code == 0, run.err
    assert run.summary["completed"] == 21
    assert run.records.has("images").any()


def test_curl(tiny_model: Path, tmp_path: Path) -> None:
    """A stream and the llama.cpp API. Catches a client that speaks HTTP as curl does."""
    with recorded(tiny_model, tmp_path) as running:
        body = json.dumps(
            {"messages": [user("Hello")], "max_tokens": 6, "stream": True}
        )
        curl = ["curl", "-sSN", "--max-time", "30", "-d"]
        found = subprocess.run(
            [*curl, body, f"{running.url}/v1/chat/completions"],
            capture_output=True,
            check=True,
        )
        assert found.stdout.rstrip().endswith(b"data: [DONE]")
        native = json.dumps({"prompt": "Once upon", "n_predict": 6})
        subprocess.run(
            [*curl, native, f"{running.url}/completion"],
            check=True,
            capture_output=True,
        )
    assert running.lines[0]["messages"][0] == user("Hello")
    (other,) = (tmp_path / "talk.requests.jsonl").read_text().splitlines()
    assert json.loads(other)["prompt"] == "Once upon"
    assert "TTFT" in running.said


def test_an_agent_framework(tiny_model: Path, tmp_path: Path) -> None:
    """openai-agents, which keeps the history and has a tool: two turns of one conversation. Catches
    turns and tools as openai-agents sends them, not found to be one conversation."""
    agents = pytest.importorskip("agents")
    agents.set_tracing_disabled(True)

    @agents.function_tool
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"sunny in {city}"

    with recorded(tiny_model, tmp_path) as running:
        client = agents.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=KEY)
        agent = agents.Agent(
            name="Reporter",
            instructions="Be brief.",
            model=agents.OpenAIChatCompletionsModel(model="tiny", openai_client=client),
            tools=[weather],
            model_settings=agents.ModelSettings(max_tokens=12, temperature=0),
        )
        first = agents.Runner.run_sync(agent, "What is the weather?")
        agents.Runner.run_sync(agent, [*first.to_input_list(), user("And tomorrow?")])
    (talk,) = running.lines
    roles = [message["role"] for message in talk["messages"]]
    assert roles == ["system", "user", "assistant", "user", "assistant"]
    assert talk["tools"][0]["function"]["name"] == "weather"
    assert KEY not in running.out.read_text()


# Random weights end no answer.
AIDER_SETTINGS = """
- name: openai/tiny
  edit_format: whole
  extra_params:
    max_tokens: 48
"""
AIDER_LIMITS = {
    "openai/tiny": {
        "max_input_tokens": 8192,
        "max_output_tokens": 64,
        "litellm_provider": "openai",
        "mode": "chat",
    }
}


def code_folder(folder: Path) -> Path:
    """A git repository of one file, with what aider has to know of the model beside it."""
    code = folder / "code"
    code.mkdir()
    (code / "hello.py").write_text("def greet(name):\n    return 'hello ' + name\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "First"]):
        subprocess.run([*git, *words], cwd=code, check=True)
    (folder / "settings.yml").write_text(AIDER_SETTINGS)
    (folder / "limits.json").write_text(json.dumps(AIDER_LIMITS))
    return code


@pytest.mark.real
def test_aider(
    aider: Path, tiny_model: Path, tmp_path: Path, run_locust: Callable[..., Finished]
) -> None:
    """Two questions of a session. Its reminder is below the last question alone, so that the second
    prompt has another one in the place of the first question: for the file a branch, for the cache
    the next turn. Then eight users send it. Catches a history that aider rewrites at each turn, not
    found to be one conversation."""
    code = code_folder(tmp_path)
    flags = [
        *("--model", "openai/tiny", "--yes-always", "--no-auto-commits"),
        *("--model-settings-file", str(tmp_path / "settings.yml")),
        *("--model-metadata-file", str(tmp_path / "limits.json")),
        *("--no-check-update", "--analytics-disable", "--no-show-release-notes"),
        *("--no-show-model-warnings", "--no-pretty", "--no-fancy-input"),
    ]
    with recorded(tiny_model, tmp_path, "-np", "1", "-c", "8192") as running:
        env = os.environ | {
            "HOME": str(tmp_path),
            "OPENAI_API_BASE": f"{running.url}/v1",
            "OPENAI_API_KEY": KEY,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }
        done = subprocess.run(
            [str(aider), *flags, "hello.py"],
            input="Add a docstring to greet.\nNow add a farewell.\n/exit\n",
            cwd=code,
            env=env,
            capture_output=True,
            check=False,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    first, second = running.lines
    question = first["messages"][first["history"]]
    assert question["content"].startswith("Add a docstring to greet.\n\n")
    assert second["branch_of"] == "c1"
    repeated = second["messages"][second["shared_messages"]]
    assert repeated["content"] == "Add a docstring to greet."
    (line,) = (tmp_path / "talk.turns.jsonl").read_text().splitlines()
    turn = json.loads(line)
    assert (turn["conversation"], turn["turn"]) == ("c1", 2)
    assert turn["cause"] == "the text changed"
    assert turn["changed_in"] == f"message {first['history']} (user)"
    # The server's own cache agrees with the tokens by its template.
    assert turn["token"] == turn["cached_tokens"]
    assert KEY not in running.said + running.out.read_text()

    with embedded_server(tiny_model, tmp_path / "again", "-c", "32768") as server:
        run = run_locust(
            server.url,
            *("-u", "8", "--num-prompts", "16", "--warmup", "0"),
            *("--dataset-path", str(running.out)),
            folder=tmp_path / "run",
            locustfile=CONVERSATIONS,
        )
    assert run.code == 0, run.err
    assert run.summary["completed"] == 16


def test_the_command_llm(tiny_model: Path, tmp_path: Path) -> None:
    """A chat in a terminal, and `llm -c`, which continues it from its own database. Catches a
    client that ends after each turn and continues from its database."""
    pytest.importorskip("llm")
    with recorded(tiny_model, tmp_path) as running:
        home = tmp_path / "llm"
        home.mkdir()
        models = f"- model_id: tiny\n  model_name: tiny\n  api_base: {running.url}/v1\n  api_key_name: tiny\n"
        (home / "extra-openai-models.yaml").write_text(models)
        chat = [sys.executable, "-m", "llm", "-m", "tiny", "--key", KEY]
        chat += ["-o", "max_tokens", "8"]
        env = os.environ | {"LLM_USER_PATH": str(home)}
        for words in (["-s", "Be brief", "Hello there"], ["-c", "And more"]):
            subprocess.run([*chat, *words], check=True, env=env, timeout=60)
    (talk,) = running.lines
    questions = [each["content"] for each in talk["messages"] if each["role"] == "user"]
    assert questions == ["Hello there", "And more"]
