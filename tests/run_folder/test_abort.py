"""Thresholds that end a run, and those on the verdict."""

from __future__ import annotations

import pytest

from llama_load.run_folder.vocabulary.abort import LEAST, RunningFigures, parse_abort
from llama_load.run_folder.vocabulary.thresholds import (
    VERDICT,
    evaluate,
    parse_threshold,
)


def figures(ok: int = 0, failed: int = 0, ttft_ms: float = 10.0) -> RunningFigures:
    found = RunningFigures()
    for _ in range(ok):
        found.add("ok", (ttft_ms, None, 20.0))
    for _ in range(failed):
        found.add("reset", (None, None, None))
    return found


def comes_true(found: RunningFigures, text: str) -> bool:
    return found.so_far().judge([parse_abort(text)]) is not None


def test_a_ratio_is_judged_once_there_is_enough_of_it() -> None:
    """One failure at the begin is 100 %, and no reason to end a run."""
    assert not comes_true(figures(failed=LEAST - 1), "failure_ratio>0.5")
    assert comes_true(figures(failed=LEAST), "failure_ratio>0.5")
    assert not comes_true(figures(ok=50, failed=50), "failure_ratio>0.5")
    assert comes_true(figures(ok=49, failed=51), "failure_ratio>0.5")
    assert comes_true(figures(ok=49, failed=51), "failed>=51")


def test_latencies_are_of_the_requests_so_far() -> None:
    """A p99 needs 100 values, a median 20; a latency that no request has never comes true."""
    assert not comes_true(figures(ok=99, ttft_ms=600), "p99_ttft_ms>500")
    assert comes_true(figures(ok=100, ttft_ms=600), "p99_ttft_ms>500")
    assert comes_true(figures(ok=20, ttft_ms=600), "median_ttft_ms>500")
    assert comes_true(figures(ok=20), "mean_e2el_ms<=20")
    assert not comes_true(figures(ok=200), "mean_tpot_ms>0")
    result = (
        figures(ok=20, ttft_ms=600)
        .so_far()
        .judge([parse_abort("mean_ttft_ms>700"), parse_abort("mean_ttft_ms>500")])
    )
    assert result is not None
    assert (result.text, result.value) == ("mean_ttft_ms>500", 600.0)


@pytest.mark.parametrize(
    "text",
    [
        "p99_itl_ms>5",
        "request_throughput<3",
        "p99_ttft_ms{stage=8}>5",
        "verdict!=VALID",
        "nonsense",
    ],
)
def test_what_no_running_run_has_is_refused(text: str) -> None:
    """By the name of the flag."""
    with pytest.raises(ValueError, match="--abort-if"):
        parse_abort(text)


def test_a_threshold_on_the_verdict() -> None:
    """!= and == with the words of the verdict, of which several may apply; any case, with or
    without quotes."""
    valid, several = {VERDICT: ["VALID"]}, {VERDICT: ["FAILED", "NOT COMPARABLE"]}
    assert not evaluate(parse_threshold("verdict!=VALID"), valid).failed
    result = evaluate(parse_threshold("verdict != 'valid'"), several)
    assert (result.failed, result.value, result.why) == (
        True,
        None,
        "FAILED, NOT COMPARABLE",
    )
    assert evaluate(parse_threshold("verdict==NOT COMPARABLE"), several).failed
    assert not evaluate(parse_threshold("verdict==BLURRED"), several).failed
    for wrong in ("verdict!=GOOD", "verdict>3", "verdict!=", "p99_ttft_ms==5"):
        with pytest.raises(ValueError, match="--fail-if"):
            parse_threshold(wrong)
