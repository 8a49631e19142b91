"""Servers and gateways as people met them in public: the preflight finds their APIs and a model that
is meant, or says in a sentence what to give. A file of servers/ is one of them: `answers` by path (a
value, or a status and a value), `url` what the person gives behind the server, `right` what is to be
found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llama_load.ground.errors import UsageError
from llama_load.servers.apis import CHAT
from llama_load.servers.probe import Probe, ProbeSettings
from tests.json_server import json_server

CASES = sorted((Path(__file__).parent / "servers").glob("*.json"))


def answer(given: Any) -> Any:
    """As `JsonServer` has it. In a file a status and a value are a list of two."""
    if isinstance(given, list) and len(given) == 2 and isinstance(given[0], int):
        return given[0], given[1], {}
    return given


@pytest.mark.parametrize("file", CASES, ids=[file.stem for file in CASES])
def test_a_server_is_understood_or_refused_by_name(file: Path) -> None:
    case = json.loads(file.read_text(encoding="utf-8"))
    right = case["right"]
    answers = {path: answer(given) for path, given in case["answers"].items()}
    with json_server(answers) as server:
        try:
            probe = Probe(
                ProbeSettings(
                    server.url + case.get("url", ""),
                    models=tuple(case.get("models", ())),
                    generates=case.get("generates", True),
                )
            )
            target = probe.ask()
        except UsageError as error:
            said = str(error)
            missing = [
                word
                for word in right.get("refused", [said[:0] + "?"])
                if word not in said
            ]
            assert not missing, said
            assert "\n" not in said
            return
    assert "refused" not in right
    assert target.model == right["model"]
    assert target.backend == right.get("backend", target.backend)
    chat = target.address.path_of(CHAT.path)
    assert chat == right.get("chat", CHAT.path)
    assert target.has_counters == right.get("counters", target.has_counters)
    assert not set(server.asked) & set(right.get("never", ["/health"]))
