"""Conversations on llama.cpp's own llama-server, in one process and in a swarm: every turn against
the server's own log."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from llama_load.ground.bundled import bundled
from llama_load.servers.kinds import ServerSpec
from llama_load.servers.serving.launch import Server, serving
from llama_load.servers.serving.model_maker import ModelSize, cached_model
from tests.conftest import REPOSITORY, Finished

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]
Run = Callable[..., Finished]
RECORDED = REPOSITORY / "locustfiles" / "conversations.py"
AGENT = REPOSITORY / "locustfiles" / "agent.py"
# Of each request: the tokens that were processed for its prompt, and those that it generated.
PROCESSED = re.compile(r"prompt eval time = +[\d.]+ ms / +(\d+) tokens")
GENERATED = re.compile(r"(?<!prompt) eval time = +[\d.]+ ms / +(\d+) tokens")


@pytest.fixture(scope="module")
def server(
    llama_cpp: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Four slots of 4096 tokens, with the chat template of the model."""
    model = cached_model(ModelSize(), bundled("datasets/sharegpt_sample.json"))
    args = ("-np", "4", "-c", "16384", "-t", "1", "--metrics", "--jinja")
    spec = ServerSpec(
        kind="llama-server",
        model=str(model),
        program=str(llama_cpp / "llama-server"),
        args=args,
    )
    with serving(spec, tmp_path_factory.mktemp("conversations")) as started:
        yield started


def logged(server: Server, begin: int, pattern: re.Pattern[str]) -> list[int]:
    """A count of every request since `begin`, in ascending order."""
    return sorted(
        map(int, pattern.findall(server.log.read_text(errors="replace")[begin:]))
    )


@pytest.mark.parametrize(
    "swarm", [(), ("--processes", "2")], ids=["one process", "swarm"]
)
def test_recorded_conversations_are_what_the_server_logged(
    server: Server, run_locust: Run, swarm: tuple[str, ...]
) -> None:
    """Tools, tool results, sub-agents in parallel: as many requests as in the log, with their
    tokens, and the turns in order. Catches turns that llama-server's template makes longer or
    shorter than planned."""
    begin = len(server.log.read_text(errors="replace"))
    flags = (
        "-u",
        "3",
        "--num-prompts",
        "36",
        "--max-tokens",
        "24",
        "--ignore-eos",
        "--warmup",
        "0",
    )
    done = run_locust(server.url, *flags, *swarm, locustfile=RECORDED)
    assert done.code == 0, done.err + done.out
    records = done.records.measured()
    assert len(records.ok()) == 36
    processed = records.numbers("prompt_tokens") - records.numbers("cached_tokens")
    assert logged(server, begin, PROCESSED) == sorted(processed.astype(int))
    assert logged(server, begin, GENERATED) == sorted(
        records.numbers("output_tokens").astype(int)
    )

    started, ended = (
        records.instants("started_mono_ns"),
        records.instants("ended_mono_ns"),
    )
    agents, talks, turns = (
        records.strings("agent"),
        records.strings("conversation_start"),
        records.numbers("turn"),
    )
    last: dict[tuple[str | None, str | None], int] = {}
    for row in np.argsort(started, kind="stable"):
        key = talks[row], agents[row]
        if key in last:
            assert started[row] >= ended[last[key]] and turns[row] > turns[last[key]], (
                key
            )
        last[key] = row
    figures = done.summary["llama_load"]["conversations"]
    of_several = [talk for talk, count in Counter(talks).items() if count > 1]
    assert figures["count"] == len(of_several)


def test_an_agent_grows_its_context_and_finds_it_in_the_cache(
    server: Server, run_locust: Run
) -> None:
    """Without flags, on slots of 4096 tokens: nothing overflows, and later turns process what is
    new only. Catches a prompt that does not repeat its history to the token, which only a real
    cache notices."""
    begin = len(server.log.read_text(errors="replace"))
    done = run_locust(
        server.url,
        "-u",
        "2",
        "--num-prompts",
        "16",
        "--max-tokens",
        "24",
        locustfile=AGENT,
    )
    assert done.code == 0, done.err + done.out
    records = done.records.measured()
    assert len(records.ok()) == len(records) == 16
    assert set(logged(server, begin, PROCESSED)) >= set(
        (records.numbers("prompt_tokens") - records.numbers("cached_tokens")).astype(
            int
        )
    )
    later = records.numbers("turn") > 1
    share = (
        records.numbers("cached_tokens")[later].sum()
        / records.numbers("prompt_tokens")[later].sum()
    )
    assert share > 0.3, share


def test_stages_of_conversations_keep_their_levels(
    server: Server, run_locust: Run
) -> None:
    """Two alive, then four, waits included; the verdict is another matter in stages as short as
    this. Catches levels that real waits and a real server's pace do not reach."""
    flags = (
        "--stages",
        "2:6s,4:6s",
        "--max-tokens",
        "16",
        "--think-time",
        "constant:0.3",
    )
    done = run_locust(server.url, *flags, "--processes", "2", locustfile=RECORDED)
    assert done.folder.joinpath("summary.json").exists(), done.err + done.out
    stages = done.summary["llama_load"]["by_stage"]
    assert [stage["conversations"]["peak"] for stage in stages.values()] == [2, 4], (
        done.err + done.out
    )
