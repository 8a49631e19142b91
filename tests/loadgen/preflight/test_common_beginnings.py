"""Common beginnings of different prompts: what a prefix cache can reuse, found when the run is
planned."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from llama_load.analysis.figures.prompt_cache import CacheEvidence, cache_help
from llama_load.loadgen.preflight.plan_beginnings import common_beginnings
from llama_load.run_folder.observed.common_beginnings import CommonBeginnings
from llama_load.servers.prompt import Message, Prompt
from tests.analysis.figures.test_prompt_cache import bad, checked, prompt, silent

BOOK = "The rules of the house, which every guest reads before anything else. " * 6


def plan(*texts: str, **more: object) -> dict[str, list[Prompt]]:
    prompts = [Prompt(text, len(text) // 4, **more) for text in texts]  # type: ignore[arg-type]
    return {"chat": prompts}


def own(number: int, length: int = 400) -> str:
    return "".join(random.Random(number).choices("abcdefgh ", k=length))


def test_what_a_cache_can_reuse_is_all_text_less_its_prefix_tree() -> None:
    """Ten prompts of the same 420 characters and 420 of their own: nine times 420 of 8400, and two
    letters by chance."""
    found = common_beginnings(
        plan(*(BOOK + own(number, len(BOOK)) for number in range(10))), {}
    )
    assert (found.prompts, found.sharing) == (10, 9)
    assert found.ratio == pytest.approx(0.45, abs=0.01)
    assert (
        common_beginnings(plan(*(own(number) for number in range(10))), {}).sharing == 0
    )


def test_what_is_shared_by_design_or_short_does_not_count() -> None:
    """A system prompt in the history is a beginning as well; as --system-prompt it is known, with
    its tokens."""
    system = (Message("system", BOOK),)
    texts = [own(number) for number in range(10)]
    assert common_beginnings(plan(*texts, history=system), {}).ratio > 0.4
    assert (
        common_beginnings(
            plan(*texts, history=system), {"chat": len(BOOK) // 4 + 1}
        ).ratio
        == 0
    )
    assert common_beginnings(plan(*texts, history=system), {"chat": None}).prompts == 0
    assert common_beginnings(plan(*("Why " + text for text in texts)), {}).sharing == 0
    # repetitions have a check of their own
    assert common_beginnings(plan(*(BOOK for _ in range(10))), {}).sharing == 0


def test_a_silent_server_may_have_cached_common_beginnings() -> None:
    """A third of the text: the traffic, which TTFT is marked with; what comes from a cache beyond
    that is none of it."""
    common = CommonBeginnings(prompts=300, ratio=0.34, mostly=0.0, sharing=299)
    evidence = CacheEvidence(common=common)
    quiet = checked([silent(number) for number in range(50)], evidence)
    assert bad(quiet) == []
    assert quiet["common_beginning_ratio"].value == pytest.approx(0.34)
    assert cache_help(quiet.values()) == (
        "TTFT has perhaps the cache's help: 34% of prompt tokens"
    )

    assert (
        bad(
            checked(
                [prompt(number, cached_tokens=34) for number in range(50)], evidence
            )
        )
        == []
    )
    assert bad(
        checked([prompt(number, cached_tokens=60) for number in range(50)], evidence)
    ) == ["cached_prompt_ratio"]
    assert (
        bad(
            checked(
                [silent(number) for number in range(50)],
                CacheEvidence(common=common, intended=True),
            )
        )
        == []
    )
    assert (
        bad(
            checked(
                [silent(number) for number in range(50)],
                CacheEvidence(common=common, is_off=True),
            )
        )
        == []
    )


def test_beginnings_of_ones_own_prompts_cost_no_word() -> None:
    """20 different questions whose first 2 tokens of 18 are the same: those that a locustfile
    writes are known as they are sent. A prompt that was cached as a whole is still named."""
    text = {"prompt_tokens": 18, "prompt_chars": 70}
    rows = [
        prompt(number, cached_tokens=2 * (number > 0), common_chars=10, **text)
        for number in range(20)
    ]
    found = checked(rows)
    assert bad(found) == []
    assert (
        cache_help(found.values()) == "TTFT has the cache's help: 11% of prompt tokens"
    )
    intended = checked(rows, CacheEvidence(intended=True))
    assert cache_help(intended.values()) == cache_help(found.values())

    rows[7] = prompt(7, cached_tokens=18, common_chars=10, **text)
    found = checked(rows)
    assert bad(found) == ["cached_prompt_ratio"]
    assert cache_help(found.values()) is None
    unlike = [replace(row, common_chars=None, cached_tokens=2) for row in rows]
    assert bad(checked(unlike)) == ["cached_prompt_ratio"]
