"""Arrival schedules: vLLM's formula, the statistics of the gaps over many seeds, and ramps."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from llama_load.ground.errors import UsageError
from llama_load.loadgen.schedule.schedule import RateRamp, arrivals_s, for_time

# Every estimate below is tested to five of its standard deviations, which a sound schedule passes
# over with probability 5.7e-7 (two-sided; samples of this size are near enough to normal). There
# are some 3000 such checks: with other seeds the chance of any false alarm is below 1 in 500. With
# these, which are fixed, there is none.
SIGMAS = 5
SEEDS = range(20)
COUNT = 20_000
RATE = 40.0

PROCESSES: dict[
    str, tuple[dict[str, Any], float]
] = {  # parameters, and the shape of the gaps
    "poisson": ({}, 1.0),
    "bursts": ({"process": "gamma", "burstiness": 0.25}, 0.25),
    "even": ({"process": "gamma", "burstiness": 4.0}, 4.0),
}
ramps = st.builds(
    RateRamp,
    st.sampled_from(["linear", "exponential"]),
    st.floats(0.1, 1000),
    st.just(8.0),
)
parameters = st.one_of(
    st.fixed_dictionaries({"process": st.sampled_from(["poisson", "constant"])}),
    st.fixed_dictionaries(
        {"process": st.just("gamma"), "burstiness": st.floats(0.05, 50)}
    ),
)


def gaps(arrivals: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.diff(arrivals, prepend=0.0)


def cv(values: NDArray[np.float64]) -> float:
    return float(values.std() / values.mean())


def cv_deviation(shape: float, count: int) -> float:
    """The standard deviation of an estimated coefficient of variation of gamma gaps, by the delta
    method.

    c²/n ((excess + 2)/4 + c² - skewness c) with c = 1/sqrt(b), skewness 2/sqrt(b), excess 6/b;
    1/sqrt(n) for a Poisson process.
    """
    return math.sqrt((1 + shape) / (2 * count)) / shape


def lag_1(values: NDArray[np.float64]) -> float:
    deviations = values - values.mean()
    return float((deviations[1:] * deviations[:-1]).sum() / (deviations**2).sum())


def dispersion(arrivals: NDArray[np.float64], windows: int) -> float:
    """Variance / mean of the counts in this many windows of equal length."""
    counts, _ = np.histogram(arrivals, bins=windows, range=(0, arrivals[-1]))
    return float(counts.var(ddof=1) / counts.mean())


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("seed", SEEDS)
def test_gaps_have_the_mean_and_variation_of_their_process(
    process: str, seed: int
) -> None:
    changed, shape = PROCESSES[process]
    found = gaps(arrivals_s(COUNT, RATE, seed=seed, **changed))
    assert found.mean() == pytest.approx(1 / RATE)
    assert abs(cv(found) - 1 / math.sqrt(shape)) < SIGMAS * cv_deviation(shape, COUNT)


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("seed", SEEDS)
def test_gaps_do_not_depend_on_the_one_before(process: str, seed: int) -> None:
    """The estimate of no correlation has a standard deviation of 1/sqrt(n)."""
    changed, _ = PROCESSES[process]
    assert abs(
        lag_1(gaps(arrivals_s(COUNT, RATE, seed=seed, **changed)))
    ) < SIGMAS / math.sqrt(COUNT)


@pytest.mark.parametrize("windows", [100, 2000])
@pytest.mark.parametrize("seed", SEEDS)
def test_counts_of_poisson_arrivals_vary_as_much_as_they_are(
    seed: int, windows: int
) -> None:
    """N arrivals in a given time are N places drawn evenly: variance/mean is chi-squared / (windows
    - 1)."""
    found = dispersion(arrivals_s(COUNT, RATE, seed=seed), windows)
    assert abs(found - 1) < SIGMAS * math.sqrt(2 / (windows - 1))


@pytest.mark.parametrize("seed", SEEDS)
def test_poisson_gaps_are_exponential(seed: int) -> None:
    """Kolmogorov and Smirnov: the distance from 1 - exp(-x) passes 2.75/sqrt(n) with probability 2
    exp(-2 2.75²) = 5.4e-7."""
    levels = -np.expm1(-np.sort(gaps(arrivals_s(COUNT, RATE, seed=seed)) * RATE))
    steps = np.arange(COUNT + 1) / COUNT
    distance = max((steps[1:] - levels).max(), (levels - steps[:-1]).max())
    assert distance < 2.75 / math.sqrt(COUNT)


def test_constant_arrivals_are_even() -> None:
    found = arrivals_s(COUNT, RATE, seed=0, process="constant")
    assert found == pytest.approx(np.arange(1, COUNT + 1) / RATE)
    assert cv(gaps(found)) == pytest.approx(0, abs=1e-6)


def vllms_arrivals(
    count: int, rate: float, burstiness: float, seed: int, ramp: RateRamp | None
) -> list[float]:
    """The rules of vllm bench serve, written down from facts: one gap after the other, then a
    common factor."""
    draw = np.random.RandomState(seed)
    delays = []
    for i in range(count):
        now = rate
        if ramp is not None:
            progress = i / max(count - 1, 1)
            step, ratio = ramp.end_rps - ramp.start_rps, ramp.end_rps / ramp.start_rps
            now = (
                ramp.start_rps + step * progress
                if ramp.kind == "linear"
                else ramp.start_rps * ratio**progress
            )
        delays.append(draw.gamma(shape=burstiness, scale=1 / (now * burstiness)))
    elapsed = list(accumulate(delays))
    return (
        elapsed
        if ramp is not None
        else [delay * (count / rate / elapsed[-1]) for delay in elapsed]
    )


@pytest.mark.parametrize(
    "ramp",
    [
        None,
        RateRamp("linear", 0.5, 8),
        RateRamp("exponential", 0.5, 8),
        RateRamp("linear", 20, 8),
    ],
)
@pytest.mark.parametrize("burstiness", [0.3, 1, 2.5])
@pytest.mark.parametrize("count", [1, 2, 500])
def test_arrivals_are_those_of_vllm_bench_serve(
    count: int, burstiness: float, ramp: RateRamp | None
) -> None:
    """Its numpy seeded alike. It leaves the sum of a ramp's gaps as it comes; we keep the
    proportions, and the ramp's time."""
    process: Any = "poisson" if burstiness == 1 else "gamma"
    for seed in range(3):
        expected = np.array(vllms_arrivals(count, 8, burstiness, seed, ramp))
        if ramp is not None:
            expected *= ramp.span_s(count) / expected[-1]
        found = arrivals_s(
            count, 8, burstiness=burstiness, process=process, seed=seed, ramp=ramp
        )
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_seed_gives_the_same_arrivals_on_every_machine() -> None:
    np.testing.assert_allclose(
        arrivals_s(4, 2, seed=0), [0.42308663, 1.09073901, 1.58152413, 2.0], rtol=1e-7
    )
    bursts = arrivals_s(4, 2, seed=0, process="gamma", burstiness=0.25)
    np.testing.assert_allclose(
        bursts, [0.62220993, 1.52757808, 1.74852416, 2.0], rtol=1e-7
    )
    assert not np.array_equal(arrivals_s(4, 2, seed=0), arrivals_s(4, 2, seed=1))
    assert len(arrivals_s(4, 2, seed=-1)) == len(arrivals_s(4, 2, seed=2**70)) == 4


