"""The client's and the server's times of the same requests."""

from __future__ import annotations

from llama_load.analysis.figures.client_server import side_by_side
from llama_load.run_folder.observed.server_counters import ServerCounters, ServerTimes
from tests.make_records import record, table


def test_times_of_each_answer_stand_before_sums_of_all_clients() -> None:
    """TTFT of 100 ms, 1 ms of it to connect; the histograms have other clients, too."""
    own = {"server_queue_ms": 30.0, "server_prompt_ms": 60.0, "server_predict_ms": 40.0}
    times = ServerTimes(2, 400.0, 500.0, 200.0, 200.0, decode_ms=100.0)
    counters = ServerCounters(times=times)
    pairs = side_by_side(table(record(**own)), counters)
    found = {pair.name: (pair.client, pair.server, pair.coarse) for pair in pairs}
    assert len(found) == len(pairs)
    assert found["TTFT (ms)"] == (99.0, 90.0, False)
    assert found["wait in the queue (ms)"] == (None, 30.0, False)
    assert found["prefill (ms)"] == (None, 60.0, False)
    assert found["first to last token (ms)"] == (40.0, 40.0, False)
    assert found["E2EL (ms)"][2]
