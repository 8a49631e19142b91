"""A server's counters at /metrics: what is read, summed, subtracted, and passed over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llama_load.run_folder.observed.server_counters import ServerCounters
from llama_load.run_folder.observed.speculation import Speculation
from llama_load.servers.counters import parse_counters
from tests.transcripts import FOLDER

VLLM = (FOLDER / "vllm_metrics.txt").read_text()


def test_vllms_counters() -> None:
    """234 prompt tokens, all looked up in the prefix cache, none found; five requests finished,
    each by length."""
    found = parse_counters(VLLM)
    assert found == ServerCounters(
        prompt_tokens=234,
        cache_queries=234,
        cache_hits=0,
        external_hits=0,
        requests=5,
        preemptions=0,
        started_s=1.79516985346e9,
        output_tokens=847,
        times=found.times if found else None,
    )


def test_llama_servers_counters_count_cached_tokens_among_the_prompts() -> None:
    """860 processed and 397 out of the cache."""
    found = parse_counters((FOLDER / "llama_metrics.txt").read_text())
    assert found == ServerCounters(
        Speculation(0, 0, 0),
        prompt_tokens=1257,
        cache_queries=1257,
        cache_hits=397,
        output_tokens=11915,
    )


def test_vllms_histograms_give_sums_of_times_over_an_interval() -> None:
    """Five requests that ended; a later page with a sixth that took 2 s longer in all gives its own
    times."""
    first = parse_counters(VLLM)
    assert first is not None
    assert first.times is not None
    assert first.times.requests == 5
    assert (
        first.times.queue_ms + first.times.prefill_ms + first.times.decode_ms
        <= first.times.e2el_ms
    )
    assert first.times.ttft_ms < first.times.e2el_ms
    later = replace(
        first,
        times=replace(first.times, requests=6, e2el_ms=first.times.e2el_ms + 2000),
    )
    grown = later.since(first)
    assert grown is not None
    assert grown.times is not None
    assert (grown.times.requests, grown.times.e2el_ms, grown.times.ttft_ms) == (
        1,
        2000,
        0,
    )
    assert first.plus(first).times == replace(
        first.times,
        requests=10,
        **{
            name: 2 * getattr(first.times, name)
            for name in ("ttft_ms", "e2el_ms", "queue_ms", "prefill_ms", "decode_ms")
        },
    )


@pytest.mark.parametrize("both", [False, True])
def test_the_names_of_older_versions_are_known_and_not_counted_twice(
    both: bool,
) -> None:
    page = VLLM.replace("vllm:prefix_cache", "vllm:gpu_prefix_cache").replace(
        "hits_total{engine", "hits_total{engine"
    )
    found = parse_counters(page + VLLM if both else page)
    assert found is not None
    assert (found.cache_queries, found.cache_hits) == (234, 0)


def test_a_llama_server_without_cached_counts_says_nothing_of_its_cache() -> None:
    found = parse_counters(
        "# TYPE llamacpp:prompt_tokens_total counter\nllamacpp:prompt_tokens_total 860\n"
    )
    assert found is not None
    assert (found.prompt_tokens, found.cache_queries, found.cache_hits) == (
        None,
        None,
        None,
    )


def test_counters_over_a_time() -> None:
    before = ServerCounters(Speculation(10, 5, 2), 100, 100, 20, 3, 0, 1000.0)
    after = ServerCounters(Speculation(30, 15, 6), 400, 400, 220, 9, None, 1000.001)
    assert after.since(before) == ServerCounters(
        Speculation(20, 10, 4), 300, 300, 200, 6, None
    )
    assert ServerCounters(None, 1, 2, 3, 4, 5).plus(
        ServerCounters(None, 1, 2, None, 4, 5)
    ) == ServerCounters(None, 2, 4, None, 8, 10)


def test_a_restart_is_seen_by_the_start_time_or_by_a_counter_that_shrank() -> None:
    before = ServerCounters(None, 100, 100, 20, 3, 0, 1000.0)
    assert replace(before, started_s=1012.0, prompt_tokens=500).since(before) is None
    assert replace(before, started_s=None, requests=2).since(before) is None
    assert ServerCounters(Speculation(5, 1)).is_restart_of(
        ServerCounters(Speculation(55, 41))
    )
    assert not before.is_restart_of(before)


@pytest.mark.parametrize(
    ("printed", "error"),
    [
        ("123456", 0),  # whole
        ("999999", 0),
        ("1.23457e+06", 5),  # 1,234,565 to 1,234,575
        ("1.2e+06", 5),  # %g leaves out zeros at the end
        ("4.56789e+08", 500),
        ("1.234567e+06", 0),  # of a client that prints every digit
    ],
)
def test_the_resolution_of_a_counter_is_read_off_its_text(
    printed: str, error: int
) -> None:
    found = parse_counters(
        f"llamacpp:prompt_tokens_total 10\nllamacpp:tokens_predicted_total {printed}\n"
    )
    assert found is not None
    assert (found.error("output_tokens"), found.error("prompt_tokens")) == (error, 0)


def test_the_errors_of_both_readings_add_up() -> None:
    before, after = (
        parse_counters(f"llamacpp:tokens_predicted_total {text}\n")
        for text in ("9.99998e+05", "1.00412e+06")
    )
    assert before is not None
    assert after is not None
    grown = after.since(before)
    assert grown is not None
    assert (grown.output_tokens, grown.error("output_tokens")) == (4122, 5)
    assert after.plus(after).error("output_tokens") == 10
