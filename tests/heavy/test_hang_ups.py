"""Users who hang up, in whole runs: a server that frees its slots late or never, llama.cpp's own llama-server and vLLM with their
own counts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conftest import Finished
from tests.slots_server import slots_server

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]
Run = Callable[..., Finished]
ABORTS = ("--max-tokens", "60", "--abort-rate", "0.3", "--abort-after", "5 tokens", "--warmup", "0")


def check_of(done: Finished) -> dict[str, object]:
    (check,) = (each for each in done.summary["llama_load"]["verdict"]["checks"] if each["name"] == "slots_not_freed")
    return check


def test_slots_that_are_freed_late_are_timed(run_locust: Run) -> None:
    """300 ms after the server notices, which is a token (10 ms) or two after the user has gone. Measured is an upper bound, within
    the pause between two looks and the time of a look."""
    with slots_server(0.3) as server:
        done = run_locust(server.url, "-u", "2", "--num-prompts", "20", *ABORTS)
    (seen,) = done.summary["llama_load"]["hang_up_checks"]
    freeing, aborted = seen["freeing"], done.summary["llama_load"]["aborted"]
    assert aborted == server.hung_up > 2, done.err + done.out
    assert (freeing["freed"] + freeing["unknown"], freeing["stuck"], freeing["late"]) == (aborted, 0, 0)
    assert freeing["unknown"] <= 1
    assert freeing["median_ms"] > 300
    assert freeing["median_ms"] - freeing["resolution_ms"] < 400
    assert check_of(done)["ok"] and "never freed" in done.out


def test_slots_that_are_never_freed_are_reported(run_locust: Run) -> None:
    """Three of four slots are lost for good, and the run goes on with the last one."""
    with slots_server(None) as server:
        done = run_locust(server.url, "-u", "2", "--num-prompts", "10", *ABORTS, "--seed", "3")
    (seen,) = done.summary["llama_load"]["hang_up_checks"]
    assert 0 < seen["busy"] == seen["freeing"]["stuck"] == server.hung_up < 4, done.err + done.out
    check = check_of(done)
    assert not check["ok"]
    assert f"still works on {server.hung_up} request" in str(check["text"])
    assert "10 s after the last request ended, and 1" in str(check["text"])
    assert "NOT COMPARABLE" in done.out
