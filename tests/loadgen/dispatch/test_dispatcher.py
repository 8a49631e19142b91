"""The dispatcher, whatever workers do: every index ends once, or is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llama_load.loadgen.dispatch.dispatcher import Dispatcher
from llama_load.loadgen.dispatch.leases import Lease
from llama_load.loadgen.dispatch.phases import Phase
from llama_load.loadgen.workloads.prompt_plan import Plan
from llama_load.servers.balance import (
    EVERY_TURN,
    LEAST_IN_FLIGHT,
    ROUND_ROBIN,
    Balancer,
)
from llama_load.servers.prompt import Prompt
from tests.make_records import facts


class Workers:
    """Workers made of lists."""

    def __init__(
        self,
        total: int | None = None,
        warmup: int = 0,
        turns: Sequence[int] = (1,),
        phases: Sequence[Phase] = (),
        balancer: Balancer | None = None,
    ) -> None:
        self.hands: dict[str, list[Lease]] = {}
        self.over = False
        self.now_ns = 0
        self.phases = iter(
            [Phase(total=warmup, warmup=True), *(phases or [Phase(total=total)])]
        )
        asked = [
            Prompt(f"p{number}.{turn}", more=count - turn - 1)
            for number, count in enumerate(turns)
            for turn in range(count)
        ]
        plan = Plan(asked, [Prompt(f"w{n}") for n in range(3)], facts())
        self.dispatcher = Dispatcher(
            {"chat": plan}, self, balancer=balancer, now_ns=lambda: self.now_ns
        )
        self._next_phase()

    def deliver(self, worker: str, leases: list[Lease]) -> None:
        self.hands.setdefault(worker, []).extend(leases)

    def at(self, ms: int) -> None:
        """So late it is."""
        self.now_ns = ms * 1_000_000
        self.dispatcher.serve()

    def _next_phase(self) -> None:
        phase = next(self.phases, None)
        self.over = phase is None
        if phase is not None:
            self.dispatcher.begin(phase, self._next_phase)


def test_leases_are_handed_out_in_turn_with_their_prompts() -> None:
    swarm = Workers(3, turns=(1, 1, 1))
    swarm.dispatcher.want("a", "chat", 5)
    assert [(lease.index, lease.prompt.text) for lease in swarm.hands["a"]] == [
        (0, "p0.0"),
        (1, "p1.0"),
        (2, "p2.0"),
    ]
    swarm.dispatcher.want("b", "own", 1)
    assert "b" not in swarm.hands
    swarm.dispatcher.give_back("a", [(False, 1)])
    assert swarm.hands["a"][3].index == 1  # it had asked for five, before b
    swarm.dispatcher.give_back("a", [(False, 1)])
    swarm.dispatcher.give_back("a", [(False, 2)])
    assert (
        Lease(1, False, "own", None) in swarm.hands["b"]
        or Lease(2, False, "own", None) in swarm.hands["b"]
    )


def test_nothing_is_measured_before_the_warm_up_is_over() -> None:
    swarm = Workers(10, warmup=2)
    swarm.dispatcher.want("a", "chat", 1)
    swarm.dispatcher.want("b", "chat", 4)
    swarm.dispatcher.want("a", "chat", 3)
    assert all(lease.warmup for lease in swarm.hands["a"] + swarm.hands["b"])
    swarm.dispatcher.record_stored("a", (True, 0))
    assert not swarm.dispatcher.assigner.measuring
    swarm.dispatcher.record_stored("b", (True, 1))
    assert swarm.dispatcher.assigner.measuring
    assert sorted(
        lease.index
        for hand in swarm.hands.values()
        for lease in hand
        if not lease.warmup
    ) == list(range(6))


def test_what_a_lost_worker_had_begun_is_named_and_the_rest_goes_to_others() -> None:
    swarm = Workers(4)
    swarm.dispatcher.want("a", "chat", 3)
    swarm.dispatcher.want("b", "chat", 4)
    swarm.dispatcher.lose("a", [(False, 0)])
    assert swarm.dispatcher.ledger.lost[0].possibly_sent == [0]
    assert sorted(lease.index for lease in swarm.hands["b"]) == [1, 2, 3]
    for index in (1, 2, 3):
        swarm.dispatcher.record_stored("b", (False, index))
    assert swarm.over
    assert swarm.dispatcher.ledger.accepts_record(
        "a", (False, 0)
    )  # it comes back after all
    swarm.dispatcher.record_stored("a", (False, 0))
    assert swarm.dispatcher.ledger.lost[0].possibly_sent == []
    assert not swarm.dispatcher.ledger.accepts_record("a", (False, 0))


def test_what_a_lost_worker_could_have_begun_silently_is_named_too() -> None:
    """What it had long before it was last heard of, and not what was on its way when it died."""
    swarm = Workers(4)
    swarm.dispatcher.want("a", "chat", 2)
    swarm.dispatcher.want("b", "chat", 4)
    swarm.dispatcher.lose("a", [], heard_ns=0)
    assert swarm.dispatcher.ledger.lost[0].possibly_sent == [0, 1]
    # seen again, with nothing more that is lost
    swarm.dispatcher.lose("a", [], heard_ns=0)
    assert len(swarm.dispatcher.ledger.lost) == 1
    swarm = Workers(4)
    swarm.dispatcher.want("a", "chat", 2)
    swarm.dispatcher.want("b", "chat", 4)
    swarm.dispatcher.lose("a", [], heard_ns=-1000 * MS)
    assert (
        swarm.dispatcher.ledger.lost[0].possibly_sent,
        swarm.dispatcher.ledger.lost[0].handed_on,
    ) == ([], 2)


def test_what_a_worker_lost_in_the_warm_up_may_have_sent_is_named() -> None:
    """As what it is: not among the measured requests, of which nothing is missing. A record that
    comes after all is no longer."""
    swarm = Workers(2, warmup=3)
    swarm.dispatcher.want("a", "chat", 3)
    swarm.dispatcher.lose("a", [(True, 2)], heard_ns=-1000 * MS)
    (gone,) = swarm.dispatcher.ledger.lost
    assert (gone.possibly_sent, gone.possibly_sent_warmup, gone.handed_on) == (
        [],
        [2],
        2,
    )
    assert swarm.dispatcher.ledger.accepts_record("a", (True, 2))
    assert not swarm.dispatcher.ledger.accepts_record("a", (False, 2))
    swarm.dispatcher.record_stored("a", (True, 2))
    assert gone.possibly_sent_warmup == []


def test_turns_that_a_lost_worker_could_have_begun_are_named() -> None:
    """Two conversations of four turns. Of the first the answer to turn 0 is on record: turn 1 may
    have been sent, and turn 2 if its answer has come already. Of the second turn 0 is being sent:
    turn 1 may have been, too. The others were not."""
    swarm = Workers(8, turns=(4, 4))
    swarm.dispatcher.want("a", "chat", 2)
    swarm.dispatcher.record_stored("a", (False, 0))
    swarm.dispatcher.lose("a", [(False, 4)], heard_ns=0)
    (gone,) = swarm.dispatcher.ledger.lost
    assert (gone.possibly_sent, gone.handed_on) == ([1, 2, 4, 5], 3)


def test_a_phase_does_not_wait_for_records_that_its_own_users_hold_open() -> None:
    """A task holds the answers of two requests open, and waits for a third, which no phase has; the
    records come when it is told to stop."""
    swarm = Workers(3, warmup=0)
    swarm.dispatcher.want("a", "chat", 3)
    held_open = [(False, 0), (False, 1)]
    swarm.dispatcher.request_ended("a", held_open[0])  # the word of the other is lost
    swarm.dispatcher.want("a", "chat", 1)
    swarm.at(2_000)
    assert not swarm.over, "the third request is under way"

    swarm.dispatcher.record_stored("a", (False, 2))
    swarm.at(2_900)
    assert not swarm.over, "the records may come yet"
    swarm.at(3_100)
    assert not swarm.over, "without a word of the worker they may be cancelled ones"
    swarm.dispatcher.reconcile("a", 1, held_open, {"chat": 1}, held_open)
    swarm.at(4_100)
    assert swarm.over

    pool = swarm.dispatcher.assigner.phase.pool
    swarm.dispatcher.record_stored("a", held_open[0])
    swarm.dispatcher.lose("a", held_open, may_return=False)
    assert pool.ended == 3, "each is counted once"
    assert [gone.possibly_sent for gone in swarm.dispatcher.ledger.lost] == [[1]]


def test_what_a_worker_holds_that_may_return_is_sent_by_nobody_else() -> None:
    """It may be only silent, and go on where it was: a prompt would be sent twice, and one of the
    records be of no use."""
    swarm = Workers(6, turns=(4, 1, 1))
    swarm.dispatcher.want("a", "chat", 2)
    swarm.dispatcher.lose("a", [(False, 0)], heard_ns=-1000 * MS, may_return=True)
    swarm.dispatcher.want("b", "chat", 9)
    assert [lease.index for lease in swarm.hands["b"]] == [5]
    (gone,) = swarm.dispatcher.ledger.lost
    assert (gone.possibly_sent, gone.handed_on) == ([0, 1, 2, 3, 4], 0)
    for index in range(5):
        assert swarm.dispatcher.ledger.accepts_record("a", (False, index))
        swarm.dispatcher.record_stored("a", (False, index))
    assert gone.possibly_sent == []


def test_departures_are_noted_of_those_who_took_part() -> None:
    """With the time in which it happened: a dead worker is noticed late, one that says goodbye at
    once."""
    swarm = Workers(4)
    swarm.dispatcher.want("a", "chat", 1)
    swarm.dispatcher.want("b", "chat", 1)
    swarm.dispatcher.lose("a", [], heard_ns=-5)
    swarm.dispatcher.leave("b")
    swarm.dispatcher.leave("never did anything")
    (heard_ns, noticed_ns), (left_ns, seen_ns) = swarm.dispatcher.ledger.departures
    assert heard_ns == -5 < noticed_ns
    assert left_ns == seen_ns


def test_a_delivery_that_is_still_on_its_way_is_not_taken_for_lost() -> None:
    """The worker's report answers a question asked before the second delivery: only what the first
    brought can be missing."""
    swarm = Workers(10)
    swarm.dispatcher.want("a", "chat", 2)
    swarm.dispatcher.want("a", "chat", 1)
    swarm.dispatcher.reconcile("a", 1, [(False, 0)], {"chat": 2})
    # of two that it wants, one was coming
    assert [lease.index for lease in swarm.hands["a"]] == [0, 1, 2, 1]
    swarm.dispatcher.reconcile(
        "a", 3, [(False, 0), (False, 1), (False, 2)], {"chat": 0}
    )
    assert len(list(swarm.dispatcher.ledger.workers.leases)) == 3


def test_who_has_left_gets_no_more() -> None:
    swarm = Workers(4)
    swarm.dispatcher.want("a", "chat", 2)
    swarm.dispatcher.record_stored("a", (False, 0))
    swarm.dispatcher.leave("a")
    swarm.dispatcher.want("a", "chat", 2)
    assert [lease.index for lease in swarm.hands["a"]] == [0, 1]
    swarm.dispatcher.want("b", "chat", 4)
    assert [lease.index for lease in swarm.hands["b"]] == [1, 2, 3]
    assert not swarm.dispatcher.ledger.lost


def test_the_turns_of_a_conversation_come_together() -> None:
    """Three turns, then one, then two; the plan starts again after them, and the last conversation
    is cut at the total."""
    swarm = Workers(8, turns=(3, 1, 2))
    swarm.dispatcher.want("a", "chat", 4)
    assert [(lease.prompt.text, lease.follows) for lease in swarm.hands["a"]] == [
        ("p0.0", False),
        ("p0.1", True),
        ("p0.2", True),
        ("p1.0", False),
        ("p2.0", False),
        ("p2.1", True),
        ("p0.0", False),
        ("p0.1", True),
    ]
    swarm.dispatcher.give_back("a", [(False, 1), (False, 2)])
    swarm.dispatcher.want("b", "chat", 1)
    assert [(lease.index, lease.follows) for lease in swarm.hands["b"]] == [
        (1, False),
        (2, True),
    ]


def test_several_workloads_share_the_count_but_not_the_places() -> None:
    """Four requests in all; each workload sends its own prompts from its first on."""
    swarm = Workers(4, turns=(1, 1, 1))
    for _ in range(2):
        swarm.dispatcher.want("a", "chat", 1)
        swarm.dispatcher.want("a", "own", 1)
    assert [
        (lease.index, lease.plan_index, lease.workload) for lease in swarm.hands["a"]
    ] == [(0, 0, "chat"), (1, 0, "own"), (2, 1, "chat"), (3, 1, "own")]


steps = st.lists(
    st.tuples(
        st.sampled_from(["want", "end", "back", "lose", "drop", "leave"]),
        st.integers(0, 3),
        st.integers(0, 5),
    ),
    max_size=120,
)


@given(
    st.integers(1, 30),
    st.integers(0, 3),
    st.lists(st.integers(1, 4), min_size=1, max_size=6),
    steps,
)
def test_every_request_ends_once_or_is_named(
    total: int, warmup: int, turns: list[int], steps: list[tuple[str, int, int]]
) -> None:
    """Workers want, end, give back and die in any order; then one good worker does what is left."""
    swarm = Workers(total, warmup, turns)
    dispatcher, ended = swarm.dispatcher, []

    def end(worker: str, lease: Lease) -> None:
        if dispatcher.ledger.accepts_record(worker, lease.key):
            dispatcher.record_stored(worker, lease.key)
            ended.append(lease.key)

    for what, number, amount in steps:
        worker = f"w{number}"
        hand = swarm.hands.setdefault(worker, [])
        if what == "want":
            dispatcher.want(worker, "chat", amount)
        elif what == "end" and hand:
            end(worker, hand.pop(amount % len(hand)))
        elif what == "back" and hand:
            dispatcher.give_back(worker, [hand.pop(amount % len(hand)).key])
        # a lease was lost on its way, which the next report of the worker shows
        elif what == "drop" and hand:
            hand.pop(amount % len(hand))
            dispatcher.reconcile(
                worker,
                dispatcher.ledger.workers[worker].deliveries,
                [lease.key for lease in hand],
                {"chat": amount % 2},
            )
        elif what == "leave" and not hand:
            dispatcher.leave(worker)
        elif what == "lose":
            dispatcher.lose(worker, [lease.key for lease in hand[:amount]])
            hand.clear()
    for worker in list(swarm.hands):
        dispatcher.lose(worker, [])
        swarm.hands[worker].clear()
    while not swarm.over:
        dispatcher.want("good", "chat", 3)
        assert swarm.hands["good"]
        for lease in list(swarm.hands["good"]):
            swarm.hands["good"].remove(lease)
            end("good", lease)
    measured = [index for is_warmup, index in ended if not is_warmup]
    named = [index for gone in dispatcher.ledger.lost for index in gone.possibly_sent]
    assert sorted(measured + named) == list(range(total))


MS = 1_000_000


def test_requests_of_a_schedule_are_leased_a_moment_before_they_are_due() -> None:
    """Due after 100, 700 and 2000 ms: the first at once, the second when it is 500 ms away, each
    with its instant."""
    swarm = Workers(
        phases=[Phase(total=3, scheduled_ns=[100 * MS, 700 * MS, 2000 * MS])]
    )
    swarm.dispatcher.want("a", "chat", 3)
    assert [lease.scheduled_ns for lease in swarm.hands["a"]] == [100 * MS]
    swarm.at(199)
    assert len(swarm.hands["a"]) == 1
    swarm.at(200)
    assert [lease.scheduled_ns for lease in swarm.hands["a"]] == [100 * MS, 700 * MS]
    swarm.at(1900)
    assert [lease.allowed_ns for lease in swarm.hands["a"]] == [None] * 3


def test_requests_that_waited_for_the_limit_carry_when_they_were_allowed() -> None:
    """One at a time; the second is due at 20 ms and allowed at 80 ms, when the first is over; the
    third is due after that."""
    swarm = Workers(
        phases=[
            Phase(
                total=3, scheduled_ns=[10 * MS, 20 * MS, 90 * MS], limit_at=lambda _: 1
            )
        ]
    )
    swarm.dispatcher.want("a", "chat", 3)
    swarm.at(80)
    swarm.dispatcher.request_ended("a", (False, 0))
    assert [(lease.scheduled_ns, lease.allowed_ns) for lease in swarm.hands["a"]] == [
        (10 * MS, None),
        (20 * MS, 80 * MS),
    ]
    swarm.at(85)
    swarm.dispatcher.record_stored("a", (False, 1))
    assert [
        (lease.scheduled_ns, lease.allowed_ns) for lease in swarm.hands["a"][2:]
    ] == [(90 * MS, None)]


def test_what_is_due_at_the_limit_is_dropped_and_the_next_one_is_not() -> None:
    """Due at 10, 20, 30 and 60 ms, one at a time, the first over at 50 ms: the second and third are
    never sent."""
    phase = Phase(
        total=4,
        scheduled_ns=[10 * MS, 20 * MS, 30 * MS, 60 * MS],
        limit_at=lambda _: 1,
        drops=True,
        workload_of=lambda _: "chat",
        stage_of=lambda number, _: number,
    )
    swarm = Workers(phases=[phase])
    swarm.dispatcher.ledger.join("a")
    swarm.at(0)
    swarm.at(50)
    swarm.dispatcher.request_ended("a", (False, 0))
    assert [lease.index for lease in swarm.hands["a"]] == [0, 3]
    assert phase.dropped == {1: 1, 2: 1}
    swarm.dispatcher.record_stored("a", (False, 0))
    swarm.dispatcher.record_stored("a", (False, 3))
    assert swarm.over


def test_arrivals_go_to_the_worker_with_the_fewest_and_to_each_in_turn() -> None:
    """Nobody asks. Two workers get one each in turn; b's first two are over, so it has two less and
    the next two are its; what joins late takes part, what is lost does not."""
    swarm = Workers(
        phases=[
            Phase(
                total=20,
                scheduled_ns=[n * 100 * MS for n in range(20)],
                workload_of=lambda _: "chat",
            )
        ]
    )
    swarm.dispatcher.ledger.expect("a")
    swarm.dispatcher.ledger.expect("b")
    swarm.dispatcher.ledger.join("a")
    assert not swarm.dispatcher.ledger.workers.all_there
    swarm.dispatcher.ledger.join("b")
    assert swarm.dispatcher.ledger.workers.all_there
    swarm.at(0)
    assert [lease.index for lease in swarm.hands["a"]] == [0, 2, 4]
    assert [lease.index for lease in swarm.hands["b"]] == [1, 3, 5]
    assert all(lease.unasked for lease in swarm.hands["a"])
    for index in (1, 3):
        swarm.dispatcher.record_stored("b", (False, index))
    swarm.at(200)
    assert [lease.index for lease in swarm.hands["b"]][3:] == [6, 7]
    swarm.dispatcher.ledger.join("c")
    swarm.dispatcher.lose("a", [(False, 0)])
    assert swarm.dispatcher.ledger.workers.all_there
    swarm.at(400)
    assert sorted(lease.index for lease in swarm.hands["b"][5:] + swarm.hands["c"]) == [
        2,
        4,
        8,
        9,
    ]


def test_a_level_of_users_is_never_exceeded_by_conversations() -> None:
    """Two at a time; a conversation of three turns holds its place until the last one is over."""
    swarm = Workers(turns=(3, 1, 1, 1), phases=[Phase(total=6, limit_at=lambda _: 2)])
    swarm.dispatcher.want("a", "chat", 5)
    assert [lease.index for lease in swarm.hands["a"]] == [0, 1, 2, 3]
    for index in (0, 1):
        swarm.dispatcher.request_ended("a", (False, index))
        assert len(swarm.hands["a"]) == 4
    swarm.dispatcher.request_ended("a", (False, 2))
    assert [lease.index for lease in swarm.hands["a"]] == [0, 1, 2, 3, 4]


def test_a_phase_that_is_closed_ends_with_what_is_leased() -> None:
    """By time: two are out, one comes back unused and is not sent again; the next phase begins
    behind them, with fresh prompts."""
    swarm = Workers(turns=(1,) * 9, phases=[Phase(total=None), Phase(total=2)])
    swarm.dispatcher.want("a", "chat", 2)
    swarm.dispatcher.close_phase()
    swarm.dispatcher.give_back("a", [(False, 1)])
    swarm.dispatcher.record_stored("a", (False, 0))
    swarm.dispatcher.want("b", "chat", 5)
    assert [(lease.index, lease.prompt.text) for lease in swarm.hands["b"]] == [
        (2, "p2.0"),
        (3, "p3.0"),
    ]


def test_the_same_prompts_come_again_where_a_phase_repeats() -> None:
    swarm = Workers(
        turns=(1,) * 9, phases=[Phase(total=2), Phase(total=2, repeats=True)]
    )
    for _ in range(2):
        swarm.dispatcher.want("a", "chat", 2)
        for lease in swarm.hands["a"][-2:]:
            swarm.dispatcher.record_stored("a", lease.key)
    assert [(lease.index, lease.prompt.text) for lease in swarm.hands["a"]] == [
        (0, "p0.0"),
        (1, "p1.0"),
        (2, "p0.0"),
        (3, "p1.0"),
    ]


events = st.lists(
    st.tuples(
        st.sampled_from(["want", "over", "end", "back", "lose", "wait", "join"]),
        st.integers(0, 2),
        st.integers(0, 400),
    ),
    min_size=10,
    max_size=60,
)


@given(
    st.lists(st.integers(0, 3000), min_size=1, max_size=25),
    st.integers(1, 4),
    st.booleans(),
    events,
)
@example([0, 0, 10], 3, True, [("wait", 0, 5)])  # all three can go
@example([600, 700, 2000], 3, True, [("wait", 0, 100), ("wait", 0, 300)])
def test_every_arrival_is_sent_once_or_dropped_and_the_limit_holds(
    due_ms: list[int], limit: int, drops: bool, steps: list[tuple[str, int, int]]
) -> None:
    """Whatever workers do: in flight are never more than allowed, nothing is leased more than half
    a second early, and in the end every arrival has ended, was lost with a worker, or was dropped.
    None is dropped before its instant, or while there is room; and none waits while there is room
    and a worker for it."""
    scheduled_ns = [due * MS for due in sorted(due_ms)]
    phase = Phase(
        total=len(scheduled_ns),
        scheduled_ns=scheduled_ns,
        limit_at=lambda _: limit,
        drops=drops,
        workload_of=lambda _: "chat",
        stage_of=lambda number, _: number,
    )
    swarm = Workers(phases=[phase])
    dispatcher, over, ended, joined = swarm.dispatcher, set(), [], set()
    before = (0, 0)  # in flight, dropped

    def look() -> None:
        nonlocal before
        present, dropped = dispatcher.ledger.in_flight, phase.dropped.total()
        assert (
            present
            == sum(
                lease.key not in over for hand in swarm.hands.values() for lease in hand
            )
            <= limit
        )
        assert all(
            lease.scheduled_ns <= swarm.now_ns + 500 * MS
            for hand in swarm.hands.values()
            for lease in hand
        )
        assert dropped == before[1] or limit in (present, before[0])
        assert all(scheduled_ns[number] <= swarm.now_ns for number in phase.dropped)
        if (index := phase.pool.peek()) is not None:
            assert not (
                drops and present == limit and scheduled_ns[index] <= swarm.now_ns
            )
            assert not (
                joined
                and present < limit
                and scheduled_ns[index] <= swarm.now_ns + 500 * MS
            )
        before = present, dropped

    def end(worker: str, lease: Lease) -> None:
        over.discard(lease.key)
        if dispatcher.ledger.accepts_record(worker, lease.key):
            ended.append(lease.index)
            dispatcher.record_stored(worker, lease.key)

    swarm.hands["w0"] = []
    dispatcher.ledger.join("w0")
    for what, number, amount in steps:
        worker = f"w{number}"
        hand = swarm.hands.setdefault(worker, [])
        in_flight, dropped = dispatcher.ledger.in_flight, phase.dropped.total()
        if what == "want":
            dispatcher.want(worker, "chat", amount % 5)
        elif what == "join":
            joined.add(worker)
            dispatcher.ledger.join(worker)
            dispatcher.serve()  # as it is done twenty times a second
        elif what == "wait":
            swarm.at(swarm.now_ns // MS + 3 * amount)
        elif what == "lose":
            gone = list(hand)
            hand.clear()
            joined.discard(worker)
            over.difference_update(lease.key for lease in gone)
            dispatcher.lose(worker, [lease.key for lease in gone[: amount % 3]])
        elif hand:
            lease = hand[amount % len(hand)]
            # the master may have stood still for up to a second
            swarm.now_ns += max(0, amount - 200) * 5 * MS
            if what == "over":
                over.add(lease.key)
                dispatcher.request_ended(worker, lease.key)
            elif what == "end":
                hand.remove(lease)
                end(worker, lease)
            else:
                hand.remove(lease)
                over.discard(lease.key)
                dispatcher.give_back(worker, [lease.key])
        look()
        assert phase.dropped.total() == dropped or limit in (
            in_flight,
            dispatcher.ledger.in_flight,
        )
    for worker in list(swarm.hands):
        swarm.hands[worker].clear()
        over.clear()
        dispatcher.lose(worker, [])
    joined = {"good"}
    dispatcher.ledger.join("good")
    dispatcher.serve()
    before = dispatcher.ledger.in_flight, phase.dropped.total()
    while not swarm.over:
        look()
        swarm.at(swarm.now_ns // MS + 250)
        look()
        for lease in list(swarm.hands.get("good", [])):
            swarm.hands["good"].remove(lease)
            end("good", lease)
            look()
    named = [index for gone in dispatcher.ledger.lost for index in gone.possibly_sent]
    assert len(ended) + len(named) + phase.dropped.total() == len(scheduled_ns)
    assert len(set(ended) | set(named)) == len(ended) + len(named)
    assert drops or not phase.dropped


def one_user_each(
    swarm: Workers, workers: int, steps: Sequence[int]
) -> list[list[int]]:
    """This many workers of one user, who sends again when its request is over; a step is whose
    request ends next. Returned: how many requests each of two replicas has, after each step."""
    for number in range(workers):
        swarm.dispatcher.want(f"w{number}", "chat", 1)
    held = []
    for step in steps:
        counts = Counter(hand[-1].replica for hand in swarm.hands.values())
        held.append([counts[0], counts[1]])
        worker = f"w{step}"
        swarm.dispatcher.request_ended(worker, swarm.hands[worker][-1].key)
        swarm.dispatcher.want(worker, "chat", 1)
        swarm.dispatcher.record_stored(worker, swarm.hands[worker][-2].key)
    return held


@given(st.lists(st.integers(0, 7), max_size=80))
def test_least_in_flight_holds_across_workers(steps: list[int]) -> None:
    """Eight workers with a user each, two replicas, requests that end in any order: 4 and 4 at all
    times. (Workers that choose for themselves, with one user each, all begin at the first: 8 and
    0.)"""
    swarm = Workers(None, balancer=Balancer(2, LEAST_IN_FLIGHT))
    assert one_user_each(swarm, 8, steps) == [[4, 4]] * len(steps)


def test_turns_are_taken_across_workers() -> None:
    """Where requests end in the order in which they began: 4 and 4 at all times, too."""
    swarm = Workers(None, balancer=Balancer(2, ROUND_ROBIN))
    assert one_user_each(swarm, 8, [step % 8 for step in range(80)]) == [[4, 4]] * 80


@pytest.mark.parametrize(
    ("how", "found"), [(ROUND_ROBIN, [1, 1]), (LEAST_IN_FLIGHT, [1, 0])]
)
def test_what_comes_back_unused_gives_its_replica_back(
    how: str, found: list[int]
) -> None:
    """Two at 1 come back, from a worker and from one that is lost; one at 0 is in flight. The turns
    of 1 are taken first; the idlest is 1, then both are alike."""
    swarm = Workers(8, balancer=Balancer(2, how))
    swarm.dispatcher.want("a", "chat", 2)
    swarm.dispatcher.want("b", "chat", 2)
    swarm.dispatcher.give_back("a", [(False, 1)])
    swarm.dispatcher.lose(
        "b", [(False, 2)]
    )  # its second one, the fourth of all, was not begun
    swarm.dispatcher.want("c", "chat", 2)
    assert [lease.replica for lease in swarm.hands["c"]] == found


def test_the_turns_of_a_conversation_are_one_request_in_flight() -> None:
    """Three turns stay at one replica, since one of them is in flight at a time; but with
    every-turn they are spread."""
    for how, found in (
        (LEAST_IN_FLIGHT, [0, 0, 0, 1, 1]),
        (ROUND_ROBIN, [0, 0, 0, 1, 1]),
        (EVERY_TURN, [0, 1, 0, 1, 0]),
    ):
        swarm = Workers(None, turns=(3, 1, 1), balancer=Balancer(2, how))
        swarm.dispatcher.want("a", "chat", 2)
        for index in range(3):
            swarm.dispatcher.request_ended("a", (False, index))
        assert [lease.replica for lease in swarm.hands["a"]] == found[:4]


def test_a_replica_that_refuses_is_left_alone_for_a_second() -> None:
    now_s = 0.0
    swarm = Workers(None, balancer=Balancer(2, LEAST_IN_FLIGHT, lambda: now_s))
    swarm.dispatcher.want("a", "chat", 1)
    swarm.dispatcher.request_ended("a", (False, 0), refused=True)
    swarm.dispatcher.want("b", "chat", 2)
    assert [lease.replica for lease in swarm.hands["b"]] == [1, 1]
    now_s = 1.5
    swarm.dispatcher.want("b", "chat", 1)
    assert swarm.hands["b"][-1].replica == 0


def test_a_worker_that_is_back_has_its_requests_in_flight() -> None:
    """Two may be in flight. a is lost with one, and b takes both places; a is back, its request
    still under way: b's next one waits until two of the three are over."""
    swarm = Workers(phases=[Phase(total=None, limit_at=lambda _: 2)])
    swarm.dispatcher.want("a", "chat", 1)
    swarm.dispatcher.lose("a", [(False, 0)])
    swarm.dispatcher.want("b", "chat", 4)
    assert len(swarm.hands["b"]) == 2
    swarm.dispatcher.reconcile("a", 1, [(False, 0)], {"chat": 0})
    swarm.dispatcher.request_ended("b", (False, 1))
    assert (len(swarm.hands["b"]), swarm.dispatcher.ledger.in_flight) == (2, 2)
    swarm.dispatcher.request_ended("a", (False, 0))
    swarm.dispatcher.record_stored("a", (False, 0))
    assert (len(swarm.hands["b"]), swarm.dispatcher.ledger.in_flight) == (3, 2)
    swarm.dispatcher.lose("a", [])
    assert swarm.dispatcher.ledger.in_flight == 2


