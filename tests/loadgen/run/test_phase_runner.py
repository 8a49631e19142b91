"""The phases of a run: who is sent when, what ends them, and what the manifest keeps of them. No
process, no waiting."""

from __future__ import annotations

import pytest

from llama_load.ground.units import NS_PER_S
from llama_load.loadgen.run.phase_runner import READY_WITHIN_S, SHORT_S
from llama_load.loadgen.schedule.schedule import drawn_by_weight
from llama_load.loadgen.schedule.segments import LoadModel
from llama_load.loadgen.workloads.arrival import Arrival
from tests.virtual_run import VirtualRun, most_at_once, staged


def test_a_closed_loop_sends_each_request_once_and_is_complete() -> None:
    """Ten requests of 1 s on two users: five seconds."""
    run = VirtualRun(requests=10).begin().over()
    assert run.measured == list(range(10))
    assert run.controller.end_reason == run.manifest.end == "complete"
    assert run.elapsed_s == pytest.approx(5, abs=0.2)
    assert most_at_once(run.sent) == 2


def test_the_warm_up_has_ended_before_the_first_measured_request() -> None:
    run = VirtualRun(requests=4, warmup=3).begin().over()
    warm_ns = [end_ns for lease, _, end_ns in run.sent if lease.warmup]
    assert len(warm_ns) == 3
    assert max(warm_ns) <= min(
        start_ns for lease, start_ns, _ in run.sent if not lease.warmup
    )


def test_what_is_going_on_is_named() -> None:
    run = VirtualRun(requests=4, warmup=2)
    assert run.controller.phase == "preparing"
    run.begin()
    assert run.controller.phase == "warm-up"
    assert run.after(1.5).controller.phase == "measuring"
    assert run.over().controller.phase == "finishing"


def test_a_stage_is_named_with_its_phase() -> None:
    run = VirtualRun(staged("1:2,2:4"), warmup=1).begin()
    assert run.controller.phase == "stage 1 warm-up"
    assert run.after(1.5).controller.phase == "stage 1 measuring"
    assert run.after(2).controller.phase == "stage 2 warm-up"


def test_a_run_time_counts_from_the_first_measured_request() -> None:
    """3 s of warm-up, 4 s of measurement; what is in flight then is not waited for."""
    run = VirtualRun(run_time_s=4.5, warmup=6).begin().over()
    assert run.controller.end_reason == "time"
    assert run.elapsed_s == pytest.approx(7.5, abs=0.2)
    assert run.sending() == 2
    assert run.manifest.cut_mono_ns == pytest.approx(
        run.begun_ns + 7.5 * NS_PER_S, abs=0.1 * NS_PER_S
    )


def test_a_number_of_requests_ends_a_run_before_its_time() -> None:
    run = VirtualRun(requests=4, run_time_s=60).begin().over()
    assert run.controller.end_reason == "complete"
    assert run.elapsed_s < 3
    assert run.manifest.cut_mono_ns is None


def test_the_time_of_a_measurement_that_has_ended_ends_nothing_later() -> None:
    """The first stage's two requests are answered after 2 s; its 5 s do not end the second
    stage."""
    run = VirtualRun(staged("1:2,1"), requests=8, run_time_s=5).begin().over()
    assert len(run.of_stage(1)) >= 5


def test_a_stage_without_enough_requests_ends_with_the_last_one() -> None:
    run = VirtualRun(staged("1:2,2:4")).begin().over()
    first, second = run.manifest.stages
    assert (first.is_timed, second.is_timed) == (False, False)
    assert first.ended_mono_ns is not None and second.begun_mono_ns is not None
    assert first.ended_mono_ns - (first.begun_mono_ns or 0) == pytest.approx(
        2 * NS_PER_S, abs=0.1 * NS_PER_S
    )
    assert first.ended_mono_ns <= second.begun_mono_ns
    assert run.manifests_written == 2


def test_a_stage_that_ends_by_time_completes_what_is_in_flight() -> None:
    """Two users, 3.5 s, requests of 1 s: eight are sent, and all of them answered; figures end with
    the time."""
    run = VirtualRun(staged("2:3.5s")).begin().over()
    (stage,) = run.manifest.stages
    assert stage.is_timed
    assert stage.ended_mono_ns is not None and stage.begun_mono_ns is not None
    assert stage.ended_mono_ns - stage.begun_mono_ns == pytest.approx(3.5 * NS_PER_S)
    assert len(run.measured) == 8 and run.sending() == 0
    assert run.controller.end_reason == "complete"


