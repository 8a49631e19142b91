"""A run's controller and its watchers: what is counted, what ends a run, what they write into the
manifest. No process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llama_load.loadgen.run.end_below_watcher import EndBelowWatcher
from llama_load.loadgen.run.end_watchers import (
    ARRIVALS_TAKEN_WITHIN_S,
    FIRST_REQUEST_AFTER_TIME_S,
    FIRST_REQUEST_WITHIN_S,
    AbortWatcher,
    IdleWatcher,
)
from llama_load.loadgen.run.live_sampler import LiveSampler
from llama_load.loadgen.run.live_telemetry import LiveTelemetry
from llama_load.loadgen.run.server_facts import CountersWatcher
from llama_load.loadgen.run.servers_watcher import ServersWatcher
from llama_load.loadgen.run.until_watcher import UntilWatcher
from llama_load.loadgen.run.watcher import Watcher
from llama_load.loadgen.schedule.segments import LoadModel
from llama_load.run_folder.observed.record import to_batch
from llama_load.run_folder.observed.server_counters import ServerCounters
from llama_load.run_folder.observed.server_description import ServerDescription
from llama_load.run_folder.vocabulary.abort import parse_abort
from llama_load.run_folder.vocabulary.slo import parse_slo
from llama_load.run_folder.vocabulary.until import parse_until
from tests.make_records import failed, record
from tests.virtual_run import VirtualRun, staged

Capture = pytest.CaptureFixture[str]


class Notes(Watcher):
    """Notes what a watcher is called for."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def before_measuring(self) -> None:
        self.calls.append("before")

    def after_measuring(self, stages: Any) -> None:
        self.calls.append(f"after {[stage.name for stage in stages]}")

    def add_record(self, record: Any) -> None:
        self.calls.append(f"record {record.prompt_index}")

    def stop(self) -> None:
        self.calls.append("stop")

    def facts(self, writer: Any) -> None:
        self.calls.append(f"facts {writer.manifest.end}")


def test_watchers_are_called_in_the_order_of_a_run() -> None:
    notes = Notes()
    VirtualRun(staged("1:1,1:1"), users=1, watchers=lambda *_: [notes]).begin().over()
    measured = [
        "before",
        "record 0",
        "after ['1']",
        "before",
        "record 1",
        "after ['1 (2)']",
    ]
    assert notes.calls == ["start", *measured, "stop", "facts complete"]


def test_a_stopped_run_ends_its_measurement_before_its_watchers() -> None:
    """What the servers counted is read while they are still watched."""
    notes = Notes()
    run = VirtualRun(requests=4, watchers=lambda *_: [notes]).begin().after(0.5)
    run.controller.stopping("interrupted")
    run.over()
    assert notes.calls == ["start", "before", "after []", "stop", "facts interrupted"]


def test_the_progress_counts_from_the_measurement_on() -> None:
    run = VirtualRun(requests=6, warmup=2)
    assert run.controller.progress.counts().phase == "preparing"
    run.status = "http_500"
    run.begin().after(1.05)
    run.status = "ok"
    run.after(1)
    counts = run.controller.progress.counts()
    assert (counts.phase, counts.done, counts.total, counts.in_flight) == (
        "measuring",
        2,
        6,
        2,
    )
    assert (counts.failed, counts.output_tokens) == (0, 6)


def test_only_the_first_reason_to_end_counts() -> None:
    run = VirtualRun(requests=6).begin()
    run.controller.end("aborted")
    run.controller.end("server")
    run.controller.stopping("interrupted")
    run.over()
    assert run.manifest.end == "aborted"
    assert run.stops == 1


def test_no_request_is_leased_after_the_end() -> None:
    run = VirtualRun(requests=6).begin().after(0.5)
    run.controller.stopping("interrupted")
    run.after(5)
    assert len(run.sent) == 2 and run.sending() == 0


# ---------------------------------------------------------------------- --abort-if


def aborting(threshold: str) -> Callable[..., list[Watcher]]:
    return lambda _run, controller: [
        AbortWatcher(controller, (parse_abort(threshold),))
    ]


def test_a_threshold_ends_the_run_once_enough_requests_have_ended(
    capsys: Capture,
) -> None:
    """20 requests of ten users take 2 s; it is looked every 2 s."""
    run = VirtualRun(requests=10_000, users=10, watchers=aborting("failure_ratio>0.5"))
    run.status = "http_500"
    run.begin().over()
    assert run.manifest.end == "aborted"
    assert run.manifest.aborted_by is not None
    assert (run.manifest.aborted_by.text, run.manifest.aborted_by.value) == (
        "failure_ratio>0.5",
        1.0,
    )
    assert "--abort-if failure_ratio>0.5: 1 after" in capsys.readouterr().err
    assert run.elapsed_s <= 4.5


