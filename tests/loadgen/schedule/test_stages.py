"""What --stages takes: the grammar in every form, what it refuses, and the load shapes that say the
same in a locustfile."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llama_load.loadgen.schedule.stages import SOAK_WINDOWS, Stage, parse_stages

# Every piece of the grammar, so that what is drawn is near to what is right, and often is.
PIECES = [
    "1",
    "8",
    "16",
    "2.5",
    "0",
    "/s",
    ":",
    "-",
    ",",
    "spike",
    "soak",
    "30",
    "s",
    "m",
    "h",
    "1h",
    "60s",
    " ",
    "e",
    "+",
    "\n",
    "٣",
    "_",
]
nearly = st.lists(st.sampled_from(PIECES), max_size=10).map("".join)
loads = st.one_of(
    st.integers(1, 5000).map(str),
    st.floats(0.001, 5000).map(lambda rate: f"{rate:.3f}/s"),
)
times = st.one_of(
    st.integers(1, 9999).map("{}s".format),
    st.integers(1, 99).map("{}m".format),
    st.just("1h2m3s"),
)
ends = st.tuples(st.integers(1, 5000), st.integers(1, 5000))
elements = st.one_of(
    loads,
    st.builds("{}:{}".format, loads, st.integers(1, 9999)),
    st.builds("{}:{}".format, loads, times),
    st.builds("{0[0]}-{0[1]}:{1}".format, ends, times),
    st.builds("{0[0]}/s-{0[1]}/s:{1}".format, ends, times),
    st.builds("spike:{0[0]}-{0[1]}:{1}".format, ends, times),
    st.builds("soak:{}:{}".format, loads, times),
)


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ("8", [Stage(name="8", users=8)]),
        ("2.5/s", [Stage(name="2.5/s", rate_rps=2.5)]),
        ("1,8", [Stage(name="1", users=1), Stage(name="8", users=8)]),
        ("8:128", [Stage(name="8", users=8, count=128)]),
        ("4/s:600", [Stage(name="4/s", rate_rps=4.0, count=600)]),
        ("1:30s", [Stage(name="1", users=1, seconds=30.0)]),
        ("1:1.5m", [Stage(name="1", users=1, seconds=90.0)]),
        ("1:1h2m3s", [Stage(name="1", users=1, seconds=3723.0)]),  # 3600 + 120 + 3
        ("1-16:60s", [Stage(name="1-16", users=16, start=1, seconds=60.0)]),
        ("16-1:60s", [Stage(name="16-1", users=1, start=16, seconds=60.0)]),
        (
            "1/s-10/s:1m",
            [Stage(name="1/s-10/s", rate_rps=10.0, start=1.0, seconds=60.0)],
        ),
        (
            "spike:4-32:30s",
            [
                Stage(name="4 before", users=4, seconds=30.0),
                Stage(name="32 spike", users=32, seconds=30.0, goes_on=True),
                Stage(name="4 after", users=4, seconds=30.0, goes_on=True),
            ],
        ),
        (
            "spike:1/s-9/s:30s",
            [
                Stage(name="1/s before", rate_rps=1.0, seconds=30.0),
                Stage(name="9/s spike", rate_rps=9.0, seconds=30.0, goes_on=True),
                Stage(name="1/s after", rate_rps=1.0, seconds=30.0, goes_on=True),
            ],
        ),
        # An hour in six windows: 600 s each.
        (
            "soak:8:1h",
            [
                Stage(name=f"8 {n}/6", users=8, seconds=600.0, goes_on=n > 1)
                for n in (1, 2, 3, 4, 5, 6)
            ],
        ),
        (
            "soak:2/s:6s",
            [
                Stage(name=f"2/s {n}/6", rate_rps=2.0, seconds=1.0, goes_on=n > 1)
                for n in (1, 2, 3, 4, 5, 6)
            ],
        ),
        (
            " 1 : 16 , 1 - 8 : 60s , spike : 4 - 8 : 1s",
            parse_stages("1:16,1-8:60s,spike:4-8:1s"),
        ),
    ],
)
def test_every_form_of_the_grammar(text: str, stages: list[Stage]) -> None:
    """With the numbers that stand in it; space around them means nothing, not even in a name."""
    assert list(parse_stages(text)) == list(stages)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "a load is a number of requests in flight"),
        ("1,", "a load is a number of requests in flight"),
        ("0", "a load is a number of requests in flight"),
        ("1.5", "a load is a number of requests in flight"),
        ("0/s", "a load is a number of requests in flight"),
        ("nan/s", "a load is a number of requests in flight"),
        ("inf/s", "a load is a number of requests in flight"),
        ("2 /s", "a load is a number of requests in flight"),
        ("1000000001", "a load is a number of requests in flight"),
        ("1" + 5000 * "0", "a load is a number of requests in flight"),
        ("8:0", "an amount is a number of prompts"),
        ("8:", "an amount is a number of prompts"),
        ("8:0s", "an amount is a number of prompts"),
        ("8:s", "an amount is a number of prompts"),
        ("8:5s5m", "an amount is a number of prompts"),  # the larger unit first
        ("8:-5", "an amount is a number of prompts"),
        ("8:" + 400 * "9" + "h", "an amount is a number of prompts"),
        ("1-16", "a ramp needs a time, such as 1-16:60s"),
        ("1-16:64", "a ramp needs a time, such as 1-16:60s"),
        ("1-2/s:60s", "both ends of a ramp must be rates, or neither"),
        ("spike:4:30s", "a spike looks like spike:4-32:30s"),
        ("spike:4-32:64", "a spike looks like spike:4-32:30s"),
        ("spike:4-32", "an amount is a number of prompts"),
        ("spike:4-32/s:30s", "both loads of a spike must be rates, or neither"),
        ("soak:8:64", "a soak looks like soak:8:1h"),
        ("soak:8", "an amount is a number of prompts"),
        ("soak", "a load is a number of requests in flight"),
    ],
)
def test_what_is_no_stage_is_reported_in_a_sentence_with_the_reason(
    text: str, why: str
) -> None:
    """It shows what would be right, and which part is not."""
    with pytest.raises(ValueError, match=r"; write 1,8,16 or ") as raised:
        parse_stages(text)
    assert f"--stages {text.rpartition(',')[2]!r} is not valid: {why}" in str(
        raised.value
    )


@given(st.one_of(nearly, st.text()))
@example(
    "8:" + 5000 * "9"
)  # Python refuses to read that many digits, with its own message
@example("1-" + 400 * "9" + ":60s")
@example("1-\n16:60s")
def test_any_text_parses_or_is_one_sentence(text: str) -> None:
    """Whatever parses has loads and amounts that can be run, and names that stand in one line."""
    try:
        stages = parse_stages(text)
    except ValueError as error:
        assert str(error).startswith("--stages ")
        assert "\n" not in str(error)
        return
    assert stages
    for stage in stages:
        is_sound(stage)


@given(st.lists(elements, min_size=1, max_size=8).map(",".join))
def test_whatever_parses_can_be_run_and_has_a_unique_name(text: str) -> None:
    """Either users or a rate, above 0; a count or a time, above 0, or neither; the first stage
    follows none."""
    stages = parse_stages(text)
    names = [stage.name for stage in stages]
    assert len(set(names)) == len(names)
    assert not stages[0].goes_on
    for stage in stages:
        is_sound(stage)


def is_sound(stage: Stage) -> None:
    assert (stage.users is None) != (stage.rate_rps is None)
    for amount in (
        stage.users,
        stage.rate_rps,
        stage.start,
        stage.count,
        stage.seconds,
    ):
        assert amount is None or 0 < amount < math.inf
    assert stage.count is None or stage.seconds is None
    assert stage.start is None or stage.seconds is not None
    assert stage.seconds is not None or not stage.goes_on
    assert stage.name.splitlines() == [stage.name.strip()]


def test_a_load_that_comes_again_is_numbered() -> None:
    """So that --fail-if can name each of them."""
    assert [stage.name for stage in parse_stages("1,8,1,1:30s")] == [
        "1",
        "8",
        "1 (2)",
        "1 (3)",
    ]
    names = [stage.name for stage in parse_stages("spike:4-8:1s,spike:4-9:1s")]
    assert names == [
        "4 before",
        "8 spike",
        "4 after",
        "4 before (2)",
        "9 spike",
        "4 after (2)",
    ]


@pytest.mark.parametrize(
    ("elapsed_s", "users"),
    [(-1, 1), (0, 1), (2, 2), (30, 9), (58, 16), (60, 16), (600, 16)],
)
def test_a_ramp_goes_from_its_start_to_its_end(elapsed_s: float, users: int) -> None:
    """1 to 16 in 60 s rises by 0.25 a second, from half to half: at 2 s 1.5 -> 2, at 30 s 8.5 -> 9,
    at 58 s 15.5 -> 16."""
    (ramp,) = parse_stages("1-16:60s")
    assert ramp.users_at(elapsed_s) == users


@given(ends, st.floats(0.001, 1e6), st.lists(st.floats(0, 1), min_size=2).map(sorted))
def test_a_ramp_never_turns_back(
    ends_: tuple[int, int], seconds: float, shares: list[float]
) -> None:
    """It begins and ends where it says, and is between the two and monotonic on its way."""
    start, end = ends_
    ramp = Stage(name="r", users=end, start=start, seconds=seconds)
    found = [ramp.users_at(share * seconds) for share in shares]
    assert found == sorted(found, reverse=start > end)
    assert all(min(ends_) <= users <= max(ends_) for users in found)
    assert (ramp.users_at(0.0), ramp.users_at(seconds)) == (start, end)


def test_without_a_ramp_the_load_stays() -> None:
    """A rate limits nothing."""
    (level, rate) = parse_stages("8:30s,2/s:30s")
    assert {level.users_at(at) for at in (0, 15, 100)} == {8}
    assert rate.users_at(0) is None


# Shapes

LOCUSTFILE = """\
from locust import LoadTestShape
from llama_load.loadgen.swarm.load_shapes import Ramp, Soak, Spike, Stages


