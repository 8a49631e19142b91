"""What switching between models and adapters costs, session affinity, and the checks of both."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llama_load.analysis.checks import choices
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.summary import summarize
from llama_load.analysis.topics.affinity.affinity_figures import (
    MOST_REPLICAS,
    LaterTurns,
    ReplicaTurns,
    affinity_figures,
)
from llama_load.analysis.topics.switching.switch_figures import switch_figures
from llama_load.run_folder.observed.record import RequestRecord
from tests.make_records import record, table


def row(
    index: int,
    at_ms: float,
    adapter: str | None,
    ttft_ms: float = 100,
    **changed: object,
) -> RequestRecord:
    """It ends 141 ms after its start where the TTFT is 100 ms."""
    return replace(
        record(index, start_ms=at_ms, first_ms=ttft_ms, adapter=adapter, model="m"),
        **changed,
    )


def one_after_the_other(
    *adapters: str, ttft_ms: dict[tuple[str, str], float]
) -> list[RequestRecord]:
    """Requests 1 s apart, whose TTFT depends on the adapter before and their own."""
    pairs = zip((adapters[0], *adapters), adapters, strict=False)
    return [
        row(number, 1000 * number, own, ttft_ms[before, own])
        for number, (before, own) in enumerate(pairs)
    ]


def test_the_price_is_that_of_an_adapter_against_itself() -> None:
    """b is 500 ms slower than a by itself, and switching costs either 30 ms: against all others,
    the price would be wrong, because most switches are to b."""
    ttft = {("a", "a"): 100.0, ("b", "b"): 600.0, ("a", "b"): 630.0, ("b", "a"): 130.0}
    figures = switch_figures(
        table(*one_after_the_other(*"aabba" * 12, "b", ttft_ms=ttft))
    )
    assert figures is not None
    same, switched, beside = figures.classes
    assert (figures.what, same.requests + switched.requests, beside.requests) == (
        "adapter",
        60,
        0,
    )
    assert (switched.ttft_price_ms, switched.ttft_compared) == (
        pytest.approx(30.0),
        switched.requests,
    )
    assert (same.ttft_price_ms, beside.ttft_price_ms, beside.others_in_flight) == (
        None,
        None,
        None,
    )
    assert switched.tpot_price_ms == pytest.approx(0.0)


def test_the_first_request_has_none_before_it() -> None:
    rows = [
        row(0, 0, "a", warmup=True),
        row(0, 1000, "b"),
        row(1, 2000, "b"),
        row(2, 3000, "b", host="http://other"),
    ]
    figures = switch_figures(table(*rows))
    assert figures is not None
    assert [each.requests for each in figures.classes] == [1, 1, 0]


def test_requests_in_flight_at_the_same_time_are_beside() -> None:
    """0 to 141 ms and 140 to 281 ms overlap; the third starts when the second ends, and the fifth
    when the fourth ends. Those of another server, or of another replica behind the URL, do not
    count."""
    rows = [
        row(0, 0, "a"),
        row(1, 140, "b"),
        row(2, 281, "a"),
        row(3, 5000, "a"),
        row(4, 5141, "b"),
    ]
    # the first one of a server is in no class
    rows += [row(5, 281, "b", host="http://other"), row(6, 281, "b", replica="r")]
    figures = switch_figures(table(*rows))
    assert figures is not None
    assert [each.requests for each in figures.classes] == [1, 2, 1]
    assert [each.others_in_flight for each in figures.classes] == [0, 0, 1]


def test_first_and_later_turns_are_compared_apart() -> None:
    """First turns take 100 ms, later ones 900 ms, and a switch 40 ms. Most first turns follow
    another adapter."""
    rows = []
    for number, (own, turn_number) in enumerate(
        [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("b", 2), ("b", 1)] * 12
    ):
        switches = number % 6 in (0, 2)
        rows.append(
            row(
                number,
                2000 * number,
                own,
                (100 if turn_number == 1 else 900) + 40 * switches,
                turn=turn_number,
            )
        )
    figures = switch_figures(table(*rows))
    assert figures is not None
    assert figures.classes[1].ttft_price_ms == pytest.approx(40.0)


def test_the_price_compares_requests_with_as_many_others_in_flight() -> None:
    """Alone 100 ms; with another of the same adapter in flight 200 ms; with one of the other
    adapter 250 ms: it costs 50, not 150."""
    rows: list[RequestRecord] = []
    for number in range(10):
        at = 10_000 * number
        pair = ("a", "a", 200.0) if number < 5 else ("b", "a", 250.0)
        rows += [
            row(0, at, "a"),
            row(3, at + 2000, "a"),
            row(1, at + 5000, pair[0], 300.0),
            row(2, at + 5010, pair[1], pair[2]),
        ]
    figures = switch_figures(table(*rows))
    assert figures is not None
    assert figures.classes[2].ttft_price_ms == pytest.approx(50.0)


def test_without_a_choice_or_with_other_clients_there_is_no_price() -> None:
    assert switch_figures(table(row(0, 0, "a"), row(1, 1000, "a"))) is None
    both = table(row(0, 0, "a"), row(1, 1000, "b"))
    assert switch_figures(both, other_clients=True) is None
    figures = switch_figures(table(row(0, 0, None), row(1, 1000, None, model="n")))
    assert figures is not None
    assert figures.what == "model"
    assert figures.classes[1].ttft_price_ms is None  # too few


def turn(
    index: int, start: int, number: int, replica: str | None, **changed: object
) -> RequestRecord:
    return replace(
        record(index, start_ms=1000 * index),
        conversation_start=start,
        turn=number,
        replica=replica,
        **changed,
    )


def test_a_hit_is_a_later_turn_at_the_replica_of_the_turn_before() -> None:
    """Conversation 0 has x, x, y, y, conversation 10 has y, x: two hits of four later turns."""
    rows = [
        turn(n, 0, n + 1, name, ttft_ms=10.0 * (n + 1), cached_tokens=n)
        for n, name in enumerate("xxyy")
    ]
    rows += [
        turn(10, 10, 1, "y"),
        turn(11, 10, 2, "x", ttft_ms=50.0, cached_tokens=0),
        record(12),
    ]
    rows.append(turn(20, 0, 1, "z", workload="other"))  # another conversation 0
    figures = affinity_figures(
        table(*reversed(rows)), ["http://h"]
    )  # records come in any order
    assert figures is not None
    assert figures.replicas[:2] == [
        ReplicaTurns("x", 3, 2, 1),
        ReplicaTurns("y", 3, 2, 1),
    ]
    assert (figures.ratio, figures.by_header, figures.replica_count) == (0.5, True, 3)
    # the turns at 20 and 40 ms, with 1 and 3 of 10 tokens
    assert figures.hit == LaterTurns(2, 30.0, pytest.approx(4 / 20))
    assert figures.miss == LaterTurns(2, 40.0, pytest.approx(2 / 20))


def test_without_a_header_the_urls_are_the_replicas() -> None:
    rows = [
        turn(0, 0, 1, None),
        turn(1, 0, 2, None, host="http://i"),
        turn(2, 0, 3, None, host="http://i"),
    ]
    figures = affinity_figures(table(*rows), ["http://h", "http://i"])
    assert figures is not None
    assert (figures.ratio, figures.by_header) == (0.5, False)
    assert affinity_figures(table(*rows), ["http://h"]) is None
    assert (
        affinity_figures(table(record(0), record(1)), ["http://h", "http://i"]) is None
    )


def test_a_turn_whose_replica_is_unknown_is_neither_a_hit_nor_a_miss() -> None:
    """Nor is the one after it. The same name behind two URLs is two replicas."""
    rows = [
        turn(0, 0, 1, "x"),
        turn(1, 0, 2, None),
        turn(2, 0, 3, "x"),
        turn(3, 0, 4, "x", host="http://i"),
    ]
    figures = affinity_figures(table(*rows), ["http://h"])
    assert figures is not None
    assert (figures.ratio, figures.hit.turns, figures.miss.turns) == (0.0, 0, 1)
    assert [each.replica for each in figures.replicas] == [
        "x at http://h",
        "x at http://i",
    ]


def test_a_server_that_names_a_new_replica_every_time_fills_no_report() -> None:
    figures = affinity_figures(
        table(*(turn(n, 0, n + 1, f"r{n}") for n in range(200))), ["http://h"]
    )
    assert figures is not None
    assert (len(figures.replicas), figures.replica_count, figures.ratio) == (
        MOST_REPLICAS,
        200,
        0.0,
    )


def evidence(*rows: RequestRecord) -> Evidence:
    return Evidence(records=table(*rows), figures=summarize(table(*rows)))


@pytest.mark.parametrize(
    ("answered", "wrong"),
    [
        (("a", "b"), 0.0),
        (("a (fp)", "b (fp)"), 0.0),
        (("files/a.gguf", "files/b.gguf"), 0.0),  # other names, each its own
        (("a", "a"), 1.0),  # both by one model: neither figure can be trusted
        (("b", "a"), 1.0),  # the wrong way round
        ((None, None), None),
    ],
)
def test_every_request_must_get_its_own_model(
    answered: tuple[str | None, str | None], wrong: float | None
) -> None:
    rows = [
        record(n, model="ab"[n % 2], answered_model=answered[n % 2]) for n in range(10)
    ]
    (check,) = choices.mixed_up_models(evidence(*rows))
    assert (check.value, check.ok) == (wrong, not wrong)


def test_one_mixed_up_request_is_enough_and_one_model_is_not_looked_at() -> None:
    rows = [record(n, model="ab"[n % 2], answered_model="ab"[n % 2]) for n in range(10)]
    (check,) = choices.mixed_up_models(
        evidence(*rows, record(10, model="a", answered_model="b"))
    )
    assert not check.ok
    assert (
        list(
            choices.mixed_up_models(evidence(record(0, model="a", answered_model="c")))
        )
        == []
    )
    (check,) = choices.mixed_up_models(
        evidence(record(0, adapter="0"), record(1, adapter="none"))
    )
    assert check.value is None
    assert "do not name their LoRA adapter" in check.text


def test_later_turns_must_be_sent_with_their_session() -> None:
    def of(*states: str | None) -> Evidence:
        return evidence(
            *(turn(n, 0, n + 1, None, session=state) for n, state in enumerate(states))
        )

    (check,) = choices.sessions(of("new", "kept", "kept"))
    assert (check.value, check.ok) == (0.0, True)
    check, note = choices.sessions(of("none", "new", "other"))
    assert (check.value, check.ok) == (0.5, False)
    assert "began another session in 1 of 2 later turns" in note.text
    assert list(choices.sessions(of(None, None))) == []
    (check,) = choices.sessions(of("new"))
    assert check.value is None
