"""A search with prompts of very different lengths says what such searches are worth."""

from __future__ import annotations

import pytest

from llama_load.lab.search.prompt_lengths import note_of_lengths
from tests.make_records import record, table


@pytest.mark.parametrize(
    ("lengths", "says"),
    [
        ([100] * 17 + [1100] * 3, "11 x the median"),
        ([100] * 17 + [300] * 3, None),
        ([100] * 10 + [1100] * 3, None),  # too few to know
    ],
)
def test_very_different_lengths_are_noted(lengths: list[int], says: str | None) -> None:
    made = [
        record(number, prompt_tokens=tokens) for number, tokens in enumerate(lengths)
    ]
    note = note_of_lengths(table(*made))
    assert (says is None and note is None) or (note is not None and str(says) in note)
