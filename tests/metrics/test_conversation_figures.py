"""Figures by conversation, and the checks of turns that were missed, late or left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from llama_load.metrics.checks import conversations
from llama_load.metrics.conversation_figures import conversation_figures, survival_percentile
from llama_load.metrics.evidence import Evidence
from llama_load.metrics.summary import summarize
from llama_load.observed.record import RequestRecord, to_batch
from llama_load.observed.records import Records
from tests.make_records import record


def records(*given: RequestRecord) -> Records:
    return Records(pa.Table.from_batches([to_batch(given)]))


def turn(index: int, start: int, number: int, at_ms: float, *, turns: int = 2, **changed: object) -> RequestRecord:
    made = record(index, start_ms=at_ms)
    return replace(made, conversation_start=start, turn=number, turns=turns, **changed)


def test_the_median_counts_conversations_that_are_cut_off() -> None:
    lengths = np.array([1.0, 2.0, 3.0, 4.0])
    assert survival_percentile(lengths, np.array([True, True, False, True]), 50) == 2.0
    assert survival_percentile(lengths, np.array([True, True, False, True]), 100) == 4.0
    assert survival_percentile(lengths, np.array([True, False, False, False]), 50) is None
    # Without any cut off it is the usual percentile.
    assert survival_percentile(np.arange(1.0, 101.0), np.ones(100, dtype=np.bool_), 90) == 90.0


def test_a_conversation_lasts_from_its_first_start_to_its_last_end_and_its_waits_are_told_apart() -> None:
    """Two turns at 0 and 5000 ms, with a planned wait of 4000 ms; a second conversation has only its first turn."""
    rows = [turn(0, 0, 1, 0), turn(1, 0, 2, 5000, delay_ms=4000.0, waited_ms=4000.0), turn(2, 2, 1, 100)]
    figures = conversation_figures(records(*rows))
    assert figures is not None
    assert (figures.count, figures.ended, figures.peak, figures.turns) == (2, 1, 2, 1.5)
    last = (rows[1].ended_mono_ns - rows[0].started_mono_ns) / 1e9
    assert figures.duration_s["p99"] == pytest.approx(last)
    assert figures.without_waits_s["p99"] == pytest.approx(last - 4)


def test_single_questions_are_no_conversations() -> None:
    assert conversation_figures(records(turn(0, 0, 1, 0, turns=1), record(1))) is None


def evidence(*given: RequestRecord, **changed: object) -> Evidence:
    made = records(*given)
    return Evidence(records=made, figures=summarize(made), **changed)


@pytest.mark.parametrize(("calls", "recorded", "missed"), [(0, 1, 1), (1, 0, 1), (1, 1, 0), (2, 1, 0), (0, 0, 0)])
def test_a_turn_is_taken_if_tools_are_called_where_they_were(calls: int, recorded: int, missed: int) -> None:
    (check,) = conversations.missed_turns(evidence(turn(0, 0, 1, 0, tool_calls=calls, recorded_calls=recorded)))
    assert (check.value, check.ok) == (missed, not missed)


def test_missed_turns_of_a_recorded_history_change_nothing() -> None:
    (check,) = conversations.missed_turns(evidence(turn(0, 0, 1, 0, tool_calls=0, recorded_calls=1), recorded_history=True))
    assert check.ok


def test_a_wait_that_is_longer_than_planned_is_late_unless_it_is_for_sub_agents() -> None:
    late = [turn(0, 0, 1, 0), turn(1, 0, 2, 5000, delay_ms=100.0, waited_ms=900.0)]
    (check,) = conversations.late_turns(evidence(*late))
    assert (check.value, check.ok) == (1.0, False)
    agent = turn(2, 0, 1, 100, agent="explorer", delay_ms=None, waited_ms=1.0)
    assert not list(conversations.late_turns(evidence(*late, agent)))


def test_shortened_and_open_conversations_are_named() -> None:
    checks = list(conversations.conversations_cut(evidence(turn(0, 0, 1, 0), shortened_conversations=3)))
    assert [(check.name, check.ok) for check in checks] == [("shortened_conversations", False), ("unended_conversations", True)]
