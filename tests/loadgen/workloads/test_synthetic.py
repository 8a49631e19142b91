"""Random words: lengths to the token, ranges, shared prefixes, slots."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.prompt_plan import Plan, PlanRequest, Traffic
from llama_load.loadgen.workloads.synthetic import Synthetic
from llama_load.servers.counting import EstimatedCounter, LocalCounter, TokenCounter


class Pieces:
    """A token for every four letters of a word, for every sign and Chinese character, and one for
    the beginning."""

    source = "pieces"

    def __init__(self) -> None:
        self.texts = 0

    def count(self, texts: Sequence[str]) -> list[int]:
        self.texts += len(texts)
        return [
            1 + len(re.findall(r"[\u4e00-\u9fff]|[a-zA-Z]{1,4}|[^\sa-zA-Z]", text))
            for text in texts
        ]


def plan(
    counter: TokenCounter | None = None,
    *,
    num_prompts: int = 20,
    warmup: int = 2,
    seed: int = 0,
    **flags: object,
) -> Plan:
    known = {
        name: flags.pop(name)
        for name in ("fill", "room", "fits", "output_len")
        if name in flags
    }
    wanted = {
        "num_prompts": num_prompts,
        "fill": True,
        "warmup": warmup,
        "seed": seed,
        "counter": counter or Pieces(),
    }
    return Synthetic().plan(PlanRequest(**wanted | known, traffic=Traffic(**flags)))


def shared_beginning(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)
    return first[
        : next(
            (
                place
                for place, (a, b) in enumerate(zip(first, last, strict=False))
                if a != b
            ),
            len(first),
        )
    ]


def test_prompts_have_1024_tokens_by_default_and_answers_128() -> None:
    found = plan()
    assert [(prompt.prompt_tokens, prompt.max_tokens) for prompt in found.measured] == [
        (1024, 128)
    ] * 20
    assert Pieces().count([prompt.text for prompt in found.measured]) == [1024] * 20


def test_a_real_tokenizer_counts_what_was_wanted(tiny_model: Path) -> None:
    counter = LocalCounter(tiny_model.parent)
    found = plan(counter, input_len=300, prefix_len=50, range_ratio=0.3)
    assert counter.count([prompt.text for prompt in found.measured]) == [
        prompt.prompt_tokens for prompt in found.measured
    ]
    assert all(
        50 + 210 <= prompt.prompt_tokens <= 50 + 390 for prompt in found.measured
    )


@given(tokens=st.integers(5, 400), seed=st.integers(0, 1000))
@settings(max_examples=settings().max_examples // 2)
def test_every_length_is_met_to_the_token(tokens: int, seed: int) -> None:
    found = plan(num_prompts=3, input_len=tokens, seed=seed)
    assert [prompt.prompt_tokens for prompt in found.measured] == [tokens] * 3


def test_estimates_are_within_a_percent_of_what_was_wanted() -> None:
    assert all(
        1014 <= prompt.prompt_tokens <= 1034
        for prompt in plan(EstimatedCounter()).measured
    )


def test_most_prompts_are_counted_once_or_twice() -> None:
    """Plus the 300 words of the vocabulary, which are counted once a run."""
    counter = Pieces()
    plan(counter, num_prompts=300, warmup=0)
    assert counter.texts < 400 + 2 * 300


def test_prompts_are_ordinary_words_with_some_chinese_and_code() -> None:
    text = plan(num_prompts=1).measured[0].text
    words = text.split()
    assert sum(word.isascii() and word.isalpha() for word in words) > 0.7 * len(words)
    assert re.search(r"[\u4e00-\u9fff]", text)
    assert re.search(r"[_()=<>/#]", text)


def test_all_prompts_differ_from_their_beginning_on() -> None:
    found = plan(num_prompts=100)
    assert len({prompt.text[:60] for prompt in found.measured + found.warmup}) == 102
    assert (found.facts.distinct, found.facts.repeated) == (100, 0)


def test_lengths_spread_over_the_range_and_no_further() -> None:
    """range_ratio 0.5 of 200 and 40: 100 to 300, 20 to 60, as in vLLM."""
    found = plan(num_prompts=400, input_len=200, output_len=40, range_ratio=0.5)
    inputs = [prompt.prompt_tokens for prompt in found.measured]
    outputs = [prompt.max_tokens for prompt in found.measured]
    assert 100 <= min(inputs) < 110
    assert 290 < max(inputs) <= 300
    assert (min(outputs), max(outputs)) == (20, 60)
    assert sum(inputs) / 400 == pytest.approx(200, rel=0.05)


def test_prefixes_are_shared_in_turn() -> None:
    """Three prefixes of 64 tokens: prompts 0, 3, 6 … begin alike, others do not; the prefix comes
    on top of the length."""
    found = plan(num_prompts=9, input_len=100, prefix_len=64, num_prefixes=3)
    texts = [prompt.text for prompt in found.measured]
    assert all(prompt.prompt_tokens == 164 for prompt in found.measured)
    for number in range(3):
        assert Pieces().count([shared_beginning(texts[number::3])])[0] >= 64
    assert Pieces().count([shared_beginning(texts)])[0] < 5
    assert len(set(texts)) == 9


def test_prompts_that_do_not_fit_are_drawn_again_and_counted() -> None:
    found = plan(
        num_prompts=50,
        input_len=200,
        range_ratio=0.5,
        fits=lambda prompt, answer: prompt + answer <= 300,
    )
    assert all(
        prompt.prompt_tokens + prompt.max_tokens <= 300 for prompt in found.measured
    )
    assert 0 < found.facts.replaced < 50
    assert len(found.measured) == 50


def test_when_nothing_fits_the_sentence_names_the_room() -> None:
    fits = {"fits": lambda prompt, answer: prompt + answer <= 512}
    with pytest.raises(
        UsageError,
        match=r"room for 384 prompt tokens with an answer of 128, and the shortest .* has 1024",
    ):
        plan(**fits, room=lambda answer: 512 - answer)
    with pytest.raises(UsageError, match="too little room"):
        plan(**fits)


def test_prompts_too_short_to_differ_are_repeated_and_reported() -> None:
    """Two tokens are one short word, of which there are not 1000; warm-up prompts are still none of
    the measured."""
    found = plan(num_prompts=1000, input_len=2)
    assert len(found.measured) == 1000
    assert (
        found.facts.distinct == len({prompt.text for prompt in found.measured}) < 1000
    )
    assert found.facts.distinct + found.facts.repeated == 1000
    assert not {prompt.text for prompt in found.warmup} & {
        prompt.text for prompt in found.measured
    }
    assert (
        len(plan(num_prompts=1000, input_len=2, fill=False).measured)
        == found.facts.distinct
    )


@pytest.mark.parametrize("tokens", [2, 3, 5])
def test_short_prompts_are_as_exact_as_long_ones(tiny_model: Path, tokens: int) -> None:
    """With a real tokenizer, which counts some words otherwise where no space is before them:
    rather repeated than longer."""
    for counter in (LocalCounter(tiny_model.parent), Pieces()):
        found = plan(counter, num_prompts=64, input_len=tokens)
        assert (
            counter.count([prompt.text for prompt in found.measured]) == [tokens] * 64
        )
        assert {prompt.prompt_tokens for prompt in found.measured} == {tokens}
        assert found.facts.distinct == 64


def test_prompts_shorter_than_any_text_are_refused_in_a_sentence() -> None:
    """A word and BOS are two tokens. After a prefix, which has the BOS, a word is one."""
    with pytest.raises(
        UsageError,
        match=r"--input-len 1: the shortest text has 2 tokens .*BOS.*give --input-len 2 or more",
    ):
        plan(input_len=1)
    with pytest.raises(UsageError, match=r"--prefix-len 1: .* give --prefix-len 2"):
        plan(input_len=50, prefix_len=1)
    assert {
        prompt.prompt_tokens for prompt in plan(input_len=1, prefix_len=8).measured
    } == {9}


@pytest.mark.parametrize("flags", [{"range_ratio": 1.0}, {"range_ratio": -0.1}])
def test_lengths_that_are_none_are_refused(flags: dict) -> None:
    with pytest.raises(UsageError, match="--range-ratio"):
        plan(**flags)


def test_the_same_seed_gives_the_same_plan() -> None:
    flags = {"input_len": 50, "range_ratio": 0.4, "prefix_len": 10}
    assert plan(seed=5, **flags) == plan(seed=5, **flags)
    assert plan(seed=5, **flags).measured[0] != plan(seed=6, **flags).measured[0]
    assert (
        plan(num_prompts=5, warmup=0, **flags).measured
        == plan(num_prompts=20, **flags).measured[:5]
    )
