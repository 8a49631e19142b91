"""What `llama-load prompts` prints of one conversation, beside tests/analysis/topics/test_reprocessing.py
and tests/record/test_recorded_turns.py."""

from __future__ import annotations

from llama_load.analysis.reports.conversation_prompts import TurnTexts, turns_lines
from llama_load.analysis.topics.reprocessing import ReprocessedTurn
from llama_load.analysis.topics.reprocessing.causes import TAKEN, TEMPLATE
from llama_load.servers.differing_token import TokenPlace

THREAD = ("conversations", "1", None)


def turn(cause: str | None, lost: int, same_text: float = 1.0) -> ReprocessedTurn:
    return ReprocessedTurn(
        row=1,
        before=0,
        thread=THREAD,
        conversation="mend",
        turn=2,
        prompt=900,
        could=800,
        cached=800 - lost,
        lost=lost,
        ms=5.0,
        cause=cause,
        taker=None,
        same_text=same_text,
        changed_in=None if same_text == 1 else "message 0 (system)",
    )


def lines(given: ReprocessedTurn, texts: TurnTexts) -> list[str]:
    """Those after the tables and the remedies."""
    printed = list(turns_lines([given], None, lambda _: texts, "keep them"))
    return printed[[line.startswith("turn 2") for line in printed].index(True) :]


def test_a_template_that_changed_earlier_text_is_shown_as_it_renders_it() -> None:
    texts = TurnTexts(("<think>Hm", "It is"), TokenPlace(57))
    assert lines(turn(TEMPLATE, 700), texts) == [
        "turn 2: as the chat template has it, it begins as the prompt before for 57 tokens, "
        "then:",
        "  before: …<think>Hm…",
        "  now:    …It is…",
    ]


def test_the_text_and_the_tokens_that_are_the_same() -> None:
    texts = TurnTexts(("10:11", "10:47"), TokenPlace(57), without=200)
    assert lines(turn(None, 0, 0.5), texts)[0] == (
        "turn 2 begins as the prompt before for 50.0% of its text and 57 tokens "
        "(without the 200 of tools and the like), up to message 0 (system), then:"
    )
    assert lines(turn(None, 0, 0.5), TurnTexts()) == [
        "turn 2 begins as the prompt before for 50.0% of its text, up to message 0 (system); "
        "keep them to see where they differ"
    ]


def test_the_tokens_of_a_digest_and_of_images() -> None:
    """Of a digest the block in which they differ is known; of an image its place."""
    counted = {
        TokenPlace(16, 31): "16 to 31 tokens",
        TokenPlace(20, images=1): "20 tokens and 1 image",
    }
    for place, expected in counted.items():
        (line,) = lines(turn(None, 0, 0.5), TurnTexts(token=place))
        assert f"of its text and {expected}, up to message 0 (system)" in line


def test_a_prompt_that_goes_on_has_no_difference() -> None:
    printed = list(turns_lines([turn(TAKEN, 700)], None, lambda _: TurnTexts(), ""))
    assert not any(line.startswith("turn 2") for line in printed)