@given(st.integers(1, 300), st.integers(), parameters, st.none() | ramps)
def test_arrivals_ascend_and_end_when_they_should(
    count: int, seed: int, changed: dict[str, Any], ramp: RateRamp | None
) -> None:
    found = arrivals_s(count, 8.0, seed=seed, ramp=ramp, **changed)
    assert len(found) == count
    assert (gaps(found) >= 0).all()
    assert found[-1] == pytest.approx(count / 8 if ramp is None else ramp.span_s(count))


def test_extreme_bursts_are_still_a_schedule() -> None:
    """Where all gaps are too small for a float, all come at once; never NaN."""
    for burstiness in (1e-300, 1e-9, 1e-3, 1e9, 1e300):
        found = arrivals_s(100, 8, seed=0, process="gamma", burstiness=burstiness)
        assert np.isfinite(found).all()
        assert found[-1] <= 100 / 8 * (1 + 1e-12)


@pytest.mark.parametrize(
    ("kind", "rates"), [("linear", [1, 2.5, 4]), ("exponential", [1, 2, 4])]
)
def test_a_ramp_goes_from_rate_to_rate(kind: Any, rates: list[float]) -> None:
    ramp = RateRamp(kind, 1, 4)
    assert ramp.rates_rps(3) == pytest.approx(rates)
    assert gaps(
        arrivals_s(3, 4, process="constant", seed=0, ramp=ramp)
    ) == pytest.approx([1 / rate for rate in rates])
    assert RateRamp(kind, 4, 1).rates_rps(3) == pytest.approx(rates[::-1])


@pytest.mark.parametrize("kind", ["linear", "exponential"])
@pytest.mark.parametrize("process", PROCESSES)
def test_random_arrivals_follow_the_ramp(kind: Any, process: str) -> None:
    """The time that each tenth of the arrivals takes: the sum of its mean gaps m, a share f of the
    whole.

    Its variance is v = sum m²/b before all are brought to the ramp's time, then v (1 - 2f) + f² V,
    with V that of the whole.
    """
    changed, shape = PROCESSES[process]
    ramp = RateRamp(kind, 5, RATE)
    mean_gaps = (1 / ramp.rates_rps(COUNT)).reshape(10, -1)
    expected, variance = mean_gaps.sum(axis=1), (mean_gaps**2).sum(axis=1) / shape
    share = expected / expected.sum()
    deviations = np.sqrt(variance * (1 - 2 * share) + share**2 * variance.sum())
    for seed in SEEDS:
        found = gaps(arrivals_s(COUNT, RATE, seed=seed, ramp=ramp, **changed)).reshape(
            10, -1
        )
        assert (abs(found.sum(axis=1) - expected) < SIGMAS * deviations).all()


def test_a_run_for_some_time_gets_its_number_of_requests() -> None:
    assert for_time(10, 60) == 600
    assert for_time(0.3, 9) == 3
    # A linear ramp by place takes about (N-1) ln(b/a)/(b-a) + (1/a + 1/b)/2: 232 ln(10)/9 + 0.55 =
    # 59.9 s, and 60.16 s with 234.
    assert for_time(10, 60, ramp=RateRamp("linear", 1, 10)) == 233
    assert for_time(10, 60, ramp=RateRamp("linear", 10, 10)) == 600


@given(st.floats(2, 100), ramps)
def test_a_ramp_fits_its_time(seconds: float, ramp: RateRamp) -> None:
    try:
        count = for_time(ramp.end_rps, seconds, ramp=ramp)
    except UsageError:
        assert seconds < 1 / ramp.start_rps
        return
    assert ramp.span_s(count) <= seconds * (1 + 1e-8)
    assert ramp.span_s(count + 1) > seconds


def test_ramps_and_times_that_make_no_schedule_are_refused() -> None:
    with pytest.raises(UsageError, match="no request arrives within 10 s"):
        for_time(0.01, 10)
    with pytest.raises(UsageError, match=r"no request arrives within 0\.5 s"):
        for_time(8, 0.5, ramp=RateRamp("linear", 1, 8))