def test_a_threshold_that_holds_ends_nothing() -> None:
    run = (
        VirtualRun(requests=60, users=10, watchers=aborting("p50_e2el_ms>1500"))
        .begin()
        .over()
    )
    assert run.manifest.end == "complete"
    assert run.manifest.aborted_by is None


def test_failures_of_the_warm_up_abort_nothing() -> None:
    run = VirtualRun(
        requests=30, users=10, warmup=40, watchers=aborting("failure_ratio>0")
    )
    run.status = "http_500"
    run.begin().after(4.05)
    run.status = "ok"
    run.over()
    assert run.manifest.end == "complete"


def test_records_of_workers_count_for_thresholds() -> None:
    rows = [record(number, first_ms=300) for number in range(30)] + [
        failed(31),
        failed(32, kind="cancelled"),
    ]
    for batch in (False, True):
        run = VirtualRun(requests=60, users=0, watchers=aborting("failed>0")).begin()
        if batch:
            run.controller.add_batch(to_batch(rows))
        for each in [] if batch else rows:
            run.controller.add_record(each)
        run.after(2.1).over()
        assert (
            run.manifest.aborted_by is not None and run.manifest.aborted_by.value == 1
        )


# ---------------------------------------------------------------------- --until, --end-below


def until(text: str) -> Callable[..., list[Watcher]]:
    return lambda run, controller: [
        UntilWatcher(
            controller, parse_until(text), is_open=False, users=run.users, slots=None
        )
    ]


def test_a_run_ends_as_its_time_would_when_its_figure_is_known(capsys: Capture) -> None:
    """Answers of equal length: known at the second look, after 420 of the 5000 requests."""
    run = (
        VirtualRun(
            requests=5000, users=8, service_s=0.1, watchers=until("mean_e2el:20%")
        )
        .begin()
        .over()
    )
    known = run.manifest.until
    assert (
        known is not None
        and known.ended_early
        and known.count >= 420
        and known.within is not None
        and known.within <= 0.2
    )
    assert run.manifest.end == "time"
    assert len(run.measured) < 5000
    assert "--until: mean_e2el is" in capsys.readouterr().err


def test_a_limit_that_comes_before_the_figure_is_known_says_so() -> None:
    run = (
        VirtualRun(requests=40, users=4, service_s=0.1, watchers=until("p99_ttft:5%"))
        .begin()
        .over()
    )
    assert run.manifest.end == "complete"
    assert run.manifest.until is not None and not run.manifest.until.ended_early


def test_a_run_ends_with_the_first_miss_too_many(capsys: Capture) -> None:
    """All miss 100 ms: of 20 requests 18 must not, so that the third decides. The two users'
    requests end together."""
    watchers = lambda _, run: [EndBelowWatcher(run, [parse_slo("ttft:100")], 0.9, 20)]  # noqa: E731
    run = VirtualRun(requests=20, watchers=watchers).begin().over()
    assert run.manifest.end == "time"
    assert (
        run.manifest.ended_below
        == "3 of 20 requests missed the objectives: 90 % can no longer meet them"
    )
    assert run.measured == [0, 1, 2, 3]
    assert capsys.readouterr().err.count("--end-below: 3 of 20") == 1


# ---------------------------------------------------------------------- nobody sends, no server


def idle(run: VirtualRun, controller: Any) -> list[Watcher]:
    return [IdleWatcher(controller, run.sending, run.prepared.load.run_time_s)]


def test_a_run_without_a_request_is_aborted() -> None:
    run = (
        VirtualRun(requests=4, watchers=idle).begin(0).after(FIRST_REQUEST_WITHIN_S - 1)
    )
    assert run.controller.end_reason is None
    run.after(2)
    assert run.controller.end_reason == "stopped"


def test_a_run_with_a_time_waits_a_little_longer_for_its_first_request() -> None:
    run = VirtualRun(run_time_s=90, users=2, watchers=idle)
    run.prepared.load.model = LoadModel(hands_over=False)
    run.begin(0).after(89)
    assert run.controller.end_reason is None


def test_a_run_in_which_requests_take_long_goes_on() -> None:
    run = VirtualRun(requests=2, service_s=500, watchers=idle).begin().after(400)
    assert run.controller.end_reason is None


