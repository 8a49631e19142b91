"""Replayed traces: lengths to the token, shared beginnings, slots."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_load import Replay
from llama_load.ground.errors import UsageError
from llama_load.loadgen.preflight.load_fits import load_trace
from llama_load.loadgen.workloads.arrival import Arrival
from llama_load.loadgen.workloads.prompt_plan import Plan, PlanRequest, Traffic
from llama_load.servers.counting import EstimatedCounter, LocalCounter, TokenCounter
from llama_load.servers.prompt import Prompt
from tests.loadgen.workloads.test_synthetic import Pieces

MOONCAKE = """\
{"timestamp": 0, "input_length": 1300, "output_length": 52, "hash_ids": [7, 8, 9]}
{"timestamp": 9, "input_length": 1200, "output_length": 26, "hash_ids": [7, 8, 10]}
{"timestamp": 27, "input_length": 600, "output_length": 3, "hash_ids": [11, 12]}
"""


class Spaced(Pieces):
    """Words without a space before them, the first of a text that is, have another token:
    byte-level BPE knows such words."""

    def count(self, texts: Sequence[str]) -> list[int]:
        return [
            tokens + (len(re.match(r"\w*", text)[0]) > 4)
            for text, tokens in zip(texts, super().count(texts), strict=True)
        ]


def plan(
    trace: Sequence[Arrival] | None,
    counter: TokenCounter | None = None,
    **flags: object,
) -> Plan:
    wanted = {
        "num_prompts": 1000,
        "fill": True,
        "warmup": 0,
        "seed": 0,
        "counter": counter or Pieces(),
        "trace": trace,
    }
    return Replay().plan(PlanRequest(**wanted | flags))


def replayed(*arrivals: Arrival, **flags: object) -> list[Prompt]:
    return plan(arrivals, **flags).measured


def alike(a: str, b: str) -> str:
    """What both begin with."""
    return a[
        : next(
            (place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y),
            min(len(a), len(b)),
        )
    ]


def tokens(text: str) -> int:
    return Pieces().count([text])[0]


def slot(context: int) -> dict[str, object]:
    return {
        "fits": lambda prompt, answer: prompt + answer <= context,
        "room": lambda answer: max(0, context - answer),
    }


def test_a_mooncake_trace_becomes_prompts_of_its_lengths_and_shared_blocks(
    tmp_path: Path,
) -> None:
    """1300 and 1200 tokens share the blocks 7 and 8, 1024 tokens; 600 tokens share nothing."""
    (tmp_path / "trace.jsonl").write_text(MOONCAKE)
    found = plan(load_trace(tmp_path / "trace.jsonl").arrivals)
    assert [(prompt.prompt_tokens, prompt.max_tokens) for prompt in found.measured] == [
        (1300, 52),
        (1200, 26),
        (600, 3),
    ]
    first, second, third = (prompt.text for prompt in found.measured)
    assert [tokens(text) for text in (first, second, third)] == [1300, 1200, 600]
    assert 1024 <= tokens(alike(first, second)) < 1034
    assert tokens(alike(first, third)) < 10
    assert found.facts.shared_tokens is None


def test_a_real_tokenizer_counts_what_was_wanted(tiny_model: Path) -> None:
    counter = LocalCounter(tiny_model.parent)
    found = replayed(
        *(Arrival(0.0, 3 + 97 * number, 1, (0, number)) for number in range(30)),
        counter=counter,
    )
    assert [prompt.prompt_tokens for prompt in found] == [
        3 + 97 * number for number in range(30)
    ]
    assert counter.count([prompt.text for prompt in found]) == [
        prompt.prompt_tokens for prompt in found
    ]


@given(
    length=st.integers(3, 3000),
    ids=st.lists(st.integers(0, 9), max_size=6),
    seed=st.integers(0, 9),
)
@settings(max_examples=settings().max_examples // 2)
def test_every_length_is_met_to_the_token(
    length: int, ids: list[int], seed: int
) -> None:
    """With as many ids as the prompt has blocks, with fewer, and with more."""
    (prompt,) = replayed(Arrival(0.0, length, 5, tuple(ids)), seed=seed)
    assert prompt.prompt_tokens == length == tokens(prompt.text)


def test_a_first_word_may_have_other_tokens_than_the_same_word_later() -> None:
    prompts = replayed(
        *(Arrival(0.0, 50 + number, 5) for number in range(100)), counter=Spaced()
    )
    assert Spaced().count([prompt.text for prompt in prompts]) == [
        prompt.prompt_tokens for prompt in prompts
    ]
    assert [prompt.prompt_tokens for prompt in prompts] == [
        50 + number for number in range(100)
    ]


def test_estimates_are_within_a_percent_of_what_was_wanted() -> None:
    found = replayed(
        *(Arrival(0.0, 1000 + 100 * number, 5, (number,)) for number in range(50)),
        counter=EstimatedCounter(),
    )
    for number, prompt in enumerate(found):
        assert prompt.prompt_tokens == pytest.approx(1000 + 100 * number, abs=1)
        assert EstimatedCounter().count([prompt.text])[0] == pytest.approx(
            prompt.prompt_tokens, rel=0.01
        )


requests = st.lists(
    st.tuples(st.lists(st.integers(0, 3), max_size=4), st.integers(3, 2048)),
    min_size=2,
    max_size=6,
)


@given(drawn=requests, seed=st.integers(0, 9))
@settings(max_examples=settings().max_examples // 2)
def test_prompts_share_the_blocks_that_both_begin_with_and_no_more(
    drawn: list[tuple[list[int], int]], seed: int
) -> None:
    """Up to a word at the end of the shorter one, or beyond the last block that both have, which
    may be alike by chance."""
    trace = [Arrival(0.0, length, 5, tuple(ids)) for ids, length in drawn]
    texts = [prompt.text for prompt in replayed(*trace, seed=seed)]
    for (a, text_a), (b, text_b) in pairwise(zip(trace, texts, strict=True)):
        same = next(
            (
                n
                for n, (x, y) in enumerate(zip(a.hash_ids, b.hash_ids, strict=False))
                if x != y
            ),
            None,
        )
        blocks = min(len(a.hash_ids), len(b.hash_ids)) if same is None else same
        expected = min(512 * blocks, a.input_tokens, b.input_tokens)
        assert expected - 8 <= tokens(alike(text_a, text_b)) <= expected + 12


def test_a_block_depends_on_the_seed_and_its_id_alone() -> None:
    """Whichever request it is in, and whatever goes before it."""
    alone = replayed(Arrival(0.0, 513, 1, (5,)))[0].text
    later = replayed(Arrival(0.0, 100, 1, (1,)), Arrival(0.0, 1025, 1, (3, 5)))[1].text
    assert later.endswith(alone)
    assert not replayed(Arrival(0.0, 1025, 1, (3, 5)), seed=1)[0].text.endswith(alone)


def test_the_same_seed_gives_the_same_plan() -> None:
    trace = [
        Arrival(0.0, 300 + number, 5, (0,) if number % 2 else ())
        for number in range(20)
    ]
    assert plan(trace, seed=5) == plan(trace, seed=5)
    assert plan(trace, seed=5).measured != plan(trace, seed=6).measured
    assert plan(trace, num_prompts=7).measured == plan(trace).measured[:7]


def test_no_more_prompts_are_planned_than_the_trace_has() -> None:
    found = plan([Arrival(0.0, 50, 5)] * 3, num_prompts=10)
    assert len(found.measured) == found.facts.distinct == 3
    assert found.facts.repeated == 0


def test_requests_without_ids_are_all_different() -> None:
    """BurstGPT and run folders know no ids."""
    found = plan([Arrival(0.0, 200, 5)] * 300)
    assert len({prompt.text[:60] for prompt in found.measured}) == 300
    assert found.facts.shared_tokens == 0


def test_cached_prompts_are_meant_if_requests_begin_with_the_same_block() -> None:
    trace = [Arrival(0.0, 2000, 5, ids) for ids in [(1, 9), (2, 9), (1, 8)]]
    assert [
        plan(trace, num_prompts=wanted).facts.shared_tokens for wanted in (1, 2, 3)
    ] == [0, 0, None]


def test_lengths_that_the_trace_does_not_tell_are_those_of_flags() -> None:
    trace = [Arrival(0.0), Arrival(1.0, 50), Arrival(2.0, None, 7)]
    found = plan(trace, output_len=9, traffic=Traffic(input_len=30))
    assert [(prompt.prompt_tokens, prompt.max_tokens) for prompt in found.measured] == [
        (30, 9),
        (50, 9),
        (30, 7),
    ]
    assert found.facts.dataset.without_lengths == 3
    with pytest.raises(UsageError, match="request 1 of the trace has no prompt length"):
        plan(trace)
    with pytest.raises(UsageError, match="request 2 of the trace has no answer length"):
        plan([Arrival(0.0, 5, 5), Arrival(1.0, 50)])


def test_a_request_of_no_tokens_is_one_word_and_asks_for_one_token() -> None:
    (prompt,) = replayed(Arrival(0.0, 0, 0))
    assert (prompt.prompt_tokens, prompt.max_tokens) == (2, 1)
    assert tokens(prompt.text) == 2


def test_prompts_too_long_for_a_slot_are_shortened_and_counted() -> None:
    """A context of 1000: 900 + 100 fit, with 100 of answer, 900 of 1000 fit. Without a slot's size
    nothing is shortened."""
    trace = [
        Arrival(0.0, 900, 100, (1, 2)),
        Arrival(0.0, 1000, 100, (1, 3)),
        Arrival(0.0, 5000, 10),
    ]
    found = plan(trace, **slot(1000))
    assert [prompt.prompt_tokens for prompt in found.measured] == [900, 900, 990]
    assert [tokens(prompt.text) for prompt in found.measured] == [900, 900, 990]
    assert found.facts.shortened == 2
    kept = plan(trace)
    assert (
        [prompt.prompt_tokens for prompt in kept.measured],
        kept.facts.shortened,
    ) == ([900, 1000, 5000], 0)


def test_an_answer_that_leaves_no_room_for_a_prompt_is_refused() -> None:
    trace = [Arrival(0.0, 100, 100), Arrival(0.0, 100, 1000)]
    with pytest.raises(
        UsageError,
        match=r"no room for a prompt with an answer of 1000 tokens.*--max-tokens",
    ):
        plan(trace, **slot(1000))
    with pytest.raises(UsageError, match="no room"):
        plan(trace, fits=lambda prompt, answer: False)


@pytest.mark.parametrize("trace", [None, []])
def test_without_a_trace_the_sentence_names_the_flag(
    trace: list[Arrival] | None,
) -> None:
    with pytest.raises(UsageError, match="--trace FILE"):
        plan(trace)


def test_warm_up_prompts_have_the_median_length_and_begin_like_no_other() -> None:
    found = plan(
        [Arrival(0.0, length, length // 10, (1, 2)) for length in (90, 700, 600)],
        warmup=3,
    )
    assert [(prompt.prompt_tokens, prompt.max_tokens) for prompt in found.warmup] == [
        (600, 60)
    ] * 3
    assert (
        len(
            {prompt.text[:40] for prompt in found.warmup}
            | {found.measured[0].text[:40]}
        )
        == 4
    )


def test_what_is_counted_does_not_grow_with_the_trace() -> None:
    short, long = Pieces(), Pieces()
    plan([Arrival(0.0, 100, 5, (1,))], short)
    plan([Arrival(0.0, 5000, 5, (1, number)) for number in range(200)], long)
    assert short.texts == long.texts < 1500


def test_prompts_are_ascii() -> None:
    """Python keeps them at a byte a character then: 20 000 prompts of 8000 tokens are 0.7 GB rather
    than 1.4."""
    assert all(
        prompt.text.isascii() for prompt in replayed(*[Arrival(0.0, 2000, 5)] * 20)
    )
