"""The books of a swarm where time matters: schedules that begin late, limits that change, what is
dropped."""

from __future__ import annotations

from llama_load.loadgen.dispatch.phases import Phase
from tests.loadgen.dispatch.test_dispatcher import MS, Workers

S = 1000 * MS


def test_the_schedule_of_a_second_phase_begins_when_the_phase_does() -> None:
    """The first phase takes two requests and 3 s; the second one's are due 100 and 900 ms after its
    own beginning."""
    swarm = Workers(
        phases=[Phase(total=2), Phase(total=2, scheduled_ns=[100 * MS, 900 * MS])]
    )
    swarm.dispatcher.want("a", "chat", 4)
    swarm.now_ns = 3 * S
    for index in (0, 1):
        swarm.dispatcher.record_stored("a", (False, index))
    assert [(lease.index, lease.scheduled_ns) for lease in swarm.hands["a"][2:]] == [
        (2, 3 * S + 100 * MS)
    ]
    swarm.at(3399)
    assert len(swarm.hands["a"]) == 3
    swarm.at(3400)
    assert [(lease.index, lease.scheduled_ns) for lease in swarm.hands["a"][3:]] == [
        (3, 3 * S + 900 * MS)
    ]


def test_a_limit_and_a_stage_change_with_the_time_since_the_phase_began() -> None:
    """One at a time in the first second, three after it; the requests of each are of another stage.
    The clock starts at 50 s."""
    rising = Phase(
        total=9, limit_at=lambda s: 1 if s < 1 else 3, stage_of=lambda _, s: int(s >= 1)
    )
    swarm = Workers(phases=[Phase(total=1), rising])
    swarm.dispatcher.want("a", "chat", 9)
    swarm.now_ns = 50 * S
    swarm.dispatcher.record_stored("a", (False, 0))
    assert [lease.stage for lease in swarm.hands["a"][1:]] == [0]
    swarm.at(50_999)
    assert len(swarm.hands["a"]) == 2
    swarm.at(51_000)
    assert [lease.stage for lease in swarm.hands["a"][1:]] == [0, 1, 1]


def test_what_came_while_the_last_place_was_taken_is_dropped() -> None:
    """One at a time, due at 0 and 10 ms; nobody looks at the dispatcher until the first has ended
    at 20 ms. The third is due then."""
    for how in ("request_ended", "record_stored"):
        scheduled_ns = [0, 10 * MS, 21 * MS]
        phase = Phase(
            total=3,
            scheduled_ns=scheduled_ns,
            limit_at=lambda _: 1,
            drops=True,
            workload_of=lambda _: "chat",
        )
        swarm = Workers(phases=[phase])
        swarm.dispatcher.ledger.join("a")
        swarm.at(0)
        swarm.now_ns = 20 * MS
        getattr(swarm.dispatcher, how)("a", (False, 0))
        assert [lease.index for lease in swarm.hands["a"]] == [0, 2]
        assert phase.dropped.total() == 1


def test_nothing_is_dropped_while_there_is_room_however_late_it_is() -> None:
    """Four may be in flight, two are; the master stands still past the instants of two more, and
    then one of the first ends."""
    scheduled_ns = [0, 10 * MS, 900 * MS, 1000 * MS]
    phase = Phase(
        total=4,
        scheduled_ns=scheduled_ns,
        limit_at=lambda _: 4,
        drops=True,
        workload_of=lambda _: "chat",
    )
    swarm = Workers(phases=[phase])
    swarm.dispatcher.ledger.join("a")
    swarm.at(0)
    assert [lease.index for lease in swarm.hands["a"]] == [0, 1]
    swarm.now_ns = 950 * MS
    swarm.dispatcher.record_stored("a", (False, 0))
    assert [lease.index for lease in swarm.hands["a"]] == [0, 1, 2, 3]
    assert not phase.dropped


def test_a_request_is_under_way_from_its_scheduled_instant_on() -> None:
    """Leased half a second ahead."""
    phase = Phase(
        total=2,
        scheduled_ns=[1000 * MS, 9 * S],
        workload_of=lambda _: "chat",
        limit_at=lambda _: 6,
    )
    swarm = Workers(phases=[phase])
    swarm.dispatcher.ledger.join("a")
    swarm.at(500)
    assert (swarm.dispatcher.ledger.in_flight, swarm.dispatcher.ledger.under_way) == (
        1,
        0,
    )
    swarm.at(1050)
    assert (swarm.dispatcher.ledger.in_flight, swarm.dispatcher.ledger.under_way) == (
        1,
        1,
    )


def test_requests_passed_on_are_counted_apart_from_possibly_sent_ones() -> None:
    swarm = Workers(5)
    swarm.dispatcher.want("a", "chat", 5)
    swarm.dispatcher.lose("a", [(False, 1), (False, 3)])
    (gone,) = swarm.dispatcher.ledger.lost
    assert (gone.possibly_sent, gone.handed_on) == ([1, 3], 3)


def test_nothing_is_handed_out_after_the_end() -> None:
    swarm = Workers(5)
    swarm.dispatcher.want("a", "chat", 2)
    swarm.dispatcher.close()
    swarm.dispatcher.want("a", "chat", 1)
    swarm.dispatcher.give_back("a", [(False, 0)])
    swarm.dispatcher.want("b", "chat", 1)
    assert len(swarm.hands["a"]) == 2
    assert "b" not in swarm.hands
    assert swarm.dispatcher.ledger.wants.count == 0


def test_conversations_arrive_at_their_instants() -> None:
    """Two conversations of three and two requests arrive at 0 and 400 ms. The first worker is lost
    after one answer: the rest goes to the other one at once, and as no arrival."""
    scheduled_ns = [0, 0, 0, 400 * MS, 400 * MS]
    phase = Phase(
        total=5,
        scheduled_ns=scheduled_ns,
        workload_of=lambda _: "chat",
        by_conversation=True,
    )
    swarm = Workers(turns=(3, 2), phases=[phase])
    swarm.dispatcher.ledger.join("a")
    swarm.at(0)
    assert [
        (lease.index, lease.scheduled_ns, lease.follows) for lease in swarm.hands["a"]
    ] == [
        (0, 0, False),
        (1, None, True),
        (2, None, True),
        (3, 400 * MS, False),
        (4, None, True),
    ]
    swarm.dispatcher.record_stored("a", (False, 0))
    swarm.dispatcher.ledger.join("b")
    swarm.now_ns = 300 * MS
    swarm.dispatcher.lose("a", [], heard_ns=-1000 * MS)
    assert [
        (lease.index, lease.scheduled_ns, lease.follows) for lease in swarm.hands["b"]
    ] == [(1, None, False), (2, None, True), (3, 400 * MS, False), (4, None, True)]
