"""The longest answers of a run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from llama_load.analysis.topics.topic import Topic, TopicInput
from llama_load.ground.languages import Translate
from llama_load.tables import Table, columns

MOST = 3


def longest_answers(given: TopicInput) -> dict[str, int] | None:
    """Output tokens of the longest answers, by request; None where no tokens were counted."""
    ok = given.measured.ok()
    tokens = ok.numbers("output_tokens")
    ids = ok.strings("request_id")
    known = np.flatnonzero(~np.isnan(tokens))
    if not len(known):
        return None
    longest = known[np.argsort(-tokens[known], kind="stable")][:MOST]
    return {str(ids[place]): int(tokens[place]) for place in longest}


def longest_tables(longest: dict[str, int], t: Translate) -> Iterator[Table]:
    """A row per request."""
    rows = [[name, str(tokens)] for name, tokens in longest.items()]
    yield Table(t("Longest Answers"), columns(t("request"), "tokens"), rows)


LONGEST_ANSWERS = Topic(
    "longest_answers",
    longest_answers,
    longest_tables,
    chinese={"Longest Answers": "最长的回答"},
)
