"""What a recording learns of the cache of a server with blocks, from its page of metrics."""

from __future__ import annotations

import time

import pytest

from llama_load.analysis.topics.reprocessing.kv_blocks import NO_BLOCKS
from llama_load.outside.plain_http import Session
from llama_load.record import recorded_cache
from llama_load.record.recorded_cache import RecordedCache
from llama_load.run_folder.observed.window import Window
from tests.json_server import json_server

PAGE = (
    'vllm:cache_config_info{block_size="128",enable_prefix_caching="True",'
    'num_gpu_blocks="24"} 1.0\n'
    "vllm:num_preemptions_total %d\n"
    "vllm:kv_cache_usage_perc 0.95\n"
)
TEXT = {"Content-Type": "text/plain"}


def test_blocks_and_what_happened_between_two_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorded_cache, "EACH_S", 0.0)
    counts = iter([2, 3])
    begun_ns = time.monotonic_ns()
    with json_server(
        {"/metrics": lambda _: (200, PAGE % next(counts), TEXT)}
    ) as server:
        cache = RecordedCache(server.url, Session())
        cache.look()
        cache.look()
    blocks = cache.blocks("")
    since = Window(begun_ns, time.monotonic_ns())
    assert (blocks.block, blocks.capacity, blocks.is_off) == (128, 3072, False)
    assert blocks.preempted_in(since)
    assert blocks.peak_in(since) == 0.95


def test_a_server_without_such_a_page_is_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorded_cache, "EACH_S", 0.0)
    with json_server({}) as server:
        cache = RecordedCache(server.url, Session())
        for _ in range(3):
            cache.look()
        assert len(server.headers) == 1
    assert cache.blocks("") == NO_BLOCKS


def test_it_is_asked_at_most_once_a_second() -> None:
    with json_server({"/metrics": (200, PAGE % 0, TEXT)}) as server:
        cache = RecordedCache(server.url, Session())
        for _ in range(3):
            cache.look()
        assert len(server.headers) == 1