def test_a_run_whose_users_pause_for_long_goes_on_once_something_was_sent() -> None:
    run = VirtualRun(requests=4, watchers=idle)
    run.is_idle = True
    run.begin().after(400)
    assert run.controller.end_reason is None
    run.ask(2)
    assert run.over().manifest.end == "complete"


def test_the_rest_of_a_schedule_that_nobody_takes_ends_with_the_run_time() -> None:
    """Two arrivals are scheduled, the worker's only user is busy with the first one until it is
    lost."""
    model = LoadModel(rate_rps=1, process="constant", max_in_flight=1)
    run = (
        VirtualRun(model, requests=3, run_time_s=500, service_s=2, watchers=idle)
        .begin(0)
        .after(2)
    )
    run.dispatcher.leave("local")
    run.after(ARRIVALS_TAKEN_WITHIN_S + 4)
    assert run.controller.end_reason == "time"
    assert run.elapsed_s < 500 + FIRST_REQUEST_AFTER_TIME_S


@pytest.mark.parametrize("can_look", [True, False])
def test_a_run_ends_when_no_server_is_left(
    can_look: bool, capsys: Capture, tmp_path: Path
) -> None:
    address, ended = SimpleNamespace(url="http://h"), []
    server: Any = SimpleNamespace(
        target=SimpleNamespace(address=address), can_be_watched=can_look, has_ended=lambda: bool(ended), log=None,
        is_explained=lambda: True, describe=lambda _: ServerDescription(url="http://h"), last_words=lambda: "no memory",
    )  # fmt: skip
    watchers = lambda _, run: [ServersWatcher(run, [server], 0.0, lambda old: old)]  # noqa: E731
    run = VirtualRun(requests=20, watchers=watchers)
    run.prepared.writer.path = tmp_path
    run.manifest.servers = [ServerDescription(url="http://h")]
    run.begin().after(2)
    ended.append(True)
    run.over()
    assert run.manifest.end == ("server" if can_look else "complete")
    assert [description.ended for description in run.manifest.servers] == ["no memory"]
    assert ("no server is left; the run ends" in capsys.readouterr().err) == can_look


# ---------------------------------------------------------------------- counters, live figures


def counting(values: list[int | None]) -> Callable[..., list[Watcher]]:
    """Servers that have processed so many prompt tokens at each reading; None: one did not
    answer."""
    left = iter(values)

    def read() -> ServerCounters | None:
        value = next(left)
        return None if value is None else ServerCounters(prompt_tokens=value)

    return lambda run, _controller: [CountersWatcher(run.manifest, read)]


def test_counters_of_stages_are_added_up_without_the_warm_ups() -> None:
    run = (
        VirtualRun(
            staged("1:1,1:1"),
            users=1,
            warmup=1,
            watchers=counting([100, 140, 150, 155]),
        )
        .begin()
        .over()
    )
    assert [
        stage.counters and stage.counters.prompt_tokens for stage in run.manifest.stages
    ] == [40, 5]
    assert (
        run.manifest.counters is not None and run.manifest.counters.prompt_tokens == 45
    )


def test_a_server_that_does_not_report_makes_the_sum_unknown() -> None:
    run = (
        VirtualRun(staged("1:1,1:1"), users=1, watchers=counting([100, 140, None]))
        .begin()
        .over()
    )
    assert [stage.counters is None for stage in run.manifest.stages] == [False, True]
    assert run.manifest.counters is None
    assert run.manifest.server_changes == []


def test_counters_that_fell_are_a_restart() -> None:
    run = VirtualRun(requests=1, watchers=counting([100, 40])).begin().over()
    assert run.manifest.counters is None
    assert run.manifest.server_changes == [
        "restarted while requests were measured: its counters were reset"
    ]


def test_what_is_in_flight_is_sampled_until_the_end(tmp_path: Any) -> None:
    watchers = lambda run, controller: [  # noqa: E731
        LiveSampler(
            controller, run, ["http://127.0.0.1:1"], LiveTelemetry(tmp_path / "none")
        )
    ]
    run = VirtualRun(requests=6, watchers=watchers).begin().after(0.6)
    assert run.controller.live.phase == "measuring"
    assert run.controller.live.gauges["in_flight"] == 2
    assert run.controller.live.gauges["users"] == 2
    run.over()
    assert run.controller.live.phase == "ended"
    assert run.controller.live.gauges == {}
