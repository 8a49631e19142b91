"""Figures by conversation, and the checks of turns that were missed, late or left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from llama_load.analysis.checks import conversations
from llama_load.analysis.figures.conversation_figures import (
    conversation_figures,
    peak_begun,
)
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.summary import summarize
from llama_load.run_folder.observed.record import RequestRecord, to_batch
from llama_load.run_folder.observed.records import Records
from tests.make_records import MS, failed, record


def records(*given: RequestRecord) -> Records:
    return Records(pa.Table.from_batches([to_batch(given)]))


def turn(
    index: int, start: int, number: int, at_ms: float, *, turns: int = 2, **changed: Any
) -> RequestRecord:
    return record(
        index,
        start_ms=at_ms,
        conversation_start=start,
        turn=number,
        turns=turns,
        **changed,
    )


def test_a_conversation_lasts_from_its_first_start_to_its_last_end() -> None:
    """Two turns of 141 ms at 0 and 5000 ms; a second conversation has only its first turn, from 100
    ms on, and is cut at 6 s."""
    rows = [turn(0, 0, 1, 0), turn(1, 0, 2, 5000), turn(2, 2, 1, 100)]
    figures = conversation_figures(records(*rows), cut_ns=6000 * MS)
    assert figures is not None
    assert (
        figures.count,
        figures.ended,
        figures.failed,
        figures.peak,
        figures.turns,
    ) == (2, 1, 0, 2, 2.0)
    assert figures.duration_s["p50"] == pytest.approx(5.141)
    assert figures.without_waits_s["p50"] == pytest.approx(0.282)
    # Alive for 5.141 s and 5.9 s of 6 s, with requests in flight for 3 x 141 ms.
    assert figures.mean_alive == pytest.approx(11.041 / 6)
    assert figures.mean_in_flight == pytest.approx(0.423 / 6)
    assert figures.waiting_ratio == pytest.approx(1 - 0.423 / 11.041)


def test_overlapping_requests_of_sub_agents_count_once_as_time() -> None:
    """0 to 141 ms, 100 to 241 ms within it begun, 150 to 191 ms in both."""
    agents = [
        turn(1, 0, 1, 100, agent="a", turns=3),
        turn(2, 0, 1, 150, agent="b", turns=3, first_ms=1, gaps_ms=(20, 19)),
    ]
    figures = conversation_figures(records(turn(0, 0, 1, 0, turns=3), *agents))
    assert figures is not None
    assert figures.without_waits_s["p50"] == pytest.approx(0.241)
    assert (figures.peak, figures.waiting_ratio) == (1, pytest.approx(0.0))


def test_a_conversation_with_a_failed_turn_goes_on_and_is_named() -> None:
    rows = [
        replace(failed(0), conversation_start=0, turn=1, turns=2),
        turn(1, 0, 2, 500),
        turn(2, 2, 1, 0),
        turn(3, 2, 2, 500),
    ]
    figures = conversation_figures(records(*rows))
    assert figures is not None
    assert (figures.count, figures.ended, figures.failed) == (2, 2, 1)


def test_single_requests_count_as_alive_where_users_are_counted() -> None:
    assert (
        peak_begun(
            records(turn(0, 0, 1, 0), turn(1, 0, 2, 5000), record(2, start_ms=2000))
        )
        == 2
    )


def test_single_questions_are_no_conversations() -> None:
    assert conversation_figures(records(turn(0, 0, 1, 0, turns=1), record(1))) is None


def test_fewer_conversations_alive_than_configured_are_another_load() -> None:
    rows = [
        turn(0, 0, 1, 0),
        turn(1, 0, 2, 5000),
        turn(2, 2, 1, 100),
        turn(3, 2, 2, 900),
    ]
    (check,) = conversations.missing_conversations(evidence(*rows, conversations=3))
    assert (check.value, check.ok) == (1, False)
    (check,) = conversations.missing_conversations(evidence(*rows, conversations=2))
    assert check.ok


def evidence(*given: RequestRecord, **changed: object) -> Evidence:
    made = records(*given)
    return Evidence(records=made, figures=summarize(made), **changed)


@pytest.mark.parametrize(
    ("calls", "recorded", "missed"),
    [(0, 1, 1), (1, 0, 1), (1, 1, 0), (2, 1, 0), (0, 0, 0)],
)
def test_a_turn_is_taken_if_tools_are_called_where_they_were(
    calls: int, recorded: int, missed: int
) -> None:
    (check,) = conversations.missed_turns(
        evidence(turn(0, 0, 1, 0, tool_calls=calls, recorded_calls=recorded))
    )
    assert (check.value, check.ok) == (missed, not missed)


def test_missed_turns_of_a_recorded_history_change_nothing() -> None:
    (check,) = conversations.missed_turns(
        evidence(
            turn(0, 0, 1, 0, tool_calls=0, recorded_calls=1), recorded_history=True
        )
    )
    assert check.ok


def test_a_wait_longer_than_planned_is_late_but_for_sub_agents() -> None:
    late = [turn(0, 0, 1, 0), turn(1, 0, 2, 5000, delay_ms=100.0, waited_ms=900.0)]
    (check,) = conversations.late_turns(evidence(*late))
    assert (check.value, check.ok) == (1.0, False)
    agent = turn(2, 0, 1, 100, agent="explorer", delay_ms=None, waited_ms=1.0)
    assert not list(conversations.late_turns(evidence(*late, agent)))


def test_shortened_and_open_conversations_are_named() -> None:
    checks = list(
        conversations.conversations_cut(
            evidence(turn(0, 0, 1, 0), shortened_conversations=3)
        )
    )
    assert [(check.name, check.ok) for check in checks] == [
        ("shortened_conversations", False),
        ("unended_conversations", True),
    ]
