"""How much of a prompt is the one before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llama_load.loadgen.users.compared_prompts import comparable_text
from llama_load.servers.apis import CHAT
from llama_load.servers.apis.changed_prompts import PIECE_CHARS, common_length
from llama_load.servers.apis.prompt_content import as_text

TEXTS = st.text("ab", max_size=9)


@given(TEXTS, TEXTS, TEXTS, st.sampled_from([0, 3, PIECE_CHARS - 1, PIECE_CHARS, 9000]))
def test_the_common_length_is_that_of_the_longest_common_beginning(
    common: str, one: str, other: str, before: int
) -> None:
    first = "c" * before + common + one
    second = "c" * before + common + other
    expected = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        expected += 1
    assert common_length(first, second) == expected


def test_a_first_question_begins_the_prompt_that_goes_on_from_it() -> None:
    """Though the first is a text and the second a list of messages."""
    question = {"role": "user", "content": "What is it?"}
    more = [question, {"role": "assistant", "content": "It."}, question]
    first = comparable_text(CHAT, "What is it?", "What is it?")
    second = comparable_text(CHAT, more, as_text(more))
    assert common_length(first, second) == len(first)
    assert comparable_text(CHAT, [question], as_text([question])) == first
