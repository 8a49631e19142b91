"""Whatever JSON a server answers on its control endpoints, the preflight ends in a table or in one
sentence."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

import msgspec
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from llama_load.ground.errors import UsageError
from llama_load.loadgen.preflight.prepare import print_table
from llama_load.loadgen.preflight.slot_budget import slot_budget
from llama_load.loadgen.preflight.target_rows import target_rows
from llama_load.servers.apis import CHAT
from llama_load.servers.probe import Probe, ProbeSettings
from tests.json_server import json_server

NAMES = (
    *(
        "data",
        "id",
        "aliases",
        "owned_by",
        "max_model_len",
        "meta",
        "n_ctx_train",
        "total_slots",
        "modalities",
        "vision",
        "n_ctx",
    ),
    *(
        "default_generation_settings",
        "params",
        "temperature",
        "samplers",
        "chat_template",
        "build_info",
        "model_path",
        "version",
    ),
    *("count", "tokens", "prompt", "error", "message", "status"),
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "m", "llamacpp", "vllm", "me", "question", "\x1b[2J\n"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=12,
)  # fmt: skip
PATHS = (
    "/health",
    "/v1/models",
    "/props",
    "/version",
    "/slots",
    "/tokenize",
    "/apply-template",
    "/metrics",
    "/v1/chat/completions",
)
documents = st.fixed_dictionaries(
    {
        path: st.tuples(st.sampled_from([200, 200, 200, 404, 503, 401]), values)
        for path in PATHS
    }
)
GOOD = dict.fromkeys(PATHS, (404, None)) | {
    "/health": (200, {}),
    "/v1/models": (200, {"data": [{"id": "m"}]}),
}


@settings(
    max_examples=settings().max_examples // 2,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(documents)
@example(GOOD | {"/props": (200, {"total_slots": 2, "modalities": ["vision"]})})
@example(
    GOOD
    | {
        "/props": (
            200,
            {
                "modalities": {"vision": [1]},
                "default_generation_settings": {"params": {"temperature": {}}},
            },
        )
    }
)
def test_any_json_ends_in_a_table_or_one_sentence(
    answers: dict[str, tuple[int, Any]],
) -> None:
    replies = {
        path: (status, json.dumps(value), {"Content-Type": "application/json"})
        for path, (status, value) in answers.items()
    }
    with json_server(replies) as server:
        try:
            target = Probe(ProbeSettings(server.url)).ask()
        except UsageError as error:
            assert "\n" not in str(error)
            return
    facts = target.facts
    assert facts.modalities is None or all(
        isinstance(able, bool) for able in facts.modalities.values()
    )
    assert facts.sampling is None or not any(
        isinstance(value, dict) for value in facts.sampling.values()
    )
    msgspec.json.encode(target.described())
    slot_budget([target], CHAT)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        print_table(target_rows([target, target], 4))
