"""The judge's arithmetic, on a log written down here: a client that is late is seen to be late by
that much."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from truth.arrivals import arrivals
from truth.log import Entry
from truth.matching import errors, own_entries, rate_errors
from truth.result import Result, Seen

MS = 1_000_000
TOKENS = 11


def entry(
    number: int,
    received_ms: float,
    first_ms: float = 100,
    gap_ms: float = 20,
    outcome: str = "ok",
) -> Entry:
    """A request of the log."""
    sent = [
        round((received_ms + first_ms + gap_ms * token) * MS) for token in range(TOKENS)
    ]
    return Entry(
        number=number,
        request_id=f"id-{number}",
        outcome=outcome,
        received_ns=round(received_ms * MS),
        sent_ns=tuple(sent),
        ended_ns=sent[-1],
    )


def seen(number: int, late_ms: float = 0, gap_late_ms: float = 0, **by: Any) -> Seen:
    """What a client reports of such a request: each time `late_ms` after it was sent, the last gap
    `gap_late_ms` longer."""
    gaps = [20.0] * (TOKENS - 2) + [20.0 + gap_late_ms]
    e2el = 100 + late_ms + sum(gaps)
    keys: dict[str, Any] = by or {"number": number}
    return Seen(
        ttft_ms=100 + late_ms,
        tpot_ms=sum(gaps) / len(gaps),
        e2el_ms=e2el,
        itl_ms=gaps,
        **keys,
    )


LOG = [entry(number, number * 50) for number in range(1, 21)]


@pytest.mark.parametrize("late_ms", [5.0, -5.0, 0.0])
def test_a_client_that_is_late_by_5_ms_is_seen_late_by_5_ms(late_ms: float) -> None:
    found = errors([seen(number, late_ms) for number in range(1, 21)], LOG)
    for name in ("ttft", "e2el"):
        assert (found[name].p50, found[name].p99) == pytest.approx(
            (abs(late_ms), abs(late_ms)), abs=1e-6
        )
        assert (
            found[name].middle == pytest.approx(late_ms, abs=1e-6)
            and found[name].matched
        )
    assert found["itl"].p99 == found["tpot"].p99 == pytest.approx(0, abs=1e-6)


def test_one_late_request_of_20_is_in_p99_and_not_in_the_median() -> None:
    """The differences are 19 times 0 and once 50: p99 by linear interpolation is at place 18.81 of
    0 to 19, so 0.81 x 50."""
    found = errors(
        [seen(number, 50 if number == 7 else 0) for number in range(1, 21)], LOG
    )["ttft"]
    assert (found.p50, found.p99) == pytest.approx((0, 0.81 * 50), abs=1e-6)


def test_a_late_gap_is_an_error_of_itl_and_in_tpot_a_tenth_of_it() -> None:
    found = errors([seen(number, gap_late_ms=30) for number in range(1, 21)], LOG)
    assert found["itl"].compared == 20 and found["itl"].p99 == pytest.approx(
        30, abs=1e-6
    )
    assert found["tpot"].p50 == pytest.approx(3, abs=1e-6)


def test_records_are_matched_by_number_or_by_the_id_of_the_request() -> None:
    """In any order. With the wrong partners the latencies would differ: each request of this log is
    slower than the last."""
    log = [entry(number, 0, first_ms=100 + 10 * number) for number in range(1, 9)]
    by_number = [
        Seen(number=number, ttft_ms=100 + 10 * number)
        for number in (3, 1, 8, 2, 7, 6, 5, 4)
    ]
    by_id = [
        Seen(request_id=f"id-{number}", ttft_ms=100 + 10 * number)
        for number in (8, 7, 6, 5, 1, 2, 3, 4)
    ]
    for requests in (by_number, by_id):
        found = errors(requests, log)["ttft"]
        assert (found.compared, found.p99) == (8, pytest.approx(0, abs=1e-6))
    swapped = [
        Seen(number=number % 8 + 1, ttft_ms=100 + 10 * number) for number in range(1, 9)
    ]
    assert errors(swapped, log)["ttft"].p50 == pytest.approx(10)


def test_without_names_distributions_are_compared_and_the_error_has_that() -> None:
    found = errors([Seen(ttft_ms=105.0) for _ in range(20)], LOG)["ttft"]
    assert not found.matched and (found.p50, found.p99) == pytest.approx((5, 5))
    assert errors([Seen(ttft_ms=105.0)], LOG).keys() == {"ttft"}


def test_gaps_that_are_not_those_of_the_tokens_are_not_compared() -> None:
    merged = Seen(number=1, ttft_ms=100, itl_ms=[40.0] * 5)
    assert errors([merged], LOG).keys() == {"ttft"}


def test_a_wrong_rate_is_seen() -> None:
    """Requests 1 to 20 come every 50 ms, and the last token 300 ms after the last of them: 20 in
    1.25 s is 16/s, 176 tokens/s."""
    requests = [seen(number) for number in range(1, 21)]
    right = rate_errors(
        Result(requests, {"request_rps": 16.0, "output_tok_per_s": 176.0}), LOG
    )
    assert right == pytest.approx({"request_rps": 0, "output_tok_per_s": 0}, abs=1e-9)
    wrong = rate_errors(
        Result(requests, {"request_rps": 17.6, "output_tok_per_s": 88.0}), LOG
    )
    assert wrong == pytest.approx(
        {"request_rps": 0.1, "output_tok_per_s": -0.5}, abs=1e-9
    )


def test_the_warm_up_is_in_no_rate() -> None:
    """It came ten seconds earlier, and the client does not report it."""
    log = [entry(0, -10_000), *LOG]
    assert rate_errors(
        Result([seen(n) for n in range(1, 21)], {"request_rps": 16.0}), log
    )["request_rps"] == pytest.approx(0)


def log_at(times_s: Sequence[float]) -> list[dict[str, Any]]:
    return [entry(number, at * 1e3) for number, at in enumerate(times_s)]


def test_a_poisson_process_differs_from_an_even_one() -> None:
    """The standard error of the coefficient of variation of 2,000 gaps is 0.02."""
    draw = random.Random(1)
    poisson = log_at(np.cumsum([draw.expovariate(20) for _ in range(2001)]).tolist())
    found = arrivals([], poisson, 20)
    assert (
        abs(found["gap_cv"] - 1) < 0.1
        and abs(found["gap_autocorrelation"]) < 0.1
        and abs(found["count_dispersion"] - 1) < 0.4
    )
    assert abs(found["rate_error"]) < 0.1
    even = arrivals([], log_at([number / 20 for number in range(2001)]), 20)
    assert (
        even["gap_cv"] < 0.001
        and even["count_dispersion"] < 0.01
        and abs(even["rate_error"]) < 0.001
    )
    assert arrivals([], log_at([number / 10 for number in range(2001)]), 20)[
        "rate_error"
    ] == pytest.approx(-0.5, abs=0.001)


def test_ten_processes_with_the_same_seed_are_no_poisson_process() -> None:
    """Each sends at the same times: ten requests at once, then a long gap."""
    draw = random.Random(1)
    times = np.cumsum([draw.expovariate(2) for _ in range(200)])
    found = arrivals(
        [],
        log_at(
            np.sort(
                np.concatenate([times + 0.001 * place for place in range(10)])
            ).tolist()
        ),
        20,
    )
    assert found["gap_cv"] > 2 and found["count_dispersion"] > 5


def test_too_few_requests_have_no_arrival_process() -> None:
    assert arrivals([], log_at([0.0, 1.0]), 20) == {}
    assert arrivals([], [], 20) == {}


def test_requests_without_a_number_are_the_last_that_were_answered() -> None:
    """A probe, three answers, a cut one. Of three reported requests one has no number, as an answer
    without text: the probe is none of them."""
    log = [Entry(n, n * 100, (n * 100 + 50,)) for n in (1, 2, 3, 4)]
    log.append(Entry(5, 500, (550,), outcome="cut"))
    reported = [Seen(number=2), Seen(number=None), Seen(number=4)]
    assert [entry.number for entry in own_entries(reported, log)] == [2, 3, 4]
    assert [entry.number for entry in own_entries(reported[:1], log)] == [2]
    assert [entry.number for entry in own_entries([], log)] == [1, 2, 3, 4]
