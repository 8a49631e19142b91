"""Users who hang up, against the real llama-server and against servers that do not stop working for
them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import pytest

from llama_load.loadgen.users.hang_ups import HangUps, parse_hang_ups
from llama_load.servers.serving.launch import Server
from tests.conftest import Finished

Run = Callable[..., Finished]


def test_a_share_of_the_users_hangs_up_after_some_tokens(
    llama_server: Server, run_locust: Run
) -> None:
    """The same requests on however many workers, here two; they are neither successes nor failures, and the server is
    idle afterwards. Its own log counts the tasks that it cancelled: of answers so long that it is at
    work on them when a busy client hangs up."""
    expected = {index for index in range(9) if HangUps(0.4, 5).of(index)}
    assert 2 < len(expected) < 7
    cancelled_before = llama_server.log.read_text(errors="replace").count("cancel task")
    arguments = (
        "-u",
        "2",
        "--num-prompts",
        "9",
        "--max-tokens",
        "240",
        "--ignore-eos",
        "--abort-rate",
        "0.4",
    )
    done = run_locust(
        llama_server.url, *arguments, "--abort-after", "5 tokens", "--processes", "2"
    )
    assert done.code == 0, done.err + done.out
    rows = done.records.measured().table.to_pylist()
    assert {
        row["prompt_index"] for row in rows if row["status"] == "aborted"
    } == expected
    assert Counter(row["status"] for row in rows) == {
        "aborted": len(expected),
        "ok": 9 - len(expected),
    }
    for row in rows:
        if row["status"] == "aborted":
            assert row["token_events"] >= 5
            assert row["token_events"] < 240
            assert row["ttft_ms"] is None
            assert row["e2el_ms"] is None
    ours = done.summary["llama_load"]
    assert (done.summary["completed"], done.summary["failed"], ours["aborted"]) == (
        9 - len(expected),
        0,
        len(expected),
    )
    assert ours["wasted_tokens"] >= 5 * len(expected)
    (check,) = ours["hang_up_checks"]
    assert check["busy"] == 0
    assert check["idle_after_ms"] is not None
    assert check["healthy"]
    assert not [
        each
        for each in ours["verdict"]["checks"]
        if each["name"] == "missing_records" and not each["ok"]
    ]
    assert "Users Who Hung Up" in done.out
    cancelled = (
        llama_server.log.read_text(errors="replace").count("cancel task")
        - cancelled_before
    )
    assert cancelled == len(expected), re.findall(
        r".*cancel.*", llama_server.log.read_text(errors="replace")
    )[:5]


def test_users_hang_up_after_a_time(llama_server: Server, run_locust: Run) -> None:
    """Most users would hang up after 50 ms, none of them earlier, and the verdict names how many
    are in no latency."""
    arguments = (
        "-u",
        "2",
        "--num-prompts",
        "3",
        "--max-tokens",
        "400",
        "--ignore-eos",
        "--abort-rate",
        "0.7",
    )
    done = run_locust(llama_server.url, *arguments, "--abort-after", "0.05 s")
    rows = done.records.measured().table.to_pylist()
    aborted = [row for row in rows if row["status"] == "aborted"]
    assert aborted, done.err
    for row in aborted:
        # the user waits from when the client began, whose own delay is in no latency
        begun_ns = row["asked_mono_ns"] or row["started_mono_ns"]
        assert row["ended_mono_ns"] - begun_ns >= 49_000_000
    checks = {
        check["name"]: check
        for check in done.summary["llama_load"]["verdict"]["checks"]
    }
    assert checks["aborted_shift"]["text"].startswith(f"{len(aborted)} request")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("first-token", HangUps(0.5, 1)),
        ("20 tokens", HangUps(0.5, 20)),
        ("1token", HangUps(0.5, 1)),
        ("2.5 s", HangUps(0.5, None, 2.5)),
        ("lognormal:2,0.5", HangUps(0.5, None, 2.0, 0.5)),
    ],
)
def test_when_users_hang_up(text: str, expected: HangUps) -> None:
    assert parse_hang_ups(0.5, text, 0) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0 tokens",
        "0 s",
        "-1 s",
        "5",
        "lognormal:2",
        "lognormal:0,1",
        "lognormal:1,9",
        "nan s",
        "１ s",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--abort-after must be first-token"):
        parse_hang_ups(0.5, text, 0)


def test_times_are_drawn_around_their_median() -> None:
    """Half of 400 draws are below the median of 2 s: 200 with a standard deviation of 10. The same
    seed draws the same."""
    drawn = [
        give_up.after_s
        for index in range(400)
        if (give_up := HangUps(1.0, None, 2.0, 0.5, 7).of(index)) is not None
    ]
    below = sum(seconds is not None and seconds < 2.0 for seconds in drawn)
    assert len(drawn) == 400
    assert 150 < below < 250
    assert drawn[:3] == [
        HangUps(1.0, None, 2.0, 0.5, 7).of(index).after_s for index in range(3)
    ]
    # 100 with a deviation of 9.5
    assert sum(HangUps(0.1).of(index) is not None for index in range(1000)) in range(
        60, 140
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--abort-rate", "1.5"], "--abort-rate"),
        (["--abort-after", "5 tokens"], "needs --abort-rate"),
        (
            ["--abort-rate", "0.1", "--abort-after", "soon"],
            "--abort-after must be first-token",
        ),
        (["--abort-rate", "0.1", "--no-stream"], "give a time"),
    ],
)
def test_bad_input_is_refused(
    run_locust: Run, arguments: list[str], sentence: str
) -> None:
    done = run_locust("http://127.0.0.1:9", "--num-prompts", "2", *arguments)
    assert done.code == 2
    assert sentence in done.err
