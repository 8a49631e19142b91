"""Whether prompts get the same answer under load as alone: the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from llama_load.analysis.topics.same_answers.same_answers import (
    DifferingAnswer,
    SameAnswers,
)
from llama_load.ground.languages import Translate
from llama_load.ground.units import quantity
from llama_load.tables import Cell, Row, Table, columns


def same_answer_tables(same: SameAnswers, t: Translate) -> Iterator[Table]:
    """How many answers were compared, and how many differed, with examples."""
    different = str(same.differing)
    if same.ratio is not None:
        different += f" ({same.ratio:.1%})"

    rows: list[Row] = [
        [t("compared with the answer alone"), str(same.compared)],
        [t("different"), Cell(different, same.differing)],
    ]

    notes = []
    if same.unstable:
        prompts = quantity(same.unstable, "prompt")
        notes.append(
            f"{prompts} got different answers alone, too: this server is not repeatable"
        )

    notes += map(_example, same.examples)

    title = t("Same Answers under Load")
    yield Table(title, columns(t("answers"), ""), rows, notes)


def same_answer_plain(same: SameAnswers) -> dict[str, Any]:
    """The counts, the examples and the share that differs."""
    return asdict(same) | {"ratio": same.ratio}


def _example(example: DifferingAnswer) -> str:
    ids = f"requests {example.alone_id[:8]} and {example.loaded_id[:8]}"
    if example.place is None:
        chars = f"{example.alone_chars} and {example.loaded_chars} characters"
        return f"{ids}: {chars}; --save-texts shows the texts"

    alone = f"{example.alone_text!r} alone"
    loaded = f"{example.loaded_text!r} under load"

    return f"{ids}: from character {example.place} {alone}, {loaded}"
