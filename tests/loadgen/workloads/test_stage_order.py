"""Prompts in a run of stages: the same prompts, in an order that gives every stage like lengths."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_load.loadgen.schedule.segments import LoadModel, plan_segments, stage_counts
from llama_load.loadgen.schedule.stages import parse_stages
from llama_load.loadgen.workloads.mixed import Mixed
from llama_load.loadgen.workloads.prompt_plan import Plan, PlanRequest, Traffic
from llama_load.loadgen.workloads.sharegpt import ShareGPT
from llama_load.loadgen.workloads.stage_order import in_stages
from llama_load.loadgen.workloads.synthetic import Synthetic
from llama_load.servers.counting import EstimatedCounter
from llama_load.servers.prompt import Prompt
from tests.conftest import Finished, Simulated
from tests.make_records import facts


def sharegpt(count: int, turns: int = 1) -> Plan:
    traffic = Traffic(turns=turns)
    wanted = PlanRequest(
        num_prompts=count,
        fill=True,
        warmup=2,
        seed=3,
        counter=EstimatedCounter(),
        traffic=traffic,
    )
    return ShareGPT().plan(wanted)


def parts(plan: Plan, counts: Sequence[int]) -> list[list[Prompt]]:
    ends = np.cumsum(counts)
    return [
        plan.measured[end - count : end]
        for end, count in zip(ends, counts, strict=True)
    ]


def means(plan: Plan, counts: Sequence[int]) -> list[tuple[float, float]]:
    return [
        (
            float(np.mean([p.prompt_tokens for p in part])),
            float(np.mean([p.max_tokens for p in part])),
        )
        for part in parts(plan, counts)
    ]


def spread(values: Sequence[float]) -> float:
    return (max(values) - min(values)) / max(values)


@pytest.mark.parametrize("counts", [[16, 16, 16], [16, 64, 128], [40, 40]])
def test_stages_get_as_many_tokens_a_prompt_as_each_other(counts: list[int]) -> None:
    """Input and output within 1 %, where the data's own order has them apart by 20 to 60 %; and no
    prompt lost."""
    plan = sharegpt(sum(counts))
    ordered = in_stages(plan, counts, seed=1)
    assert (
        max(spread(list(side)) for side in zip(*means(plan, counts), strict=True))
        > 0.04
    )
    assert (
        max(spread(list(side)) for side in zip(*means(ordered, counts), strict=True))
        < 0.01
    )
    assert sorted(prompt.text for prompt in ordered.measured) == sorted(
        prompt.text for prompt in plan.measured
    )
    assert ordered.warmup == plan.warmup


def test_stages_share_the_distribution_and_not_only_the_sum() -> None:
    draw = random.Random(2)
    plan = Plan(
        [
            Prompt(str(number), int(draw.lognormvariate(5, 1)), 10)
            for number in range(300)
        ],
        [],
        facts(),
    )
    quartiles = [
        np.percentile([p.prompt_tokens for p in part], [25, 50, 75])
        for part in parts(in_stages(plan, [100] * 3, 1), [100] * 3)
    ]
    assert np.ptp(quartiles, axis=0) / np.mean(quartiles, axis=0) == pytest.approx(
        0, abs=0.06
    )


def test_within_a_stage_lengths_come_in_a_drawn_order() -> None:
    """No stage begins with its longest prompts: the seed shuffles, and gives the same order
    again."""
    plan, counts = sharegpt(96), [48, 48]
    ordered = in_stages(plan, counts, 1)
    assert ordered == in_stages(plan, counts, 1) != in_stages(plan, counts, 2)
    for part in parts(ordered, counts):
        lengths = [prompt.prompt_tokens for prompt in part]
        assert abs(np.corrcoef(range(48), lengths)[0, 1]) < 0.5


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=40),
    st.lists(st.integers(1, 30), min_size=1, max_size=4),
    st.integers(0, 99),
)
def test_conversations_stay_together_in_a_stage(
    sizes: list[int], weights: list[int], seed: int
) -> None:
    """Whatever their turns and the stages are, every turn is sent once, in order, and none crosses
    a stage's end."""
    draw = random.Random(seed)
    chats = [
        [
            Prompt(
                f"{chat}.{turn}",
                draw.randint(1, 900),
                draw.randint(1, 99),
                str(chat),
                turn + 1,
                more=size - 1 - turn,
            )
            for turn in range(size)
        ]
        for chat, size in enumerate(sizes)
    ]
    measured = [prompt for chat in chats for prompt in chat]
    cuts = sorted(draw.randint(0, len(measured)) for _ in weights[1:])
    counts = [count for count in np.diff([0, *cuts, len(measured)]).tolist() if count]
    ordered = in_stages(Plan(measured, [], facts()), counts, seed)
    assert sorted(prompt.text for prompt in ordered.measured) == sorted(
        prompt.text for prompt in measured
    )
    for part in parts(ordered, counts):
        expected: Prompt | None = None
        for prompt in part:
            if expected is not None and expected.more:
                assert (prompt.conversation, prompt.turn, prompt.more) == (
                    expected.conversation,
                    expected.turn + 1,
                    expected.more - 1,
                )
            expected = prompt
        assert expected is not None
        assert not expected.more


