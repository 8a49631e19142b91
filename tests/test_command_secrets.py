"""Secrets are found in command lines, environments and plans by their names, and nothing else is
taken for one."""

from __future__ import annotations

import shlex

import pytest

from llama_load.loadgen.options.known_secrets import (
    secrets_of_document,
    secrets_of_environment,
)
from llama_load.outside.command_secrets import redact_words, secrets_of_words


@pytest.mark.parametrize(
    ("typed", "secrets"),
    [
        ("llama-server -hft hf_secret1 -m x", {"hf_secret1"}),
        ("vllm serve m --api-key first1 second2 --port 8", {"first1", "second2"}),
        ("llama-load search --serve 'llama-server --api-key inner1 -m m'", {"inner1"}),
        (
            "x --header 'X-Team: team12' --header 'User-Agent: me' -H 'A: bbbbb1'",
            {"team12", "bbbbb1"},
        ),
        ("HF_TOKEN=value1 THREADS=2 x", {"value1"}),
        (
            "x --upload 's3://b/p?X-Amz-Signature=sign12&x=1'",
            {"sign12", "X-Amz-Signature=sign12&x=1"},
        ),
        ("x --upload https://user:pass%2Fword@h/x", {"pass%2Fword", "pass/word"}),
        ("x --push https://token12@h/x", {"token12"}),
        ("x --push https://@h/x?token=token12", {"token12", "token=token12"}),
        ("x --upload memory://a/x?sig=any123#part", {"sig=any123"}),
        ("x --serve \"a 'http://h/x?sig=any123', b\"", {"sig=any123"}),
        ('x --extra-body \'{"auth": {"values": ["deep12"]}, "top_k": 1}\'', {"deep12"}),
        (
            "x --hf-token=value1 --openai-api-key=value2 --db-password value3",
            {"value1", "value2", "value3"},
        ),
        (
            "x --max-tokens 55 --first-token-timeout 600 --stop-token abc --api-key-file /x --key-length 9 --author me",
            set(),
        ),
        ("x -m auth plan.yaml --label token http://127.0.0.1:8080/v1", set()),
    ],
)
def test_secrets_of_command_lines(typed: str, secrets: set[str]) -> None:
    words = shlex.split(typed)
    assert {each.strip() for each in secrets_of_words(words)} == secrets
    shown = shlex.join(redact_words(words))
    assert not any(secret in shown for secret in secrets)


def test_secrets_of_the_environment() -> None:
    variables = {
        "LLAMA_LOAD_API_KEY": "ours12", "LLAMA_LOAD_HEADER": "X-Team: team12", "OTEL_EXPORTER_OTLP_HEADERS": "a=otel%2F1,b=otel2",
        "HF_TOKEN": "hf_123456", "AWS_SECRET_ACCESS_KEY": "aws/123456", "DATABASE": "postgres://me:dbpass@h/x",
        "SSH_AUTH_SOCK": "/tmp/agent.1", "GIT_AUTHOR_NAME": "Jane Doe", "MODE_TOKEN": "disabled", "TOKENIZERS_PARALLELISM": "false", "X_KEY_TOKEN": "/etc/token1",
    }  # fmt: skip
    found = set(secrets_of_environment(variables)) - {""}
    assert found == {
        "ours12",
        "team12",
        "otel%2F1",
        "otel/1",
        "otel2",
        "hf_123456",
        "aws/123456",
        "dbpass",
    }


def test_secrets_of_plans() -> None:
    server = {
        "llama-server": {
            "args": ["--api-key", "inlist1"],
            "env": {"HF_TOKEN": "inenv12", "THREADS": "4"},
            "set-up": ["login --password incmd1"],
        }
    }
    document = {
        "servers": {"a": server},
        "vary": {"k": {"args+": ["--api-key invary1", ""]}},
    }
    assert set(secrets_of_document(document)) == {
        "inlist1",
        "inenv12",
        "incmd1",
        "invary1",
    }
