"""What is measured beside the figures: a folder and a row for each topic.

Every output iterates these rows, in this order: none can forget a topic, or a language.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from llama_load.analysis.topics.affinity import AFFINITY
from llama_load.analysis.topics.answer_forms import ANSWER_FORMS
from llama_load.analysis.topics.conversations import CONVERSATIONS
from llama_load.analysis.topics.engine import ENGINE
from llama_load.analysis.topics.hang_ups import HANG_UPS
from llama_load.analysis.topics.probes import PROBES
from llama_load.analysis.topics.reprocessing import REPROCESSING
from llama_load.analysis.topics.same_answers import SAME_ANSWERS
from llama_load.analysis.topics.soak import SOAK
from llama_load.analysis.topics.steady import STEADY
from llama_load.analysis.topics.switching import SWITCHING
from llama_load.analysis.topics.topic import Found, Topic, TopicInput
from llama_load.ground.plugins import TOPICS as ADDED
from llama_load.ground.plugins import added

__all__ = ["Found", "Topic", "TopicInput", "found_in", "topics"]

_OWN: tuple[Topic[Any], ...] = (
    STEADY,
    SOAK,
    ANSWER_FORMS,
    HANG_UPS,
    SAME_ANSWERS,
    PROBES,
    SWITCHING,
    AFFINITY,
    CONVERSATIONS,
    ENGINE,
    REPROCESSING,
)


@cache
def topics() -> tuple[Topic[Any], ...]:
    """All of them: those of installed packages come last."""
    return (*_OWN, *added(ADDED, Topic))


def found_in(given: TopicInput) -> dict[str, Found[Any]]:
    """The topics of a run with their figures, by their keys."""
    found = {}
    for topic in topics():
        figures = topic.figures(given)
        if figures is not None:
            found[topic.key] = Found(topic, figures)
    return found
