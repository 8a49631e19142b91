"""The figures of a run whose server dies end with the server."""

from __future__ import annotations

from pathlib import Path

from llama_load.analysis.figures.check_limits import CHANGED
from llama_load.analysis.results.ended_servers import until_the_servers_end
from llama_load.analysis.results.results import analyze
from llama_load.run_folder import Run
from llama_load.run_folder.observed.record import RequestRecord
from llama_load.run_folder.observed.server_description import ServerDescription
from tests.make_records import MS, failed, manifest, record, table

KILLED_MS = 8000


def dead_run(end: str = "server") -> Run:
    """Two users, answers of 141 ms; at 8 s the server is killed in two of them, after which 100
    requests are refused in 10 s."""
    rows = []
    for number in range(100):
        rows.append(record(number, start_ms=160 * (number // 2)))
    for number in range(2):
        rows.append(cut_off(100 + number))
    for number in range(100):
        begin_ms = KILLED_MS + 100 * number
        refused = failed(
            102 + number, start_ms=begin_ms, end_ms=begin_ms + 1, kind="connect_refused"
        )
        rows.append(refused)
    about = manifest(
        end=end,
        users=2,
        targets=[{"url": "http://h"}],
        servers=[ServerDescription(url="http://h", ended="killed by SIGKILL")],
        cut_mono_ns=(KILLED_MS + 10_000) * MS,
    )
    return Run(Path("run"), about, table(*rows), recovered=False)


def cut_off(number: int) -> RequestRecord:
    started_ms = KILLED_MS - 50
    return failed(number, start_ms=started_ms, end_ms=KILLED_MS - 1, kind="cut_off")


def test_requests_that_none_was_left_for_are_in_no_figure() -> None:
    results = analyze(dead_run())
    assert (results.total.completed, results.total.failed) == (100, 2)
    # From 0 to the end of the two that the server had.
    assert results.total.duration_s == (KILLED_MS - 1) / 1000
    checks = {check.name: check for check in results.verdict.checks}
    ending = checks["server_endings"]
    assert ending.text.endswith("; 100 requests that came later are in no figure")
    assert checks[CHANGED].ok
    assert results.verdict.word == "INCOMPLETE"


def test_a_server_that_is_left_has_all_failures() -> None:
    run = dead_run(end="complete")
    assert until_the_servers_end(run) is run
