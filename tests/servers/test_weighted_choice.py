"""Models and adapters by weight: how they are written, and which request gets which."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_load.ground.errors import UsageError
from llama_load.outside.plain_http import Session
from llama_load.servers.adapters import adapter_fields, adapter_name, check_adapters
from llama_load.servers.address import parse_url
from llama_load.servers.target import Target
from llama_load.servers.weighted_choice import WeightedChoice, parse_choice
from tests.json_server import json_server


@pytest.mark.parametrize(
    ("given", "names", "shares"),
    [
        ("a", ("a",), (1,)),
        ("a, b", ("a", "b"), (1, 1)),
        ("a=3,b=1", ("a", "b"), (3, 1)),
        ("a=0.75, org/b:Q4_K_M = 0.25", ("a", "org/b:Q4_K_M"), (3, 1)),
        ("a=6,b=2", ("a", "b"), (3, 1)),
        ("a=2,b", ("a", "b"), (2, 1)),
        ("x=y=2,z", ("x=y", "z"), (2, 1)),
    ],
)
def test_weights_become_the_smallest_whole_shares(
    given: str, names: tuple[str, ...], shares: tuple[int, ...]
) -> None:
    choice = parse_choice(given, "--model", 0)
    assert (choice.names, choice.shares) == (names, shares)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("", "a name is missing"),
        ("a,,b", "a name is missing"),
        ("=3,b", "a name is missing"),
        ("a=0,b=1", "'a' has no weight and would get no request"),
        ("a=-1,b=1", "the weight of 'a' must be a number above 0"),
        ("a=x", "the weight of 'a'"),
        ("a=nan", "the weight of 'a'"),
        ("a=1e999999999", "the weight of 'a'"),
        ("a=٣", "the weight of 'a'"),
        ("a=", "the weight of 'a'"),
        ("a=1,b=2,a=3", "'a' is there twice"),
        ("a=999999,b=1", "add up to 1000000"),
    ],
)
def test_nonsense_is_refused_in_a_sentence(given: str, why: str) -> None:
    with pytest.raises(
        ValueError, match=r"--model must be one or more names"
    ) as refused:
        parse_choice(given, "--model", 0)
    assert why in str(refused.value)


@pytest.mark.parametrize("given", ["-1", "x", "0.5", "1234567", "None", "²"])
def test_an_adapter_is_an_id_or_none(given: str) -> None:
    with pytest.raises(ValueError, match="or is none, not"):
        parse_choice(f"0,{given}", "--adapter", 0, check=adapter_name)
    assert parse_choice("007=1,none=2", "--adapter", 0, check=adapter_name).names == (
        "7",
        "none",
    )
    with pytest.raises(ValueError, match="'7' is there twice"):
        parse_choice("7,07", "--adapter", 0, check=adapter_name)


@given(
    st.lists(st.integers(1, 20), min_size=2, max_size=5),
    st.integers(0, 2**32),
    st.integers(0, 50),
)
def test_every_block_has_each_name_as_often_as_its_share(
    shares: list[int], seed: int, block: int
) -> None:
    choice = WeightedChoice(tuple("abcde"[: len(shares)]), tuple(shares), seed)
    size = sum(shares)
    drawn = [
        choice.of("chat", place) for place in range(block * size, (block + 1) * size)
    ]
    assert Counter(drawn) == dict(zip(choice.names, shares, strict=True))
    assert drawn == [
        choice.of("chat", place) for place in range(block * size, (block + 1) * size)
    ]


def test_the_seed_and_the_workload_change_the_order() -> None:
    a, b = WeightedChoice(("a", "b"), (3, 1), 1), WeightedChoice(("a", "b"), (3, 1), 2)
    orders = [
        [choice.of(workload, place) for place in range(40)]
        for choice in (a, b)
        for workload in ("x", "y")
    ]
    assert len({tuple(order) for order in orders}) == 4
    assert [a.of("x", place, warmup=True) for place in range(4)] == ["a", "b", "a", "b"]
    assert WeightedChoice().of("x", 3) is None
    assert a.described() == "a 75 %, b 25 %"


def target(url: str, backend: str = "llama-server") -> Target:
    return Target(parse_url(url), backend, "m")


def test_adapters_must_be_listed() -> None:
    """The server itself ignores an id that it does not have."""
    listed = [
        {"id": 0, "path": "/models/a\u202e.gguf", "scale": 1.0},
        {"id": 1, "path": "b.gguf"},
        {"id": True},
        "x",
        {"id": -1},
    ]
    with json_server({"/lora-adapters": listed}) as server:
        assert check_adapters(target(server.url), ("0", "1", "none"), Session()) == {
            "0": "a\ufffd.gguf",
            "1": "b.gguf",
        }
        with pytest.raises(
            UsageError,
            match=r"has no LoRA adapter 2: it has 0 \(a\ufffd.gguf\), 1 \(b.gguf\)",
        ):
            check_adapters(target(server.url), ("0", "2"), Session())
        with pytest.raises(
            UsageError,
            match=r"--adapter is for llama-server, and .* is vllm: name its LoRA adapters as models",
        ):
            check_adapters(target(server.url, "vllm"), ("0",), Session())
    for answer, names, why in (
        ([], ("0",), "has no LoRA adapter 0: it has none, start it with --lora FILE"),
        ([], ("none",), "has no LoRA adapters, start it with --lora FILE"),
        ({}, ("0",), "does not list LoRA adapters: it answers HTTP 200"),
        (
            (501, {"error": "off"}, {}),
            ("0",),
            "does not list LoRA adapters: it answers HTTP 501",
        ),
        ("<html>", ("0",), "does not list LoRA adapters"),
    ):
        with (
            json_server({"/lora-adapters": answer}) as server,
            pytest.raises(UsageError, match=why),
        ):
            check_adapters(target(server.url), names, Session())


def test_a_request_names_its_adapter_alone() -> None:
    """An empty list would mean the server's own scales."""
    server = target("http://h:1")
    assert adapter_fields(server, "chat", "1") == {"lora": [{"id": 1, "scale": 1.0}]}
    assert adapter_fields(server, "completions", "none") == {
        "lora": [{"id": 0, "scale": 0.0}]
    }
    with pytest.raises(
        UsageError,
        match="--adapter is not supported for llama-server with --endpoint embeddings",
    ):
        adapter_fields(server, "embeddings", "1")