def test_the_level_of_each_stage_is_reached_and_never_exceeded() -> None:
    """Each closed stage has its users: those of the largest are there from the beginning."""
    run = VirtualRun(staged("1:3,4:8,2:4"), users=4, warmup=1).begin().over()
    assert [most_at_once(run.of_stage(number)) for number in range(3)] == [1, 4, 2]
    assert [len(run.of_stage(number)) for number in range(3)] == [3, 8, 4]
    assert [len(run.of_stage(number, warmup=True)) for number in range(3)] == [1, 1, 1]


def test_a_spike_has_no_pause_and_one_warm_up() -> None:
    """Two users, six, two, for 3 s each: as soon as the time of a stage is over, requests belong to
    the next one."""
    run = (
        VirtualRun(staged("spike:2-6:3s"), users=6, warmup=1, service_s=0.4)
        .begin()
        .over()
    )
    assert [most_at_once(run.of_stage(number)) for number in range(3)] == [2, 6, 2]
    assert sum(lease.warmup for lease, _, _ in run.sent) == 1
    before, spike, after = run.manifest.stages
    assert (
        before.ended_mono_ns == spike.begun_mono_ns
        and spike.ended_mono_ns == after.begun_mono_ns
    )
    assert all(stage.is_timed for stage in run.manifest.stages)


def test_a_ramp_of_users_grows_with_time() -> None:
    """From one user to five in 8 s: never more in flight than the ramp allows."""
    run = VirtualRun(staged("1-5:8s"), users=5, service_s=0.25).begin()
    levels = []
    for _ in range(4):
        levels.append(run.sending())
        run.after(2)
    assert levels == [1, 2, 3, 4]


