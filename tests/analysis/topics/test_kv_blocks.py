"""Why prompts were processed again by a server that keeps them in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from llama_load.analysis.topics.reprocessing import cacheable_tokens, lost_tokens
from llama_load.analysis.topics.reprocessing.causes import (
    BLOCKS,
    CACHE_OFF,
    PREEMPTED,
    ROUNDED,
    UNKNOWN,
)
from llama_load.analysis.topics.reprocessing.kv_blocks import KvBlocks, kv_blocks
from llama_load.analysis.topics.reprocessing.reprocessed_turns import (
    ReprocessedTurn,
    RunFacts,
    TurnTable,
    rounded_tokens,
)
from llama_load.run_folder import Run
from llama_load.run_folder.observed.server_description import ServerDescription
from llama_load.run_folder.observed.telemetry_series import Series, Telemetry
from llama_load.telemetry.prometheus import parse
from tests.make_records import manifest, record, table
from tests.transcripts import FOLDER

URL = "http://h"
PAGE = f"{URL}/metrics"
S = 10**9
# What vLLM 0.32 says of its cache, with fewer labels.
INFO = (
    'vllm:cache_config_info{block_size="16",cache_dtype="auto",'
    'enable_prefix_caching="ENABLED",engine="0",num_gpu_blocks="200"} 1.0\n'
)


def series(metric: str, *values: float, **labels: str) -> Series:
    """A value a second, from 0 s."""
    instants = np.arange(len(values), dtype=np.int64) * S
    return Series(PAGE, metric, labels, instants, np.array(values))


def of_page(text: str) -> list[Series]:
    found = []
    for value in parse(text):
        found.append(series(value.metric, *[value.value] * 9, **dict(value.labels)))
    return found


def run_with(found: Sequence[Series], command: str | None = None) -> Run:
    target = {"url": URL, "backend": "vllm"}
    servers = [ServerDescription(url=URL, command=command)]
    return Run(
        Path("run"),
        manifest(targets=[target], servers=servers),
        table(),
        recovered=False,
        telemetry=Telemetry(series=list(found)),
    )


def turn(blocks: KvBlocks, cached: int = 0, others: int = 0) -> ReprocessedTurn:
    """The second turn of a conversation, whose first one had a prompt of 1,000 tokens. In between
    as many others had 1,000 tokens each."""
    talk = {"conversation": "mend", "conversation_start": 0, "cached_tokens": 0}
    rows = [record(0, **talk, turn=1, prompt_tokens=1000)]
    for number in range(others):
        rows.append(
            record(number + 1, start_ms=1000, prompt_tokens=997, output_tokens=3)
        )
    second = {**talk, "cached_tokens": cached}
    rows.append(record(99, start_ms=3000, **second, turn=2, prompt_tokens=1100))
    facts = RunFacts(False, {}, {}, blocks={URL: blocks})
    (found,) = TurnTable(table(*rows), facts).later_turns()
    return found


def test_less_than_two_of_the_usual_blocks_is_no_loss() -> None:
    """Of 1,000 tokens 62 blocks of 16 can be cached, and the last one may have other tokens."""
    assert cacheable_tokens(1000, 1100, 16) == 992
    assert cacheable_tokens(1100, 1089, 128) == 1024
    assert cacheable_tokens(1000, 1100) == 1000
    assert lost_tokens(1024, 896, 128) == 0
    assert lost_tokens(1024, 768, 128) == 256
    found = turn(KvBlocks(block=16), cached=976)
    assert (found.could, found.lost, found.cause) == (1000, 0, None)


@pytest.mark.parametrize(
    ("cached", "lost", "cause"),
    [(896, 104, ROUNDED), (768, 0, None), (640, 256, UNKNOWN)],
)
def test_of_large_blocks_the_last_one_is_a_cause(
    cached: int, lost: int, cause: str | None
) -> None:
    """Of 1,000 tokens 7 blocks of 128 can be cached, 896 tokens. The last whole one may have other
    tokens; one more is a loss of its own."""
    found = turn(KvBlocks(block=128), cached=cached)
    assert (found.could, found.lost, found.cause) == (1000, lost, cause)


def test_the_end_of_a_prompt_may_have_other_tokens() -> None:
    """Of 1,000 tokens the last 16, and with them a block that was whole."""
    assert rounded_tokens(1034, 896, 128) == 138
    assert rounded_tokens(1041, 896, 128) == 0


def test_the_metrics_tell_the_cause() -> None:
    counted = series("vllm:num_preemptions_total", 0, 0, 1, 1, 1)
    elsewhere = series("vllm:num_preemptions_total", 5, 5, 5, 5, 5)
    full = series("vllm:kv_cache_usage_perc", 0.2, 0.97, 0.4, 0.2, 0.1)
    free = series("vllm:kv_cache_usage_perc", 0.2, 0.3, 0.2, 0.2, 0.1)
    preempted = turn(KvBlocks(preemptions=[counted], used=[full]))
    assert (preempted.cause, preempted.kv_use) == (PREEMPTED, pytest.approx(0.97))
    evicted = turn(KvBlocks(preemptions=[elsewhere], used=[full]))
    assert (evicted.cause, evicted.kv_use) == (BLOCKS, pytest.approx(0.97))
    unknown = turn(KvBlocks(preemptions=[elsewhere], used=[free]))
    assert (unknown.cause, unknown.kv_use) == (UNKNOWN, None)
    assert turn(KvBlocks(is_off=True)).cause == CACHE_OFF


def test_others_that_fill_the_cache_evict_the_oldest() -> None:
    """3,200 tokens hold 1,000 and two others of 1,000, not three."""
    assert turn(KvBlocks(capacity=3200), others=2).cause == UNKNOWN
    assert turn(KvBlocks(capacity=3200), others=3).cause == BLOCKS


def test_those_that_waited_in_the_queue_evict_it_too() -> None:
    """They are sent before the turn before ends, and their prompts are processed after it: between
    0.3 s, when it ends, and 4 s, when the next turn's is. Those that ran at 0.3 s have room, too:
    five of 6 blocks of 128 tokens, rounded up, beside the 8 blocks of the turn before."""
    talk = {"conversation": "mend", "conversation_start": 0, "cached_tokens": 0}
    one = {"prompt_tokens": 600, "output_tokens": 60}
    rows = [record(0, **talk, turn=1, prompt_tokens=1000, gaps_ms=(200,))]
    for number in range(2):
        rows.append(record(number + 1, **one, gaps_ms=(800,)))
    for number in range(3):
        rows.append(record(number + 3, **one, first_ms=2000, gaps_ms=(1000,)))
    second = {**talk, "turn": 2, "prompt_tokens": 1100}
    rows.append(record(99, **second, start_ms=1000, first_ms=3000, gaps_ms=(1000,)))
    causes = []
    for blocks in (37, 38):
        facts = RunFacts(
            False, {}, {}, blocks={URL: KvBlocks(block=128, capacity=blocks * 128)}
        )
        (found,) = TurnTable(table(*rows), facts).later_turns()
        causes.append(found.cause)
    assert causes == [BLOCKS, UNKNOWN]


def test_newer_versions_say_how_many_tokens_it_holds() -> None:
    text = INFO.replace("engine", 'kv_cache_size_tokens="3000",engine')
    (blocks,) = kv_blocks(run_with(of_page(text))).values()
    assert blocks.capacity == 3000


@pytest.mark.parametrize("is_on", ["True", "False"])
def test_they_are_read_from_the_real_page(is_on: str) -> None:
    text = (FOLDER / "vllm_metrics.txt").read_text()
    (blocks,) = kv_blocks(
        run_with(of_page(text + INFO.replace("ENABLED", is_on)))
    ).values()
    assert (blocks.block, blocks.capacity) == (16, 3200)
    assert blocks.is_off is (is_on == "False")
    assert [each.metric for each in blocks.preemptions] == [
        "vllm:num_preemptions_total"
    ]
    assert [each.metric for each in blocks.used] == ["vllm:kv_cache_usage_perc"]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("vllm serve m --block-size 32", 32),
        ("vllm serve m --block-size=128 --port 1", 128),
        ("vllm serve m --block-size", 16),
        (None, 16),
    ],
)
def test_without_the_page_the_command_line_has_the_size(
    command: str | None, expected: int
) -> None:
    (blocks,) = kv_blocks(run_with([], command)).values()
    assert (blocks.block, blocks.capacity, blocks.is_off) == (expected, None, False)
