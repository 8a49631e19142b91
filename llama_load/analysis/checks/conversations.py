"""Checks of conversations: turns that the model did not take, waits that were longer than planned,
conversations cut short."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from llama_load.analysis.figures.check import Check, information, limited
from llama_load.analysis.figures.conversation_figures import (
    conversation_figures,
    peak_begun,
)
from llama_load.analysis.figures.evidence import Evidence
from llama_load.ground.units import quantity

# A wait is late if it was longer than planned by this much, in ms and as a share.
LATE_MS = 100.0
LATE_RATIO = 0.1


def missed_turns(evidence: Evidence) -> Iterator[Check]:
    """Turns in which the model called no tool where the record has calls, or the reverse, over all
    turns with tools whose answer is recorded. With a recorded history they do not change what is
    sent. Counts: no error."""
    ok = evidence.records.ok()
    calls = ok.numbers("tool_calls")
    recorded = ok.numbers("recorded_calls")
    known = ~np.isnan(calls) & ~np.isnan(recorded)
    if not known.any():
        return
    missed = int((known & ((calls < recorded) | ((recorded == 0) & (calls > 0)))).sum())
    text = f"{missed} of {quantity(int(known.sum()), 'turn')} with tools were not taken as recorded: other tool calls, or none"
    if evidence.recorded_history:
        yield information(
            "missed_turn_ratio",
            missed / int(known.sum()),
            f"{text}; the history is the recorded one",
        )
    else:
        yield limited("missed_turn_ratio", missed / int(known.sum()), text)


def late_turns(evidence: Evidence) -> Iterator[Check]:
    """Later turns that began later than planned, beside waits for sub-agents. Evidence: end of the
    answer before, start of the turn. Counts: no error."""
    records = evidence.records
    delay_ms = records.numbers("delay_ms")
    waited_ms = records.numbers("waited_ms")
    conversations = records.conversations()
    parents = {
        conversation
        for conversation, agent in zip(
            conversations, records.strings("agent"), strict=True
        )
        if agent is not None
    }
    alone = np.array([each not in parents for each in conversations], dtype=np.bool_)
    known = ~np.isnan(delay_ms) & ~np.isnan(waited_ms) & alone
    if known.any():
        late = int((known & (waited_ms > delay_ms * (1 + LATE_RATIO) + LATE_MS)).sum())
        text = f"{late} of {quantity(int(known.sum()), 'wait')} between turns were longer than planned"
        yield limited("late_turn_ratio", late / int(known.sum()), text)


def missing_conversations(evidence: Evidence) -> Iterator[Check]:
    """Conversations that were never alive beside the others, of those that --conversations asks
    for. Counts: no error."""
    if evidence.conversations is not None:
        peak = peak_begun(evidence.records)
        text = f"{peak} of {quantity(evidence.conversations, 'conversation')} were alive at once"
        yield limited(
            "missing_conversations", max(0, evidence.conversations - peak), text
        )


def conversations_cut(evidence: Evidence) -> Iterator[Check]:
    """Conversations that do not fit a slot as a whole, and those that had not ended when the run
    did."""
    if evidence.shortened_conversations:
        text = f"{quantity(evidence.shortened_conversations, 'conversation')} were sent without the turns that do not fit a slot"
        yield limited("shortened_conversations", evidence.shortened_conversations, text)
    figures = conversation_figures(evidence.records)
    if figures is not None and figures.ended < figures.count:
        open_ = figures.count - figures.ended
        text = f"{open_} of {figures.count} conversations had not ended when the run did; their durations count as cut off"
        yield information("unended_conversations", open_, text)