class Load({base}):
    {body}
"""
# What Locust finds in each file, and what that says; in a separate process, as Locust patches its
# whole process.
LOOK = """\
import sys
from locust.util.load_locustfile import load_locustfile
from llama_load.loadgen.schedule.stages import parse_stages
for file in sys.argv[1:]:
    _, shapes = load_locustfile(file)
    print(*((type(shape).__name__, shape.text(), len(parse_stages(shape.text())), shape.tick()) for shape in shapes))
"""
SHAPES = {
    ("object", "pass"): "",
    ("Stages", 'stages = "1,8,16"'): "('Load', '1,8,16', 3, (1, 1))",
    ("Ramp", "pass"): "('Load', '1-16:60s', 1, (1, 1))",
    (
        "Ramp",
        'start, end, time = "1/s", "10/s", "30s"',
    ): "('Load', '1/s-10/s:30s', 1, (1, 1))",
    ("Spike", "pass"): "('Load', 'spike:4-32:30s', 3, (1, 1))",
    (
        "Spike",
        'level, peak, time = "2", "8", "1m"',
    ): "('Load', 'spike:2-8:1m', 3, (1, 1))",
    ("Soak", "pass"): f"('Load', 'soak:8:1h', {SOAK_WINDOWS}, (1, 1))",
    ("Soak", "abstract = True"): "",
}


def test_locust_takes_a_subclass_for_the_load_and_not_what_was_imported(
    tmp_path: Path,
) -> None:
    """All four are imported every time; two shapes in a file would be an error to Locust."""
    files = []
    for number, (base, body) in enumerate(SHAPES):
        files.append(tmp_path / f"shaped{number}.py")
        files[-1].write_text(LOCUSTFILE.format(base=base, body=body), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", LOOK, *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == list(SHAPES.values())
