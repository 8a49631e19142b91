"""--until: a run ends when its figure is known, and its report says how well; a limit that comes
first is reported as well."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from llama_load.loadgen.run.until_watcher import UntilWatcher
from llama_load.run_folder.observed.record import to_batch
from llama_load.run_folder.vocabulary.until import parse_until
from tests.conftest import Finished, Simulated
from tests.make_records import record


def watch(until: str = "mean_e2el:5%", users: int = 1) -> UntilWatcher:
    run: Any = SimpleNamespace(end_reason=None, end_early=lambda: None)
    return UntilWatcher(run, parse_until(until), is_open=False, users=users, slots=None)


def test_a_limit_that_comes_first_is_reported(
    simulate: Callable[..., Simulated], run_locust: Callable[..., Finished]
) -> None:
    server = simulate("--first-token-ms", "4", "--interval-ms", "1", "--slots", "8")
    done = run_locust(
        server.url,
        "-u",
        "4",
        "--num-prompts",
        "40",
        "--max-tokens",
        "3",
        "--until",
        "p99_ttft:5%",
    )
    assert done.code == 0
    assert not done.manifest["until"]["ended_early"]
    assert (
        "p99_ttft is not known to 5 % within the limit after 40 requests"
        in " ".join(done.out.split())
    )
    refused = run_locust(server.url, "-u", "4", "--until", "p99_ttft:5%")
    assert refused.code == 2
    assert "--until p99_ttft:5% needs a limit: give -t or --num-prompts" in refused.err


def test_requests_begun_before_one_in_flight_are_not_looked_at() -> None:
    """600 short requests, and one of 300 s: what began within its length of the last end may have
    long neighbours in flight."""
    seen = watch()
    seen.add_record(record(0, start_ms=0, gaps_ms=(300_000,)))
    for number in range(600):
        seen.add_record(record(1 + number, start_ms=400 * number))
    seen.look()
    assert not seen.at_end().ended_early


@pytest.mark.parametrize("as_batch", [False, True])
def test_records_count_alike_from_this_process_and_from_workers(as_batch: bool) -> None:
    draw = np.random.default_rng(1)
    rows = [
        record(number, start_ms=200 * number, first_ms=100 + float(draw.uniform(0, 5)))
        for number in range(700)
    ]
    rows += [record(700, warmup=True), record(701, status="cancelled")]
    seen = watch()
    if as_batch:
        seen.add_batch(to_batch(rows))
    else:
        for each in rows:
            seen.add_record(each)
    seen.look()
    found = seen.at_end()
    assert (found.count, found.ended_early) == (420, True)
    assert found.value is not None
    assert 140 < found.value < 145
    assert found.sentence.startswith("mean_e2el is 142")
