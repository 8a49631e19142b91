"""The tests of llama-bench as loads, one request at a time.

ppN processes N prompt tokens, tgN generates N tokens.

| test | prompt | answer | what is timed |
|---|---|---|---|
| ppN | N tokens with BOS; none may be cached | 1 token | N / the server's prompt time |
| ppN @ dD | N tokens behind D that are cached since the warm-up | 1 token | as ppN |
| tgN | 8 tokens | N + 1 tokens | N / the server's time from first to last token: N steps |
| tgN @ dD | D tokens | N + 1 tokens | as tgN, at a context of D to D + N tokens |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llama_load.lab.sweep.grammar import TEST
from llama_load.lab.sweep.locustfile_flags import merged
from llama_load.lab.sweep.plan import FlagValues, Load

REQUESTS = 5  # llama-bench's own number of repetitions
SHORT_PROMPT = 8  # a prompt must have some text; llama-bench starts tg with BOS alone
PROCESS = "pp"
GENERATE = "tg"


def parse_test(test: str) -> tuple[str, int]:
    """`pp512` -> ("pp", 512). ValueError: no test."""
    match = TEST.fullmatch(test)
    if match is None:
        raise ValueError(test)
    return match[1], int(match[2])


def loads_of_tests(
    tests: Sequence[str], depths: Sequence[int], flags: FlagValues, **rest: Any
) -> list[Load]:
    """A load per depth and test; the plan's own flags replace ours."""
    loads = []
    for depth in depths:
        for test in tests:
            loads.append(
                Load(
                    test_label(test, depth),
                    merged(_flags(test, depth), flags),
                    test,
                    depth,
                    **rest,
                )
            )
    return loads


def test_label(test: str, depth: int) -> str:
    """As llama-bench prints it: `pp512 @ d4096`."""
    return f"{test} @ d{depth}" if depth else test


def as_lists(flags: Mapping[str, Any]) -> FlagValues:
    """Flags with one value each, as a plan has them."""
    return {name: [value] for name, value in flags.items()}


def _flags(test: str, depth: int) -> FlagValues:
    kind, tokens = parse_test(test)
    flags: dict[str, Any] = {
        "u": 1,
        "num-prompts": REQUESTS,
        "warmup": 1,
        "endpoint": "completions",
        "ignore-eos": True,
    }
    if kind != PROCESS:
        flags["input-len"] = max(SHORT_PROMPT, depth)
        flags["output-len"] = tokens + 1
    else:
        flags["input-len"] = tokens
        flags["output-len"] = 1
        if depth:
            flags["prefix-len"] = depth
    return as_lists(flags)
