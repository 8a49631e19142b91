"""Common beginnings of different prompts: what a prefix cache can reuse, found when the run is
planned."""

from __future__ import annotations

import random

import pytest

from llama_load.metrics.prompt_cache import CacheEvidence
from llama_load.observed.common_beginnings import CommonBeginnings
from llama_load.preflight.plan_beginnings import common_beginnings
from llama_load.workloads.prompt import Message, Prompt
from tests.metrics.test_prompt_cache import bad, checked, prompt, silent

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
    assert (
        common_beginnings(plan(*("Please write " + text for text in texts)), {}).sharing
        == 0
    )
    # repetitions have a check of their own
    assert common_beginnings(plan(*(BOOK for _ in range(10))), {}).sharing == 0


def test_a_silent_server_may_have_cached_common_beginnings() -> None:
    """A third of the text. Where the server reports its cache, or caching is intended, such prompts
    are the traffic."""
    common = CommonBeginnings(prompts=300, ratio=0.34, mostly=0.0, sharing=299)
    evidence = CacheEvidence(common=common)
    quiet = checked([silent(number) for number in range(50)], evidence)
    assert bad(quiet) == ["common_beginning_ratio"]
    assert quiet["common_beginning_ratio"].value == pytest.approx(0.34)

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