def test_turns_of_real_conversations_are_as_even() -> None:
    counts = [24, 24, 24]
    ordered = in_stages(sharegpt(72, turns=3), counts, 1)
    assert (
        max(spread(list(side)) for side in zip(*means(ordered, counts), strict=True))
        < 0.03
    )


def test_tasks_of_a_mixture_keep_their_places() -> None:
    wanted = PlanRequest(
        num_prompts=48,
        fill=True,
        warmup=0,
        seed=4,
        counter=EstimatedCounter(),
        traffic=Traffic(
            weights={"short": 2.0, "long": 1.0}, input_len=300, range_ratio=0.9
        ),
    )
    plan, counts = Mixed(short=ShareGPT(), long=Synthetic()).plan(wanted), [24, 24]
    ordered = in_stages(plan, counts, 1)
    assert [prompt.task for prompt in ordered.measured] == [
        prompt.task for prompt in plan.measured
    ]
    assert spread([mean for mean, _ in means(plan, counts)]) > 0.03
    assert spread([mean for mean, _ in means(ordered, counts)]) < 0.02


def test_prompts_of_one_length_keep_the_order_of_the_workload() -> None:
    plan = Plan(
        [Prompt(str(number), 1000 + number % 10, 128) for number in range(50)],
        [],
        facts(),
    )
    assert in_stages(plan, [25, 25], 1).measured == plan.measured


def test_where_a_time_ends_the_stages_every_window_is_alike() -> None:
    """Of 512 prompts in order every 64 in a row have nearly the mean length; drawn at random they
    do not."""
    draw = random.Random(5)
    plan = Plan(
        [
            Prompt(str(number), int(draw.lognormvariate(5, 1)), 10)
            for number in range(512)
        ],
        [],
        facts(),
    )
    ordered = in_stages(plan, None, 1)
    windows = [64] * 8
    assert spread([mean for mean, _ in means(plan, windows)]) > 0.3
    assert spread([mean for mean, _ in means(ordered, windows)]) < 0.2
    assert sorted(prompt.text for prompt in ordered.measured) == sorted(
        prompt.text for prompt in plan.measured
    )


@pytest.mark.parametrize(
    ("stages", "num_prompts", "run_time_s", "counts"),
    [
        ("1,2:30,4", 10, None, [10, 30, 10]),
        ("2/s:20,10/s:3s", None, None, [20, 30]),
        ("spike:2/s-8/s:2s", None, None, [4, 16, 4]),
        ("1:30s,2", 10, None, None),
        ("1,2", 10, 5.0, None),
    ],
)
def test_how_many_requests_the_stages_send(
    stages: str,
    num_prompts: int | None,
    run_time_s: float | None,
    counts: list[int] | None,
) -> None:
    model = LoadModel(stages=parse_stages(stages), process="constant")
    assert stage_counts(plan_segments(model, num_prompts, run_time_s)) == counts


def test_a_run_of_stages_sends_prompts_of_like_lengths(
    simulate: Callable[..., Simulated], run_locust: Callable[..., Finished]
) -> None:
    done = run_locust(
        simulate("--first-token-ms", "2").url,
        "--stages",
        "2:16,4:32",
        "--max-tokens",
        "1",
        "--warmup",
        "1",
    )
    assert done.code == 0, done.err
    measured = done.records.measured()
    assert len(set(measured.strings("prompt_sha256"))) == 48
    chars = [
        measured.where(measured.equals("stage", stage)).numbers("prompt_chars").mean()
        for stage in (0, 1)
    ]
    assert spread(chars) < 0.12, chars  # characters follow tokens
