"""Answers under load against those to the same prompts alone."""

from __future__ import annotations

import dataclasses

from llama_load.analysis.topics.same_answers.same_answers import (
    compared_answers as same_answers,
)
from llama_load.run_folder.observed.record import RequestRecord, to_batch
from llama_load.run_folder.observed.records import Records
from tests.make_records import record


def _records(*rows: tuple[int, str, str]) -> Records:
    """(stage, prompt, answer) of each request."""
    import pyarrow as pa

    made: list[RequestRecord] = []
    for number, (stage, prompt, answer) in enumerate(rows):
        values = {
            "stage": stage,
            "prompt_sha256": prompt,
            "output_sha256": answer,
            "output_text": answer,
            "output_chars": len(answer),
        }
        made.append(
            dataclasses.replace(record(), request_id=f"{number:032x}", **values)
        )
    return Records(pa.Table.from_batches([to_batch(made)]))


def test_answers_are_compared_by_prompt() -> None:
    """Prompt a: same; b differs from its third character on; c was never sent alone; d differs
    alone, too."""
    rows = [
        (0, "a", "yes"),
        (0, "b", "no way"),
        (0, "d", "x"),
        (0, "d", "y"),
        (1, "a", "yes"),
        (1, "b", "no, way"),
        (1, "c", "z"),
    ]
    same = same_answers(_records(*rows))
    assert (same.compared, same.differing, same.unstable, same.ratio) == (2, 1, 1, 0.5)
    (example,) = same.examples
    assert (example.place, example.alone_text, example.loaded_text) == (
        2,
        " way",
        ", way",
    )
    assert (example.alone_chars, example.loaded_chars, example.stage) == (6, 7, 1)


def test_nothing_to_compare_is_no_ratio() -> None:
    assert same_answers(_records((0, "a", "yes"))).ratio is None
