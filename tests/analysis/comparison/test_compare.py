"""Which differences are called real, which sides are ranked, and what gates say."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from benchmarks.power import correlated_sides, found, gate_outcomes
from llama_load.analysis.comparison.compare import (
    BETTER,
    MISSING,
    NOT_PROVEN,
    NOT_RANKED,
    ONE_RUN,
    TOO_FEW,
    WORSE,
    Comparison,
    compare,
)
from llama_load.analysis.comparison.gates import FAILED, NOT_JUDGED, PASSED, parse_gate
from llama_load.analysis.comparison.side import Side
from llama_load.ground.errors import UsageError
from tests.analysis.comparison.sides import FIGURES, run, scattered, side

ALARMS = (BETTER, WORSE)


def outcomes(comparison: Comparison) -> dict[str, str]:
    return {key: change.outcome for (key, _), change in comparison.changes.items()}


# ---------------------------------------------------------------------- real or not


def test_twenty_pairs_of_equal_sides_raise_at_most_two_alarms() -> None:
    """With at most 5 % false alarms a pair, three or more of 20 come once in 13 times; figures of a
    run vary together, so less."""
    rng = random.Random(2)
    pairs = [
        compare([scattered("a", 5, rng), scattered("b", 5, rng)]) for _ in range(60)
    ]
    alarms = [any(each in ALARMS for each in outcomes(pair).values()) for pair in pairs]
    assert all(sum(alarms[start : start + 20]) <= 2 for start in (0, 20, 40))


def test_a_difference_of_ten_percent_is_found_with_five_repeats() -> None:
    """In 18 of 20 pairs or more, where runs scatter by 2 %."""
    rng = random.Random(7)
    found = 0
    for _ in range(20):
        pair = outcomes(
            compare(
                [scattered("a", 5, rng, 0.02), scattered("b", 5, rng, 0.02, slower=1.1)]
            )
        )
        found += pair["mean_tpot_ms"] == WORSE and pair["output_throughput"] == WORSE
    assert found >= 18


def test_a_drift_between_the_repeats_is_no_difference() -> None:
    """Runs that get slower by 3 % each, on both sides: their scatter is large, the sides are
    equal."""
    rng = random.Random(3)
    assert set(
        outcomes(
            compare(
                [scattered("a", 5, rng, drift=0.03), scattered("b", 5, rng, drift=0.03)]
            )
        ).values()
    ) == {NOT_PROVEN}


def test_without_repeats_nothing_is_proven() -> None:
    comparison = compare([side("a"), side("b", run(values={"mean_tpot_ms": 40.0}))])
    assert (
        set(outcomes(comparison).values()) == {ONE_RUN} and not comparison.has_repeats
    )
    assert (
        comparison.changes["mean_tpot_ms", 1].ratio == 2
        and comparison.changes["mean_tpot_ms", 1].interval is None
    )


def test_energy_and_cost_are_compared_where_they_were_measured() -> None:
    """Three decimals of joules per token: 0.131 is better than 0.134."""
    both = [
        side("a", run(values={"joules_per_output_token": 0.134})),
        side("b", run(values={"joules_per_output_token": 0.131})),
    ]
    comparison = compare(both)
    assert comparison.changes["joules_per_output_token", 1].outcome == ONE_RUN
    assert comparison.best["joules_per_output_token"] == {1}


def test_the_direction_of_better_is_that_of_the_metric() -> None:
    rng = random.Random(5)
    found = outcomes(
        compare([scattered("a", 5, rng), scattered("b", 5, rng, slower=0.8)])
    )
    assert found["mean_ttft_ms"] == BETTER and found["output_throughput"] == BETTER


def test_a_metric_of_one_side_only_is_not_compared() -> None:
    found = outcomes(compare([side("a"), side("b", run(values={"mean_itl_ms": None}))]))
    assert found["mean_itl_ms"] == MISSING and found["mean_ttft_ms"] == ONE_RUN


def test_a_percentile_of_too_few_values_is_not_judged() -> None:
    """P99 of 64 requests is nearly their maximum; of their gaps there are 12736."""
    both = [
        side(name, run(values={"p99_ttft_ms": 300.0, "p99_itl_ms": 60.0}))
        for name in "ab"
    ]
    found = outcomes(compare(both))
    assert found["p99_ttft_ms"] == TOO_FEW and found["p99_itl_ms"] == ONE_RUN


# ---------------------------------------------------------------------- ranking

PARTIAL = run(planned=64, values={"completed": 36, "failed": None, "mean_tpot_ms": 1.0})


def test_a_side_with_failures_is_shown_and_never_best() -> None:
    """36 of 64, although only the number sent tells that the others failed."""
    comparison = compare(
        [
            side("a"),
            side("b", run(values={"mean_tpot_ms": 30.0})),
            side("partial", PARTIAL),
        ]
    )
    assert comparison.best["mean_tpot_ms"] == {0} and comparison.is_unreliable(2)
    assert "only 36 of 64 requests were answered" in comparison.reasons[0].text
    assert comparison.changes["mean_tpot_ms", 2].outcome == NOT_RANKED


def test_the_only_side_left_is_not_the_best_of_one() -> None:
    assert (
        compare([side("a"), side("partial", PARTIAL)]).best["mean_tpot_ms"]
        == frozenset()
    )


def test_sides_that_agree_as_shown_are_both_best() -> None:
    comparison = compare(
        [side("a"), side("b", run(values={"request_throughput": 6.402}))]
    )
    assert comparison.best["request_throughput"] == {0, 1}


def test_durations_of_different_numbers_of_requests_are_not_ranked() -> None:
    more = {
        "completed": 65,
        "total_input_tokens": 6500,
        "total_output_tokens": 13000,
        "duration": 11.0,
    }
    assert compare([side("a"), side("b", run(values={"duration": 9.0}))]).best[
        "duration"
    ] == {1}
    assert (
        compare([side("a"), side("b", run(values=more))]).best["duration"]
        == frozenset()
    )


@pytest.mark.parametrize(
    ("base", "other", "why"),
    [
        (
            {},
            {"values": {"total_output_tokens": 13100}},
            "answers of 200 and 205 tokens",
        ),
        ({}, {"values": {"total_input_tokens": 6600}}, "prompts of 100 and 103 tokens"),
        (
            {"prompts": frozenset("abc")},
            {"prompts": frozenset("abx")},
            "different prompts (67% in common)",
        ),
        (
            {"cached_tokens": 0},
            {"cached_tokens": 640},
            "0% and 10% of the prompt tokens came from a cache",
        ),
        ({}, {"words": ("CLIENT-BOUND",), "why": "late"}, "b: late"),
        ({}, {"words": ("NOT COMPARABLE", "BLURRED")}, "b: NOT COMPARABLE"),
    ],
)
def test_what_is_not_comparable_is_not_ranked(
    base: dict[str, object], other: dict[str, object], why: str
) -> None:
    comparison = compare([side("a", run(**base)), side("b", run(**other))])
    assert why in comparison.reasons[0].text
    assert (
        comparison.changes["mean_ttft_ms", 1].outcome == NOT_RANKED
        and comparison.best["mean_ttft_ms"] == frozenset()
    )


LENGTHS = {"total_input_tokens": 6450}  # 0.8 % longer


@pytest.mark.parametrize(
    ("base", "other", "why"),
    [
        (
            {"load": {"concurrency": "4"}},
            {"load": {"concurrency": "8"}},
            "different loads: concurrency 4 and 8",
        ),
        (
            {"load": {"request rate": "2"}},
            {"load": {"request rate": "8"}},
            "different loads: request rate 2 and 8",
        ),
        (
            {"load": {"request rate": "2"}},
            {"load": {"request rate": "inf"}},
            "different loads: request rate 2 and inf",
        ),
        (
            {"endpoint": "chat"},
            {"endpoint": "completions"},
            "different endpoints: chat and completions",
        ),
        (
            {"plan": "x"},
            {"plan": "y"},
            "different prompts, by their data sets, seeds and flags",
        ),
        (
            {},
            {"values": LENGTHS},
            "the same prompts is not known: their hashes are not, and their mean lengths differ",
        ),
        (
            {"prompts": frozenset("abc")},
            {"values": LENGTHS},
            "the same prompts is not known",
        ),
        (
            {"values": {"total_input_tokens": None}},
            {"values": {"total_input_tokens": None}},
            "neither their hashes nor their lengths are",
        ),
        (
            {},
            {"values": {"total_output_tokens": None}},
            "the lengths of the answers of b are not known, those of a are",
        ),
    ],
)
def test_another_load_or_unknown_prompts_are_not_ranked_and_fail_no_gate(
    base: dict[str, object], other: dict[str, object], why: str
) -> None:
    """Five runs of a side that is half as fast, because it had twice the users, say."""
    rng = random.Random(3)
    sides = [
        Side(
            label,
            [
                replace(each, **changed, values={**each.values, **values})
                for each in scattered(label, 5, rng, slower=slower).runs
            ],
        )
        for label, slower, changed, values in (
            (
                label,
                slower,
                {name: value for name, value in changed.items() if name != "values"},
                changed.get("values", {}),
            )
            for label, slower, changed in (("a", 1.0, base), ("b", 2.0, other))
        )
    ]
    comparison = compare(sides, [parse_gate("mean_ttft_ms:+5%")])
    assert why in comparison.reasons[0].text
    assert set(outcomes(comparison).values()) == {NOT_RANKED}
    assert comparison.gates[0].outcome == NOT_JUDGED and not any(
        comparison.best.values()
    )


def test_the_same_plan_of_prompts_or_the_same_lengths_are_ranked() -> None:
    """Prompts with random beginnings, and texts that hold no hashes."""
    assert not compare([side("a", run(plan="x")), side("b", run(plan="x"))]).reasons
    assert not compare(
        [side("a", run(load={"concurrency": "4"})), side("b", run())]
    ).reasons


def test_a_run_cut_by_time_sent_fewer_of_the_same_prompts() -> None:
    few, many = frozenset("abc"), frozenset("abcdef")
    assert not compare(
        [side("a", run(prompts=few)), side("b", run(prompts=many))]
    ).reasons


@pytest.mark.parametrize(
    ("changed", "key"),
    [({"words": ("BLURRED",)}, "mean_itl_ms"), ({"reused_ratio": 1.0}, "mean_ttft_ms")],
)
def test_what_spoils_one_latency_spoils_no_other(
    changed: dict[str, object], key: str
) -> None:
    """Blurred gaps; connections opened for every request on one side only (5 of 100 ms)."""
    found = outcomes(
        compare(
            [
                side("a", run(reused_ratio=0.0, connect_ms=5.0)),
                side("b", run(**({"reused_ratio": 0.0} | changed))),
            ]
        )
    )
    assert found[key] == NOT_RANKED and found["mean_tpot_ms"] == ONE_RUN


def test_a_fast_connect_does_not_matter() -> None:
    """0.1 ms of 100 ms."""
    assert not compare(
        [
            side("a", run(reused_ratio=0.0, connect_ms=0.1)),
            side("b", run(reused_ratio=1.0)),
        ]
    ).reasons


def test_another_machine_of_the_client_spoils_ttft_alone() -> None:
    """Its way to the server is part of every first token, and of no gap. Where machines are not
    known nothing is said."""
    comparison = compare([side("a", run(client="one")), side("b", run(client="other"))])
    found = outcomes(comparison)
    assert (
        found["mean_ttft_ms"] == found["median_ttft_ms"] == NOT_RANKED
        and found["mean_tpot_ms"] == ONE_RUN
    )
    assert (
        "the client ran on different machines (a on one, b on other)"
        in comparison.reasons[0].text
    )
    assert compare([side("a", run(client="one")), side("b", run())]).reasons == []


# ---------------------------------------------------------------------- gates


def gate(text: str, slower: float, count: int = 5, spread: float = 0.01) -> str:
    rng = random.Random(11)
    both = [
        scattered("a", count, rng, spread),
        scattered("b", count, rng, spread, slower=slower),
    ]
    (result,) = compare(both, [parse_gate(text)]).gates
    return result.outcome


def test_a_gate_fails_only_with_confidence() -> None:
    assert (
        gate("mean_tpot_ms:+5%", 1.2) == FAILED
        and gate("output_throughput:-5%", 1.2) == FAILED
    )
    assert gate("mean_tpot_ms:+5%", 1.0) == PASSED
    assert (
        gate("mean_tpot_ms:+5%", 0.5) == PASSED
        and gate("output_throughput:-5%", 0.5) == PASSED
    )


def test_a_gate_whose_interval_is_wider_than_itself_cannot_be_judged() -> None:
    """Whatever the change is; only where the whole interval lies within the limit or beyond it. Nor
    does one pass that is beyond its limit without confidence."""
    for slower in (1.0, 1.07, 0.9):
        assert gate("mean_tpot_ms:+5%", slower, count=2, spread=0.05) == NOT_JUDGED
    assert (
        gate("mean_tpot_ms:+5%", 0.2, spread=0.1) == PASSED
        and gate("mean_tpot_ms:+5%", 5.0, spread=0.1) == FAILED
    )
    rng = random.Random(11)
    (wide,) = compare(
        [scattered("a", 3, rng, 0.05), scattered("b", 3, rng, 0.05)],
        [parse_gate("mean_tpot_ms:+5%")],
    ).gates
    assert (
        wide.text.startswith("the interval is wider than the gate (about ")
        and "or worse would have failed (95 %)" in wide.text
    )
    (beyond,) = compare(
        [scattered("a", 5, rng), scattered("b", 5, rng, slower=1.06)],
        [parse_gate("mean_tpot_ms:+5%")],
    ).gates
    assert beyond.outcome == NOT_JUDGED and beyond.text.startswith(
        "beyond the limit, but not with confidence"
    )


def test_the_difference_that_would_have_been_found_is_found() -> None:
    """The one printed for 95 %, planted into the same runs, whose state lasts from one to the next:
    found in 19 of 20 pairs; with 95 % fewer than 20 of 24 come once in 170 times. The one for 80 %
    is found less often. A change of twice a gate's limit does not pass."""
    rng = random.Random(3)
    pairs = [correlated_sides("ABBAAB", rng, 0.02, 0.5) for _ in range(24)]
    surely, often = [
        sum(each) for each in zip(*(found(pair) for pair in pairs), strict=True)
    ]
    assert surely >= 20 and 14 <= often <= surely
    assert sum(gate_outcomes(pair, 1.05**2) == PASSED for pair in pairs) <= 3