def test_the_limit_of_a_closed_loop_is_what_was_asked_for() -> None:
    """Two users were asked for, three want (a worker was taken for lost and is back); then three
    are asked for."""
    asked = 2
    swarm = Workers(phases=[Phase(total=None, limit_at=lambda _: asked)])
    swarm.dispatcher.want("a", "chat", 3)
    assert len(swarm.hands["a"]) == 2
    asked = 3
    swarm.at(50)
    assert len(swarm.hands["a"]) == 3


def chain(warmup: int, total: int, filling: int) -> Phase:
    """A warm-up that hands over to a measurement, which hands over to what keeps up the load; two
    in flight."""
    fill = Phase(total=filling, warmup=True, limit_at=lambda _: 2, fills=True)
    measured = Phase(total=total, limit_at=lambda _: 2, then=fill)
    return Phase(total=warmup, warmup=True, limit_at=lambda _: 2, then=measured)


def test_a_warm_up_hands_its_slots_over_one_by_one() -> None:
    """Two users, two warm-ups, three measured requests: a slot that becomes free takes the next
    request of the chain, two are always in flight, and the phase is over with the last measured
    request, here after two that only keep up the load."""
    swarm = Workers(phases=[chain(2, 3, 4)])
    swarm.dispatcher.want("a", "chat", 3)
    sent = swarm.hands["a"]
    for ended, place in enumerate((0, 1, 2, 4, 5, 6, 3)):
        assert not swarm.over
        assert len(sent) == ended + 2
        assert swarm.dispatcher.ledger.in_flight == 2
        assert swarm.dispatcher.assigner.measuring == (ended > 0)
        swarm.dispatcher.want("a", "chat", 1)
        swarm.dispatcher.record_stored("a", sent[place].key)
    assert swarm.over
    assert [lease.key for lease in sent] == [
        (True, 0),
        (True, 1),
        *((False, n) for n in range(3)),
        *((True, n) for n in (2, 3, 4)),
    ]


def test_a_measured_request_that_comes_back_goes_first() -> None:
    """A lost worker's unsent request is sent by the other worker, although all measured requests
    had been leased."""
    swarm = Workers(phases=[chain(1, 2, 9)])
    swarm.dispatcher.want("a", "chat", 1)
    swarm.dispatcher.want("b", "chat", 1)
    swarm.dispatcher.want("b", "chat", 3)
    swarm.dispatcher.record_stored("a", (True, 0))
    assert [lease.key for lease in swarm.hands["b"]] == [(False, 0), (False, 1)]
    swarm.dispatcher.record_stored("b", (False, 0))
    assert swarm.hands["b"][-1].key == (True, 1)
    swarm.dispatcher.want("a", "chat", 1)
    swarm.dispatcher.give_back("b", [(False, 1)])
    again = [*swarm.hands["a"], *swarm.hands["b"]]
    assert [lease.key for lease in again].count((False, 1)) == 2
    assert not swarm.over
    swarm.dispatcher.record_stored(
        "b" if swarm.hands["b"][-1].key == (False, 1) else "a", (False, 1)
    )
    assert swarm.over
