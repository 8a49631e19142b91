"""What run.json says of prompts and servers: its keys stay, whatever the classes behind them are
called."""

from __future__ import annotations

from dataclasses import fields, replace

import msgspec
import pytest

from llama_load.loadgen.workloads.documents import Documents
from llama_load.loadgen.workloads.mixed import Mixed
from llama_load.loadgen.workloads.prompt_plan import (
    DataFacts,
    PlanFacts,
    PlanRequest,
    Traffic,
    facts_json,
    shared_tokens,
)
from llama_load.loadgen.workloads.sharegpt import ShareGPT
from llama_load.loadgen.workloads.synthetic import Synthetic
from llama_load.run_folder import Manifest
from llama_load.servers.address import parse_url
from llama_load.servers.counting import EstimatedCounter
from llama_load.servers.target import ServerFacts, Target
from tests.make_records import facts, manifest
from tests.server_kinds import LLAMA_SERVER

WANTED = PlanRequest(
    num_prompts=2,
    fill=True,
    warmup=0,
    seed=0,
    counter=EstimatedCounter(),
    traffic=Traffic(document_tokens=64, input_len=32),
)
BASE = ["dataset", "counted_by", "distinct", "repeated", "replaced"]


def test_the_keys_of_the_prompts_in_run_json() -> None:
    """Those of a workload that does not shorten, cut or share are left out; a mixture has those of
    its tasks within it."""
    found = facts_json(
        {"mixed": Mixed(document=Documents(), chat=ShareGPT()).plan(WANTED).facts}
    )
    assert list(found) == [*BASE, "cut", "tasks"]
    assert list(found["dataset"]) == ["path"]
    assert list(found["tasks"]["document"]) == [
        *BASE,
        "shared_tokens",
        "cut",
        "cut_from",
    ]
    assert list(found["tasks"]["document"]["dataset"]) == [
        "path",
        "sha256",
        "files",
        "document_tokens",
        "cache",
    ]
    assert list(found["tasks"]["chat"]) == [
        *BASE,
        "shortened",
        "shared_tokens",
        "reading",
    ]
    assert list(found["tasks"]["chat"]["dataset"]) == [
        "path",
        "sha256",
        "conversations",
    ]


def test_prompts_of_a_run_are_the_same_when_they_are_read_back() -> None:
    """Or every run with a label would differ from the one before it."""
    now = manifest(prompts=facts_json({"synthetic": Synthetic().plan(WANTED).facts}))
    before = msgspec.json.decode(msgspec.json.encode(now), type=Manifest)
    assert before.prompts == now.prompts
    assert list(now.prompts["dataset"]) == [
        "path",
        "input_tokens",
        "output_tokens",
        "prefix_tokens",
        "prefixes",
    ]


def test_several_workloads_stand_by_their_names() -> None:
    assert list(facts_json({"a": facts(), "b": facts()})) == ["a", "b"]
    assert facts_json({}) == {}


def test_shared_tokens_are_those_of_workloads_and_tasks_that_share_any() -> None:
    mixed = facts(tasks={"document": facts(shared_tokens=3960), "vision": facts()})
    chat, trace = facts(shared_tokens=0), facts(shared_tokens=None)
    assert shared_tokens({"mixed": mixed, "chat": chat, "replay": trace}) == {
        "document": 3960,
        "replay": None,
    }


def test_an_incomplete_workload_fails_where_it_makes_its_facts() -> None:
    with pytest.raises(TypeError, match="counted_by"):
        PlanFacts(dataset=DataFacts(path="p"), distinct=1, repeated=0, replaced=0)  # type: ignore[call-arg]


def test_the_keys_of_a_server_in_run_json() -> None:
    """What it does not report is null; its start only where it has counters."""
    bare = Target(parse_url("http://h"), LLAMA_SERVER, None)
    keys = [
        *(
            "url",
            "backend",
            "build",
            "model",
            "models",
            "model_path",
            "model_bytes",
            "n_params",
            "quantization",
            "slots",
            "ctx_per_slot",
            "modalities",
        ),
        *("chat_template_sha256", "sampling", "head_tokens", "template_tokens"),
    ]
    assert bare.described() == dict.fromkeys(keys) | {
        "url": "http://h",
        "backend": "llama-server",
    }
    counted = replace(bare, has_counters=True, facts=ServerFacts(uptime_s=3.0))
    assert counted.described().keys() == {*keys, "started_s", "uptime_s"}
    assert replace(bare, models=("a", "b")).described()["models"] == ["a", "b"]
    # The way to a server is the preflight's; it differs from run to run.
    assert {field.name for field in fields(ServerFacts)} <= {
        *counted.described(),
        "round_trip_ms",
    }


@pytest.mark.parametrize(
    ("modalities", "blind"),
    [({"vision": False}, True), ({"vision": True}, False), (None, False), ([], False)],
)
def test_a_server_is_blind_only_where_it_says_that_it_is(
    modalities: object, blind: bool
) -> None:
    assert (
        Target(
            parse_url("http://h"),
            LLAMA_SERVER,
            None,
            facts=ServerFacts(modalities=modalities),
        ).is_blind
        is blind
    )