def test_a_goodput_that_falls_to_zero_fails_a_gate() -> None:
    """The figure has no logarithm; one that was zero before and after is not judged."""

    def goodput(label: str, *values: float) -> Side:
        return side(
            label,
            *(
                run(date=f"{number}", values={"request_goodput": value})
                for number, value in enumerate(values)
            ),
        )

    def judged(*sides: Side) -> tuple[str, str]:
        comparison = compare(sides, [parse_gate("request_goodput:-5%")])
        return comparison.gates[0].outcome, comparison.changes[
            "request_goodput", 1
        ].outcome

    five, none = goodput("a", 5.0, 5.1, 4.9), goodput("b", 0.0, 0.0, 0.0)
    assert judged(five, none) == (FAILED, WORSE)
    assert judged(none, five) == (PASSED, BETTER)
    assert judged(none, none) == (NOT_JUDGED, NOT_PROVEN)  # a gate that cannot fail
    assert judged(five, goodput("c", 5.0, 0.0, 5.2)) == (NOT_JUDGED, NOT_PROVEN)
    assert (
        "5 to 0"
        in compare([five, none], [parse_gate("request_goodput:-5%")]).gates[0].text
    )


def test_a_gate_without_repeats_or_comparable_sides_is_not_judged() -> None:
    assert gate("mean_tpot_ms:+5%", 2.0, count=1) == NOT_JUDGED
    partial = Side("partial", (PARTIAL, PARTIAL))
    (result,) = compare(
        [side("a", run(), run()), partial], [parse_gate("mean_tpot_ms:5%")]
    ).gates
    assert result.outcome == NOT_JUDGED and result.text == "not comparable"
    (result,) = compare(
        [side("a", run(), run()), side("b", run(), run())],
        [parse_gate("p99_e2el_ms:5%")],
    ).gates
    assert result.outcome == NOT_JUDGED and "a has no p99_e2el_ms" in result.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("p99_ttft_ms", "takes KEY:\\+N%"),
        (
            "p99_ttft_ms:-5%",
            "lower is better for p99_ttft_ms: write --gate 'p99_ttft_ms:\\+5%'",
        ),
        (
            "output_throughput:+5%",
            "higher is better for output_throughput: write --gate 'output_throughput:-5%'",
        ),
        ("output_throughput:-100%", "cannot fall by 100 %"),
        ("total_input_tokens:+5%", "there is no metric 'total_input_tokens'"),
        (
            "ttft:+5%",
            "no metric 'ttft'; did you mean p99_ttft_ms, median_ttft_ms or mean_ttft_ms",
        ),
        ("zzz:+5%", "there is no metric 'zzz'; use one of summary.json"),
    ],
)
def test_a_wrong_gate_says_what_to_write(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_gate(text)


def test_figures_of_the_table_are_those_of_the_sides() -> None:
    two = side(
        "b", run(values={"mean_tpot_ms": 20.0}), run(values={"mean_tpot_ms": 22.0})
    )
    assert two.mean("mean_tpot_ms") == 21 and two.std("mean_tpot_ms") == pytest.approx(
        2**0.5
    )
    assert two.mean("request_throughput") == FIGURES["request_throughput"]
