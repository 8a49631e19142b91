"""Bundled recipes end VALID: what they send is traffic, and no flaw."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from llama_load.servers.serving.launch import Server
from tests.conftest import REPOSITORY, SHAREGPT, Finished

pytestmark = pytest.mark.heavy
CONVERSATIONS = REPOSITORY / "locustfiles" / "conversations.py"
SCHEMA = """{"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
             "required": ["name", "age"], "additionalProperties": false}"""


@pytest.mark.parametrize(
    ("locustfile", "flags"),
    [
        (
            CONVERSATIONS,
            (
                "-u",
                "2",
                "--num-prompts",
                "24",
                "--history",
                "recorded",
                "--max-tokens",
                "16",
            ),
        ),
        (
            SHAREGPT,
            (
                "-u",
                "4",
                "--num-prompts",
                "40",
                "--abort-rate",
                "0.2",
                "--abort-after",
                "8 tokens",
            ),
        ),
        (SHAREGPT, ("-u", "16", "--num-prompts", "64", "--max-tokens", "64")),
        (SHAREGPT, ("-u", "4", "--num-prompts", "40", "--json-schema", "schema.json")),
    ],
    ids=["conversations", "abort-after-tokens", "16-users", "json-schema"],
)
def test_a_bundled_recipe_ends_valid(
    locustfile: Path,
    flags: tuple[str, ...],
    llama_server: Server,
    run_locust: Callable[..., Finished],
    tmp_path: Path,
) -> None:
    """Against the embedded llama-server, whose model knows no tools. Words of a busy machine
    (CLIENT-BOUND, BLURRED) are not about the recipe. Catches a check that doubts a bundled recipe's
    own traffic as the real server answers it."""
    (tmp_path / "schema.json").write_text(SCHEMA, encoding="utf-8")
    done = run_locust(
        llama_server.url, *flags, "--bust-prefix-cache", locustfile=locustfile
    )
    verdict = done.summary["llama_load"]["verdict"]
    assert set(verdict["words"]) <= {"VALID", "CLIENT-BOUND", "BLURRED"}, verdict[
        "headline"
    ]