def test_an_open_loop_keeps_its_schedule() -> None:
    """One request every 0.5 s, although each takes 3 s: the users do not hold it up."""
    run = (
        VirtualRun(LoadModel(rate_rps=2, process="constant"), requests=8, service_s=3)
        .begin(0)
        .over()
    )
    starts_ns = sorted(start_ns for _, start_ns, _ in run.sent)
    assert [
        later - earlier
        for earlier, later in zip(starts_ns, starts_ns[1:], strict=False)
    ] == [NS_PER_S // 2] * 7
    assert all(lease.scheduled_ns == start_ns for lease, start_ns, _ in run.sent)


def test_the_first_arrival_is_not_late() -> None:
    """A trace's first arrival is at its very beginning: the measurement begins later than its lease
    takes to come, 0.2 s here."""
    model = LoadModel(arrivals=[Arrival(0.0), Arrival(0.1)])
    run = (
        VirtualRun(model, requests=2, warmup=2, service_s=0.1, delivery_s=0.2)
        .begin(0)
        .over()
    )
    assert [
        lease.scheduled_ns == start_ns
        for lease, start_ns, _ in run.sent
        if not lease.warmup
    ] == [True, True]


def test_a_limit_queues_arrivals() -> None:
    """Four a second for two users of 1 s: the last of 8 waits 1.5 s, and says when the limit let it
    go."""
    model = LoadModel(rate_rps=4, process="constant", max_in_flight=2)
    run = VirtualRun(model, requests=8).begin(0).over()
    assert most_at_once(run.sent) == 2
    assert len(run.measured) == 8 and run.manifest.dropped == 0
    lease, start_ns, _ = run.sent[-1]
    assert lease.scheduled_ns is not None and lease.allowed_ns is not None
    assert start_ns - lease.scheduled_ns == 1.5 * NS_PER_S
    assert start_ns - lease.allowed_ns < 0.1 * NS_PER_S


def test_a_limit_drops_arrivals() -> None:
    model = LoadModel(rate_rps=4, process="constant", max_in_flight=2, drops=True)
    run = VirtualRun(model, requests=8).begin(0).over()
    assert most_at_once(run.sent) == 2
    assert len(run.measured) + run.manifest.dropped == 8
    assert 3 <= run.manifest.dropped <= 5
    assert run.controller.end_reason == "complete"


def test_a_time_limit_of_a_schedule_says_how_many_were_scheduled_before_it() -> None:
    """Two a second, 3.2 s: six of a hundred."""
    run = (
        VirtualRun(
            LoadModel(rate_rps=2, process="constant"), requests=100, run_time_s=3.2
        )
        .begin(0)
        .over()
    )
    assert run.controller.end_reason == "time"
    assert run.manifest.due == 6
    assert len(run.sent) == 6


def test_a_soak_whose_last_window_has_no_late_arrival_is_whole() -> None:
    """4.3 requests a second for 2 s are 8 arrivals: the last window ends after the last of them,
    and is complete all the same."""
    run = (
        VirtualRun(staged("soak:4.3/s:2s", process="constant"), service_s=0.1)
        .begin(0)
        .over()
    )
    assert len(run.measured) == 8
    assert all(stage.ended_mono_ns is not None for stage in run.manifest.stages)


def test_a_run_that_is_stopped_names_the_stages_that_did_not_end() -> None:
    run = VirtualRun(staged("1:2,2:50,4:50"), users=4).begin().after(5)
    run.controller.stopping("interrupted")
    run.after(3).over()
    assert run.manifest.end == "interrupted"
    assert [stage.ended_mono_ns is not None for stage in run.manifest.stages] == [
        True,
        False,
        False,
    ]
    assert [stage.begun_mono_ns is not None for stage in run.manifest.stages] == [
        True,
        True,
        False,
    ]


def test_a_stage_that_is_stopped_in_the_middle_ends_no_stage_behind_it() -> None:
    """What is in flight is waited for beyond the times at which the others would have ended."""
    run = VirtualRun(staged("spike:2-4:2s"), users=4, service_s=30).begin().after(1.5)
    run.controller.stopping("interrupted")
    run.after(60).over()
    assert [stage.ended_mono_ns for stage in run.manifest.stages] == [None, None, None]


def test_stopping_before_anything_was_sent_leaves_no_stage_begun() -> None:
    run = VirtualRun(staged("2:4")).begin(0).after(0.2)
    run.controller.stopping("interrupted")
    run.over()
    assert run.manifest.stages[0].begun_mono_ns is None
    assert run.sent == []


def test_a_stage_waits_for_its_users_but_not_for_ever() -> None:
    """Two of four users are there: it begins with them after READY_WITHIN_S."""
    run = VirtualRun(staged("4:8"), users=4)
    run.starts_users = False
    run.begin(users=2).after(READY_WITHIN_S - 0.5)
    assert run.sent == []
    run.after(1)
    assert most_at_once(run.sent) == 2


def test_a_stage_begins_as_soon_as_its_users_are_there() -> None:
    run = VirtualRun(staged("4:8"), users=4).begin(users=2).after(0.5)
    run.ask(2)
    run.after(0.2)
    assert run.sending() == 4


def test_users_that_went_away_during_a_stage_are_replaced() -> None:
    """After their first request all users wait for an hour: others come in their place."""
    run = VirtualRun(staged("2:6"))
    run.is_idle = True
    run.begin().over()
    assert len(run.measured) == 6
    assert run.started_users >= 6


def test_users_missing_between_stages_are_given_time_to_come() -> None:
    """Locust may still be starting them; after SHORT_S others are started."""
    run = VirtualRun(staged("1:1,3:3"), users=3, warmup=1)
    run.begin(users=1).after(SHORT_S - 0.2)
    assert run.started_users == 1
    run.over()
    assert run.started_users >= 3
    assert len(run.of_stage(1)) == 3


def test_the_limit_of_a_plain_closed_loop_is_locusts_number_of_users() -> None:
    """The web page changes it from 3 to 1 in the middle; the manifest notes when."""
    run = VirtualRun(requests=30, users=3).begin().after(4.5)
    assert run.sending() == 3
    run.users = 1
    run.after(2)
    assert run.sending() == 1
    assert [asked.users for asked in run.manifest.users_asked] == [3, 1]
    assert run.manifest.users == 3


def test_a_schedule_waits_until_all_workers_have_joined() -> None:
    run = VirtualRun(LoadModel(rate_rps=2, process="constant"), requests=4)
    run.dispatcher.ledger.expect("late")
    run.begin(0).after(3)
    assert run.sent == []
    run.dispatcher.ledger.join("late")
    run.after(1)
    assert len(run.sent) == 1


def test_the_time_of_a_run_does_not_go_on_while_no_worker_has_joined() -> None:
    """Until the clock of a worker is known it gets no requests: over a slow network a short run would
    end before its first one."""
    run = VirtualRun(run_time_s=2, users=0)
    run.dispatcher.ledger.expect("late")
    run.begin().after(5)
    assert not run.dispatcher.assigner.measuring
    run.dispatcher.ledger.join("late")
    run.after(1)
    assert run.dispatcher.assigner.measuring
    run.over()
    assert run.elapsed_s == pytest.approx(7, abs=0.2)


def test_arrivals_that_nobody_takes_are_given_up_only_after_the_last_one() -> None:
    model = LoadModel(rate_rps=1, process="constant", max_in_flight=1)
    run = (
        VirtualRun(model, requests=4, service_s=1000, run_time_s=2000).begin(0).after(2)
    )
    run.controller.give_up_arrivals()
    assert run.controller.end_reason is None
    run.after(3)
    run.controller.give_up_arrivals()
    assert run.controller.end_reason == "time"


def test_only_the_stage_in_which_a_worker_was_lost_is_marked() -> None:
    run = VirtualRun(staged("1:4,1:2"), users=1).begin().after(0.5)
    run.dispatcher.ledger.join("other")
    run.dispatcher.want("other", "sharegpt", 1)
    run.after(1)  # it has the second request
    run.dispatcher.lose("other", [], run.time.now_ns)
    run.over()
    assert [stage.lost for stage in run.manifest.stages] == [1, 0]
    assert [lost.worker for lost in run.manifest.lost] == ["other"]


def test_a_warm_up_hands_its_slots_over_one_by_one() -> None:
    """Four users: from the first measured request to the end of the last one, four requests are in
    flight."""
    run = (
        VirtualRun(
            LoadModel(hands_over=True), users=4, requests=12, warmup=4, filling=8
        )
        .begin()
        .over()
    )
    measured = [sent for sent in run.sent if not sent[0].warmup]
    assert sorted(lease.index for lease, _, _ in measured) == list(range(12))
    first_ns, last_ns = (
        min(start_ns for _, start_ns, _ in measured),
        max(end_ns for _, _, end_ns in measured),
    )
    at_ns = first_ns + 1
    while at_ns < last_ns:
        assert (
            sum(
                start_ns <= at_ns < (end_ns or at_ns + 1)
                for _, start_ns, end_ns in run.sent
            )
            == 4
        )
        at_ns += NS_PER_S // 4
    assert run.controller.end_reason == "complete"


@pytest.mark.parametrize(
    ("requests", "run_time_s", "left_s"), [(8, None, 2.0), (None, 6.0, 4.0)]
)
def test_the_time_left_is_that_of_the_limit_or_of_the_pace(
    requests: int | None, run_time_s: float | None, left_s: float
) -> None:
    """After 2 s of 6: 4 s. After four of eight requests in 2 s: 2 s."""
    run = VirtualRun(requests=requests, run_time_s=run_time_s).begin().after(2)
    assert run.controller.progress.counts().left_s == pytest.approx(left_s, abs=0.1)


def test_nobody_is_measured_while_the_run_is_over() -> None:
    """All greenlets of a closed run end."""
    run = VirtualRun(requests=4).begin().over()
    run.after(10)
    assert [task for task in run.time.spawned if not task.dead] == []


def test_weights_choose_the_workload_of_an_arrival() -> None:
    """One in four, the same in each run of a seed."""
    drawn = drawn_by_weight({"slow": 1, "fast": 3}, seed=7)
    names = [drawn(number) for number in range(4000)]
    assert names.count("slow") == pytest.approx(1000, rel=0.1)
    assert names == [
        drawn_by_weight({"slow": 1, "fast": 3}, seed=7)(number)
        for number in range(4000)
    ]
    assert drawn_by_weight({"only": 2}, seed=7)(5) == "only"
