"""What the engine says of its caches and queues, from pages of metrics as vLLM writes them."""

from __future__ import annotations

import numpy as np
from pytest import approx

from llama_load.analysis.topics.engine.engine_figures import (
    EngineFigures,
    Transfers,
    Waiting,
    figures_in,
)
from llama_load.analysis.topics.engine.engine_tables import (
    engine_headline,
    engine_tables,
)
from llama_load.run_folder.observed.telemetry_series import Series, Telemetry
from llama_load.run_folder.observed.window import Window
from llama_load.telemetry.prometheus import parse

S = 10**9
PAGE = """
vllm:prompt_tokens_total{{engine="0"}} {prompt}
vllm:prompt_tokens_cached_by_source_total{{engine="0",source="device"}} {device}
vllm:prompt_tokens_cached_by_source_total{{engine="0",source="host"}} {host}
vllm:prompt_tokens_cached_by_source_total{{engine="1",source="host"}} {host}
vllm:prompt_tokens_cached_by_source_total{{engine="0",source="disk"}} 0
vllm:num_requests_waiting_by_reason{{engine="0",reason="capacity"}} {waiting}
vllm:num_requests_waiting_by_reason{{engine="0",reason="deferred"}} 0
vllm:admission_rejections_total{{reason="queue_full"}} {refused}
vllm:nixl_xfer_time_seconds_sum{{engine="0"}} {seconds}
vllm:nixl_xfer_time_seconds_count{{engine="0"}} {transfers}
"""
START = {
    "prompt": 1000,
    "device": 100,
    "host": 50,
    "waiting": 0,
    "refused": 2,
    "seconds": 1.0,
    "transfers": 10,
}


def telemetry(*pages: dict[str, float]) -> Telemetry:
    """A page a second, each with what changed."""
    values: dict[tuple[str, tuple[tuple[str, str], ...]], list[float]] = {}
    for page in pages:
        for value in parse(PAGE.format(**(START | page))):
            values.setdefault((value.metric, value.labels), []).append(value.value)

    found = []
    for (metric, labels), samples in values.items():
        instants = np.arange(len(samples), dtype=np.int64) * S
        found.append(
            Series(
                "http://h/metrics", metric, dict(labels), instants, np.array(samples)
            )
        )
    return Telemetry(series=found)


BUSY = {
    "prompt": 2000,
    "device": 300,
    "host": 205,
    "waiting": 4,
    "refused": 5,
    "seconds": 1.5,
    "transfers": 20,
}


def busy() -> EngineFigures:
    found = figures_in(telemetry({}, BUSY, BUSY | {"waiting": 0}), Window(0, 2 * S))
    assert found is not None
    return found


def test_counters_are_summed_over_engines_and_zeros_are_left_out() -> None:
    """Both engines had 155 tokens from the host; the disk none."""
    found = busy()
    assert found.prompt_tokens == 1000
    assert found.cached_by_tier == {"device": 200, "host": 310}
    assert found.refused_by_reason == {"queue_full": 3}
    assert found.fetching_by_stage == {}


def test_waits_have_a_mean_over_time_and_a_peak() -> None:
    """0, 4 and 0 a second apart: 2 on average."""
    assert busy().waiting_by_reason == {"capacity": Waiting(approx(2.0), 4.0)}


def test_transfers_have_their_mean_time() -> None:
    """10 of them in 0.5 s."""
    assert busy().transfers == Transfers(10, approx(50.0), 0)


def test_a_run_in_which_nothing_grew_has_nothing_to_say() -> None:
    assert figures_in(telemetry({}, {}, {}), Window(0, 2 * S)) is None
    assert figures_in(Telemetry(), Window(0, 2 * S)) is None


def test_the_first_screen_names_the_tier_beside_the_device() -> None:
    assert (
        engine_headline(busy())
        == "the host's memory answered 31 % of the prompt tokens"
    )
    page = BUSY | {"host": 50}
    found = figures_in(telemetry({}, page, page), Window(0, 2 * S))
    assert found is not None
    assert engine_headline(found) is None, "the device's own cache is no news"


def test_each_kind_of_count_has_a_table() -> None:
    tables = {table.title: table for table in engine_tables(busy(), str)}
    tiers = tables["Prompt Tokens by Cache Tier"].cells
    assert [[cell.text for cell in row] for row in tiers] == [
        ["device", "200", "20 %"],
        ["host", "310", "31 %"],
    ]
    assert len(tables) == 4
