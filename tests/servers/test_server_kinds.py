"""The kinds of servers: detected, counted and asked for as they are; SGLang and TGI by transcripts
after their sources."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from llama_load.analysis.figures.prompt_cache import (
    CacheEvidence,
    PromptTable,
    cache_checks,
)
from llama_load.servers.counters import parse_counters
from llama_load.servers.kinds import KINDS, kind_named
from llama_load.servers.probe import Probe, ProbeSettings
from tests.conftest import REPOSITORY, Finished
from tests.json_server import JsonServer, json_server, streamed
from tests.make_records import record, table

FOLDER = REPOSITORY / "tests/data/servers"
STARTING = ("serve_command.py", "read_plan.py")


def transcript(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


@contextmanager
def transcribed(name: str) -> Iterator[JsonServer]:
    """A server that answers as the transcript does: /tokenize in its own form alone."""
    script, form = transcript(name), kind_named(name).form
    assert form is not None
    field = next(iter(form.body(None, "x").keys() - {"model"}))

    def tokens(body: dict[str, Any]) -> Any:
        if field not in body:
            return 422, {"error": "missing field"}, {}
        count = len(body[field]) // 4  # "question" has the transcript's two
        if isinstance(script["tokenize"], list):
            return script["tokenize"][:1] * count
        return script["tokenize"] | {"tokens": [7] * count, "count": count}

    answers = script["answers"] | {
        form.path: tokens,
        "/v1/chat/completions": streamed(*script["events"]),
        "/metrics": (200, script["metrics"], {}),
    }
    with json_server(answers) as server:
        yield server


@pytest.mark.parametrize(("name", "context"), [("sglang", 32768), ("tgi", 4096)])
def test_a_transcribed_server_is_detected_and_counts_tokens(
    name: str, context: int
) -> None:
    with transcribed(name) as server:
        probe = Probe(ProbeSettings(server.url))
        target = probe.ask()
        assert (target.backend, target.ctx_per_slot, target.has_counters) == (
            name,
            context,
            True,
        )
        assert probe.counter().count(["question"]) == [2]


def test_a_gateway_that_only_names_one_of_them_is_none_of_them() -> None:
    """One sign of two: `owned_by` alone, /info without a context."""
    for answers in (
        {"/v1/models": {"data": [{"id": "m", "owned_by": "sglang"}]}},
        {
            "/v1/models": {"data": [{"id": "m"}]},
            "/info": {"router": "text-generation-router"},
        },
        {
            "/v1/models": {"data": [{"id": "m"}]},
            "/info": {"router": ["x"], "max_total_tokens": 4096},
        },
    ):
        with json_server(answers) as server:
            assert Probe(ProbeSettings(server.url)).ask().backend == "openai"


def test_their_counters() -> None:
    """900 + 100 prompt tokens, 450 output tokens, 20 requests; SGLang's cached tokens of the device
    and of the host: 250."""
    found = parse_counters(transcript("sglang")["metrics"])
    assert found is not None
    assert (found.prompt_tokens, found.output_tokens, found.requests) == (1000, 450, 20)
    assert (found.cache_queries, found.cache_hits, found.times) == (1000, 250, None)
    found = parse_counters(transcript("tgi")["metrics"])
    assert found is not None
    assert (found.prompt_tokens, found.output_tokens, found.requests) == (1000, 450, 20)
    assert (found.cache_queries, found.cache_hits) == (None, None)


def test_a_declared_counter_is_zero_and_an_absent_one_unknown() -> None:
    """SGLang's cached tokens have labels: there is no value before the first hit."""
    page = transcript("sglang")["metrics"]
    without = re.sub(r"(?m)^sglang:cached_tokens_total.*\n", "", page)
    assert (parse_counters(without) or pytest.fail()).cache_hits == 0
    nowhere = re.sub(r"(?m)^.*cached_tokens_total.*\n", "", page)
    found = parse_counters(nowhere) or pytest.fail()
    assert (found.cache_hits, found.cache_queries) == (None, None)


EXTERNAL = """# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total 1000
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total 1000
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total 100
# TYPE vllm:external_prefix_cache_queries_total counter
vllm:external_prefix_cache_queries_total 900
# TYPE vllm:external_prefix_cache_hits_total counter
vllm:external_prefix_cache_hits_total 500
"""


def test_a_prompt_from_an_external_cache_is_a_cached_prompt() -> None:
    """100 tokens of vLLM's own cache and 500 of LMCache: 600 of 1000 came from a cache, which no
    run with VALID may have."""
    found = parse_counters(EXTERNAL)
    assert found is not None
    assert (found.cache_hits, found.external_hits, found.cache_queries) == (
        600,
        500,
        1000,
    )
    prompts = table(*(record(number, cached_tokens=None) for number in range(4)))
    check = {
        each.name: each
        for each in cache_checks(PromptTable(prompts, CacheEvidence()), found)
    }["server_cache_hit_ratio"]
    assert not check.ok
    assert check.value == pytest.approx(0.6, abs=0.01)
    assert "(500 of them from a cache outside of the engine)" in check.text


@pytest.mark.parametrize(("name", "cached"), [("sglang", 24.0), ("tgi", None)])
def test_a_run_against_a_transcribed_server(
    name: str, cached: float | None, run_locust: Callable[..., Finished]
) -> None:
    """Three tokens an answer by its usage, where the stream has two with text; what is not reported
    stays unknown."""
    with transcribed(name) as server:
        done = run_locust(
            server.url,
            "-u",
            "1",
            "--num-prompts",
            "3",
            "--warmup",
            "0",
            "--max-tokens",
            "8",
        )
    assert done.code in {0, 3}, done.out + done.err
    records = done.records.measured()
    assert len(records.ok()) == 3, done.out
    assert done.manifest["backend"] == name
    assert records.numbers("output_tokens").tolist() == [3.0] * 3
    assert set(records.strings("cached_tokens")) == (
        {cached} if cached is not None else {None}
    )
    asked = [body for path, body in server.bodies if path == "/v1/chat/completions"]
    assert asked[0]["stream_options"] == {"include_usage": True}
    assert "cache_prompt" not in asked[0]


def test_no_room_but_this_one_compares_the_name_of_a_server() -> None:
    """Everybody asks the kind. (A name may be shown, stored or looked up; how servers are started
    is `serving/`'s.)"""
    names = "|".join(re.escape(name) for name in KINDS)
    compared = re.compile(
        rf"""(backend|\.name)\s*(==|!=|in\b|not in\b)|(==|!=)\s*["']({names})["']|["']({names})["']\s*(==|!=|in\b)|\b(LLAMA_SERVER|VLLM|LLAMA_CPP_PYTHON)\b"""
    )
    package = REPOSITORY / "llama_load"
    found = []
    for path in sorted(package.rglob("*.py")):
        if (
            path.is_relative_to(package / "servers/kinds")
            or path.is_relative_to(package / "servers/serving")
            or path.name in STARTING
        ):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if (match := compared.search(line)) and (
                "name" not in match[0] or any(name in line for name in KINDS)
            ):
                found.append(f"{path.relative_to(package)}:{number}: {line.strip()}")
    assert found == []
