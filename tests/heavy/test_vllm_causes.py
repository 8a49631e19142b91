"""vLLM's prefix cache: why it processed prompts again, and how it is emptied and profiled.

Each cause is planted so that ten turns of a run have it. The same traffic with a remedy has none.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from llama_load.analysis.topics.reprocessing.causes import (
    BLOCKS,
    CACHE_OFF,
    PREEMPTED,
    ROUNDED,
)
from llama_load.outside.plain_http import Session
from llama_load.servers.kinds.vllm_kind import VLLM
from llama_load.servers.serving.launch import Server
from tests.analysis.topics.test_reprocessing import RunLocust, causes, figures, sent
from tests.conftest import Finished
from tests.record.test_record_command import asked, recorder, told, user

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(400)]

TURNS = 10
BLOCK = 128  # of vLLM on CPUs
# Room for 23 blocks (one is vLLM's own): four prompts of 500 tokens at a time, not ten.
SMALL_CACHE = ("--max-model-len", "2048", "--num-gpu-blocks-override", "24")
FOUR_AT_A_TIME = ("--max-num-seqs", "4")


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("profiles")


@pytest.fixture(scope="module")
def small_vllm(start_vllm: Callable[..., Server], profiles: Path) -> Iterator[Server]:
    """With a small cache, and all that engine developers may ask it."""
    profiler = {
        "profiler": "torch",
        "torch_profiler_dir": str(profiles),
        "torch_profiler_with_stack": False,  # else it takes 20 s to write the trace
    }
    server = start_vllm(
        *("--enable-prompt-tokens-details", *SMALL_CACHE, *FOUR_AT_A_TIME),
        *("--profiler-config", json.dumps(profiler)),
        VLLM_SERVER_DEV_MODE="1",
    )
    yield server
    server.stop()


@pytest.fixture(scope="module")
def vllm_without_cache(start_vllm: Callable[..., Server]) -> Iterator[Server]:
    server = start_vllm("--enable-prompt-tokens-details", "--no-enable-prefix-caching")
    yield server
    server.stop()


def prompt_of(server: Server, number: int, tokens: int) -> str:
    """A question that has so many tokens in the server's template, by its own count."""
    session = Session()

    def count(text: str) -> int:
        messages = [{"role": "user", "content": text}]
        asked = {"model": "tiny", "messages": messages}
        return len(session.post(f"{server.url}/tokenize", asked).json()["tokens"])

    sentence = f"Number {number * 7919} asks about an item of the shop, please. "
    one = count(sentence)
    each = count(sentence * 2) - one
    text = sentence * (1 + (tokens - one) // each)
    text += " a" * (tokens - count(text))
    assert count(text) == tokens
    return text


def talks_of(server: Server, folder: Path, tokens: int) -> Path:
    """Ten conversations of two turns. The first prompt of each has so many tokens."""
    lines = []
    for number in range(TURNS):
        messages = [
            {"role": "user", "content": prompt_of(server, number, tokens)},
            {"role": "assistant", "content": "Good."},
            {"role": "user", "content": "And then?"},
            {"role": "assistant", "content": "Good."},
        ]
        lines.append(json.dumps({"id": f"talk{number}", "messages": messages}))
    path = folder / "talks.jsonl"
    path.write_text("\n".join(lines))
    return path


ONE_USER = ("-u", "1", "--num-prompts", "20", "--output-len", "8")
TEN_USERS = ("-u", "10", "--num-prompts", "20", "--ignore-eos")
# About 90 tokens, or about 12, are in no whole block: a run's own first words are about 8.
ROUGH = 3 * BLOCK + 80
EVEN = 3 * BLOCK + 4


def run_of(
    run_locust: RunLocust,
    server: Server,
    folder: Path,
    tokens: int,
    flags: Sequence[str],
) -> Finished:
    return sent(
        run_locust,
        server.url,
        folder / "run",
        talks_of(server, folder, tokens),
        *flags,
        *("--telemetry-interval", "1"),  # the default
    )


def assert_is_named(run: Finished, cause: str) -> None:
    (found,) = figures(run)["causes"]
    assert (found["cause"], found["turns"]) == (cause, TURNS), run.out


def test_the_last_block_of_ten_prompts_is_not_whole(
    small_vllm: Server, tmp_path: Path, run_locust: RunLocust
) -> None:
    """Catches a size of blocks that vLLM does not have."""
    run = run_of(run_locust, small_vllm, tmp_path, ROUGH, ONE_USER)
    assert_is_named(run, ROUNDED)
    records = run.records
    first = records.numbers("prompt_tokens")[records.numbers("turn") == 1]
    assert figures(run)["lost_tokens"] == (first % BLOCK).sum()


def test_prompts_of_whole_blocks_leave_none_to_name(
    small_vllm: Server, tmp_path: Path, run_locust: RunLocust
) -> None:
    """Catches a cause that is named although vLLM's cache hit."""
    run = run_of(run_locust, small_vllm, tmp_path, EVEN, ONE_USER)
    assert causes(run) == []
    assert figures(run)["turns"] == TURNS


@pytest.mark.parametrize(
    "more",
    [("--output-len", "8"), ("--output-len", "100", "-r", "100")],
    ids=["one by one", "from a queue"],
)
def test_ten_prompts_that_do_not_fit_evict_each_other(
    small_vllm: Server, tmp_path: Path, run_locust: RunLocust, more: Sequence[str]
) -> None:
    """Four at a time and their answers fit, so nothing is preempted. Those that wait in the queue
    were sent before the turns that they evict had ended. Catches evictions that vLLM does in
    another order than the model."""
    run = run_of(run_locust, small_vllm, tmp_path, EVEN, (*TEN_USERS, *more))
    assert_is_named(run, BLOCKS)


def test_long_answers_preempt_each_other(
    small_vllm: Server, tmp_path: Path, run_locust: RunLocust
) -> None:
    """Four prompts of 400 tokens fit, but not with 400 more each. Catches preemptions that vLLM
    counts by another name."""
    flags = (*TEN_USERS, "--output-len", "400")
    run = run_of(run_locust, small_vllm, tmp_path, EVEN, flags)
    assert_is_named(run, PREEMPTED)


def test_a_recording_names_them_too(small_vllm: Server, tmp_path: Path) -> None:
    """Ten conversations one after another, whose last blocks are not whole; then the first turns of
    ten others, and then their second ones. Catches the same through the recorder."""
    with recorder(small_vllm.url, tmp_path / "talk.jsonl") as running:

        def turn(messages: list[Any]) -> list[Any]:
            answer = asked(running.url, messages, ignore_eos=True)
            return [*messages, told(answer), user("And then?")]

        for number in range(TURNS):
            text = prompt_of(small_vllm, 100 + number, ROUGH)
            turn(turn([user(text)]))
        others = []
        for number in range(TURNS):
            text = prompt_of(small_vllm, 200 + number, EVEN)
            others.append(turn([user(text)]))
        for history in others:
            turn(history)
    lines = (tmp_path / "talk.turns.jsonl").read_text().splitlines()
    found = [json.loads(line)["cause"] for line in lines]
    assert found == [ROUNDED] * TURNS + [BLOCKS] * TURNS, running.said


def test_a_prefix_cache_that_is_off(
    vllm_without_cache: Server, tmp_path: Path, run_locust: RunLocust
) -> None:
    """Catches a vLLM without a cache that looks like one whose cache missed."""
    run = run_of(run_locust, vllm_without_cache, tmp_path, EVEN, ONE_USER)
    assert_is_named(run, CACHE_OFF)
    with recorder(vllm_without_cache.url, tmp_path / "talk.jsonl") as running:
        history = [user(prompt_of(vllm_without_cache, 1, EVEN))]
        answer = asked(running.url, history, ignore_eos=True)
        asked(running.url, [*history, told(answer), user("And then?")])
    (line,) = (tmp_path / "talk.turns.jsonl").read_text().splitlines()
    assert json.loads(line)["cause"] == CACHE_OFF


def test_the_same_prompts_are_not_cached_after_a_reset(
    small_vllm: Server, tmp_path: Path, run_locust: RunLocust
) -> None:
    """The first turns of two conversations, three times. Catches a reset that vLLM does not do."""
    cached = []
    flags = ("-u", "1", "--num-prompts", "4", "--output-len", "8", "--seed", "7")
    for number, more in enumerate([(), (), ("--reset-prefix-cache",)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        run = run_of(run_locust, small_vllm, folder, EVEN, (*flags, *more))
        first = run.records.numbers("turn") == 1
        cached.append(run.records.numbers("cached_tokens")[first].sum())
    assert cached == [0, 2 * 3 * BLOCK, 0]


def test_a_cache_in_use_is_emptied_once_the_request_ends(small_vllm: Server) -> None:
    """vLLM answers 200 and {"success": false} while a request has blocks. Catches vLLM's 200 with
    success false, taken for done."""
    ended_s = []

    def ask() -> None:
        messages = [{"role": "user", "content": "Count."}]
        asked = {"messages": messages, "max_tokens": 800, "ignore_eos": True}
        url = f"{small_vllm.url}/v1/chat/completions"
        assert Session().post(url, asked, within_s=60).ok
        ended_s.append(time.monotonic())

    thread = threading.Thread(target=ask)
    thread.start()
    session = Session()
    path = f"{small_vllm.url}/reset_prefix_cache"
    while session.post(path, {}, within_s=10).json()["success"]:
        time.sleep(0.01)  # it has not begun
    assert VLLM.reset_cache(session, small_vllm.url) == ""
    emptied_s = time.monotonic()
    thread.join()
    assert emptied_s > ended_s[0] - 0.2


def test_the_profiler_runs_while_requests_are_measured(
    small_vllm: Server, profiles: Path, tmp_path: Path, run_locust: RunLocust
) -> None:
    """Catches a path of vLLM's profiler that changed."""
    flags = ("-u", "1", "--num-prompts", "2", "--output-len", "8", "--profile-server")
    assert list(profiles.iterdir()) == []
    run = run_of(run_locust, small_vllm, tmp_path, EVEN, flags)
    assert run.summary["completed"] == 2
    assert "has written its trace" in run.err
    assert list(profiles.glob("*.pt.trace.json*"))


def test_a_vllm_without_these_endpoints_is_one_sentence(
    vllm_without_cache: Server,
) -> None:
    """Catches a 404 of vLLM that ends in a traceback."""
    session = Session()
    url = vllm_without_cache.url
    assert VLLM.reset_cache(session, url) == VLLM.cache_reset_note
    assert VLLM.start_profiler(session, url) == VLLM.profile_note
