"""What a prompt has in common with those that were sent before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_load.loadgen.users import sent_beginnings
from llama_load.loadgen.users.compared_prompts import ComparedPrompt
from llama_load.loadgen.users.sent_beginnings import SentBeginnings

CACHE = ("http://127.0.0.1:1", "chat", "m", None)
OTHER = ("http://127.0.0.1:2", "chat", "m", None)
LEAST_CHARS = 12
BEGINNING = "s" * LEAST_CHARS


@given(st.lists(st.text("ab", max_size=6), min_size=1, max_size=30))
@pytest.mark.hypothesis
def test_it_is_the_longest_beginning_of_all_texts_before(ends: list[str]) -> None:
    beginnings = SentBeginnings()
    texts: list[str] = []
    for number, end in enumerate(ends):
        text = BEGINNING + end
        found = beginnings.compared(CACHE, text, LEAST_CHARS)
        longest = 0
        for earlier in texts:
            if earlier != text:
                longest = max(longest, common(earlier, text))
        assert (found.common_chars or 0) == longest
        if found.earlier_request is not None:
            earlier = texts[int(found.earlier_request)]
            assert common(earlier, text) == longest
            assert found.earlier_chars == len(earlier)
        beginnings.add(CACHE, text, str(number), LEAST_CHARS)
        texts.append(text)


def common(one: str, other: str) -> int:
    count = 0
    for mine, its in zip(one, other, strict=False):
        if mine != its:
            break
        count += 1
    return count


def test_repetitions_and_short_texts_and_other_caches_have_none() -> None:
    beginnings = SentBeginnings()
    beginnings.add(CACHE, BEGINNING + "a", "1", LEAST_CHARS)
    beginnings.add(CACHE, "short", "2", LEAST_CHARS)
    nothing = ComparedPrompt()
    assert beginnings.compared(CACHE, BEGINNING + "a", LEAST_CHARS) == nothing
    assert beginnings.compared(CACHE, "short too", LEAST_CHARS) == nothing
    assert beginnings.compared(CACHE, "t" + BEGINNING, LEAST_CHARS) == nothing
    assert beginnings.compared(OTHER, BEGINNING + "b", LEAST_CHARS) == nothing
    found = beginnings.compared(CACHE, BEGINNING + "b", LEAST_CHARS)
    assert (found.common_chars, found.earlier_request) == (LEAST_CHARS, "1")
    beginnings.add(CACHE, BEGINNING + "a", "3", LEAST_CHARS)
    assert (
        beginnings.compared(CACHE, BEGINNING + "b", LEAST_CHARS).earlier_request == "3"
    )


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent_beginnings, "MOST_CHARS", 3 * LEAST_CHARS)
    beginnings = SentBeginnings()
    for number in range(10):
        beginnings.add(
            CACHE, BEGINNING + "abcdefghij"[number], str(number), LEAST_CHARS
        )
    assert (
        beginnings.compared(CACHE, BEGINNING + "b!", LEAST_CHARS).common_chars
        == LEAST_CHARS + 1
    )
    assert (
        beginnings.compared(CACHE, BEGINNING + "j!", LEAST_CHARS).common_chars
        == LEAST_CHARS
    )
