"""Every kind of traffic against the real llama-server, by the locustfiles that come with
llama-load."""

from __future__ import annotations

import base64
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llama_load.servers.serving.launch import Server
from llama_load.servers.serving.projector_maker import cached_projector
from tests.conftest import REPOSITORY, TINY, Finished, embedded_server
from tests.loadgen.workloads.data import drawn
from tests.swarms import swarm

Run = Callable[..., Finished]
FILES = REPOSITORY / "locustfiles"


@pytest.fixture(scope="module")
def seeing_server(
    tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A llama-server with a vision projector; larger images cost more tokens."""
    flags = ("-a", "eyes", "--mmproj", str(cached_projector(TINY.dim, dynamic=True)))
    with embedded_server(
        tiny_model, tmp_path_factory.mktemp("seeing"), *flags
    ) as running:
        yield running


@pytest.fixture(scope="module")
def embedding_server(
    tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    with embedded_server(
        tiny_model,
        tmp_path_factory.mktemp("embedding"),
        "-a",
        "vectors",
        "--embeddings",
    ) as running:
        yield running


@pytest.fixture(scope="module")
def ranking_server(
    tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    with embedded_server(
        tiny_model, tmp_path_factory.mktemp("ranking"), "-a", "ranks", "--reranking"
    ) as running:
        yield running


def rows(done: Finished) -> list[dict[str, Any]]:
    """The measured records in order of their starts."""
    return sorted(
        done.records.measured().table.to_pylist(),
        key=lambda row: row["started_mono_ns"],
    )


def not_comparable(done: Finished) -> list[str]:
    """What the verdict says was measured instead of what was asked for. (How busy this machine is
    does not matter here.)"""
    names = (
        "cached_prompt_ratio",
        "cut_by_context_ratio",
        "failure_ratio",
        "missing_records",
    )
    checks = done.summary["llama_load"]["verdict"]["checks"]
    return [
        check["text"] for check in checks if check["name"] in names and not check["ok"]
    ]


def by_conversation(done: Finished) -> list[list[dict[str, Any]]]:
    talks: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows(done):
        talks[row["conversation"]].append(row)
    return list(talks.values())


@pytest.fixture
def talks(tmp_path: Path) -> Path:
    """Twelve conversations of four exchanges, some in Chinese."""
    entries = []
    for number in range(12):
        turns = []
        for turn in range(4):
            question = (
                f"问题 {number}.{turn}：请解释一下？"
                if number % 3 == 0
                else f"Question {number}.{turn}: what do you think of it?"
            )
            turns += [
                {"from": "human", "value": question},
                {"from": "gpt", "value": f"recorded {number}.{turn} " + "word " * 12},
            ]
        entries.append({"id": f"talk-{number}", "conversations": turns})
    file = tmp_path / "talks.json"
    file.write_text(json.dumps(entries, ensure_ascii=False), encoding="utf-8")
    return file


def test_conversations(llama_server: Server, run_locust: Run, talks: Path) -> None:
    """Three turns each, one after the other, with a growing history of what the model said."""
    arguments = [
        "--dataset-path",
        str(talks),
        "--turns",
        "3",
        "--system-prompt",
        "Be brief. 简短回答。",
    ]
    arguments += [
        "--num-prompts",
        "8",
        "-u",
        "2",
        "--save-texts",
        "--think-time",
        "0.05",
        "--bust-prefix-cache",
        "--max-tokens",
        "6",
    ]
    done = run_locust(llama_server.url, *arguments)
    assert done.code == 0, done.err
    assert sorted(row["prompt_index"] for row in rows(done)) == list(range(8))
    found = by_conversation(done)
    assert sorted(len(talk) for talk in found) == [2, 3, 3]
    for talk in found:
        assert [row["turn"] for row in talk] == list(range(1, len(talk) + 1))
        first, second = talk[0], talk[1]
        assert second["started_mono_ns"] - first["ended_mono_ns"] >= 50e6
        messages = json.loads(second["prompt_text"])
        assert [message["role"] for message in messages] == [
            "system",
            "user",
            "assistant",
            "user",
        ]
        assert messages[0]["content"].endswith("Be brief. 简短回答。")
        assert messages[2]["content"] == first["output_text"]
        assert second["prompt_tokens"] > first["prompt_tokens"]
        assert second["cached_tokens"] > first["cached_tokens"]
    turns = done.summary["llama_load"]["by_turn"]
    assert [turns[turn]["completed"] for turn in ("1", "2", "3")] == [3, 3, 2]
    assert done.out.partition("-Turns-")[2]
    assert not_comparable(done) == [], "a conversation's own history may be cached"


@pytest.mark.heavy
def test_a_user_that_is_taken_away_in_the_middle_of_a_conversation(
    llama_server: Server, run_locust: Run, talks: Path, tmp_path: Path
) -> None:
    """Six users become one after half a second: what they leave of their conversations is sent by
    the one that stays. Catches turns that are lost, or sent twice, with a stopped user."""
    file = tmp_path / "shrinks.py"
    file.write_text(
        "from locust import LoadTestShape, task\nfrom llama_load import LlamaUser, ShareGPT\n\n\n"
        "class Talk(LlamaUser):\n    workload = ShareGPT()\n\n    @task\n    def ask(self):\n        self.chat(max_tokens=8)\n\n\n"
        "class Shrinks(LoadTestShape):\n    def tick(self):\n        return (6, 6) if self.get_run_time() < 1.5 else (1, 6)\n"
    )
    arguments = (
        "--dataset-path",
        str(talks),
        "--turns",
        "all",
        "--num-prompts",
        "48",
        "--think-time",
        "0.3",
        "--warmup",
        "0",
    )
    done = run_locust(llama_server.url, *arguments, locustfile=file)
    assert done.code == 0, done.err
    ended = [row for row in rows(done) if row["status"] != "cancelled"]
    assert sorted(row["prompt_index"] for row in ended) == list(range(48))


AMID = """
import gevent
from locust import task
from llama_load import LlamaUser, ShareGPT

class Talk(LlamaUser):
    workload = ShareGPT()

    @task
    def ask(self):
        with gevent.Timeout({timeout}, False):
            self.chat(max_tokens={tokens})
        self.chat("words of my own", max_tokens=4)
"""


def test_own_words_between_the_turns_of_a_conversation(
    llama_server: Server, run_locust: Run, talks: Path, tmp_path: Path
) -> None:
    """They count, and the turns that came with their permission are sent by somebody all the
    same."""
    file = tmp_path / "amid.py"
    file.write_text(AMID.format(timeout=60, tokens=4))
    done = run_locust(
        llama_server.url,
        "--dataset-path",
        str(talks),
        "--turns",
        "3",
        "--num-prompts",
        "9",
        "-u",
        "2",
        locustfile=file,
    )
    assert done.code == 0, done.err
    assert sorted(row["prompt_index"] for row in rows(done)) == list(range(9))


def test_a_turn_that_the_locustfile_gives_up_on_is_history_as_recorded(
    llama_server: Server, run_locust: Run, talks: Path, tmp_path: Path
) -> None:
    file = tmp_path / "impatient.py"
    file.write_text(
        AMID.format(timeout=0.03, tokens=2000).replace(
            'self.chat("words of my own", max_tokens=4)', "pass"
        )
    )
    arguments = (
        "--dataset-path",
        str(talks),
        "--turns",
        "2",
        "--num-prompts",
        "4",
        "-u",
        "1",
        "--warmup",
        "0",
        "--save-texts",
    )
    done = run_locust(
        llama_server.url, *arguments, "--fail-if", "failure_ratio>1", locustfile=file
    )
    first, second = by_conversation(done)[0]
    assert first["status"] == "client_timeout", done.err
    assert [message["content"][:8] for message in json.loads(second["prompt_text"])][
        1
    ] == "recorded"


def test_conversations_as_bare_text(
    llama_server: Server, run_locust: Run, talks: Path
) -> None:
    arguments = (
        "--dataset-path",
        str(talks),
        "--turns",
        "2",
        "--num-prompts",
        "4",
        "--system-prompt",
        "Be brief.",
        "--save-texts",
    )
    done = run_locust(llama_server.url, *arguments, locustfile=FILES / "completions.py")
    assert done.code == 0, done.err
    assert all(
        re.match(r"\d{8}\nBe brief\.\n\n", row["prompt_text"]) for row in rows(done)
    )
    assert set(done.records.strings("endpoint")) == {"completions"}
    assert done.summary["median_ttft_ms"] > 0
    assert done.summary["endpoint_type"] == "openai"


def test_long_documents(llama_server: Server, run_locust: Run) -> None:
    """600 tokens each by the server's own count, all different."""
    arguments = (
        "--num-prompts",
        "3",
        "-u",
        "2",
        "--document-tokens",
        "600",
        "--max-tokens",
        "2",
    )
    done = run_locust(
        llama_server.url, *arguments, locustfile=FILES / "long_document.py"
    )
    assert done.code == 0, done.err
    records = done.records.measured()
    assert (np.abs(records.numbers("prompt_tokens") - 660) < 60).all(), records.numbers(
        "prompt_tokens"
    )
    assert len(set(records.strings("prompt_sha256"))) == 3
    assert not_comparable(done) == []


def test_one_document_with_many_questions_is_answered_from_the_cache(
    llama_server: Server, run_locust: Run
) -> None:
    """With --document-cache shared that is what is meant, and the verdict knows."""
    arguments = (
        "--num-prompts",
        "4",
        "-u",
        "1",
        "--document-tokens",
        "600",
        "--max-tokens",
        "2",
        "--document-cache",
        "shared",
    )
    done = run_locust(
        llama_server.url, *arguments, locustfile=FILES / "long_document.py"
    )
    assert done.code == 0, done.err
    assert (done.records.measured().numbers("cached_tokens")[1:] > 520).all()
    assert not_comparable(done) == []


def test_vision(seeing_server: Server, run_locust: Run) -> None:
    """Two made-up pictures a request; what they cost in prompt tokens is reported."""
    arguments = (
        "--num-prompts",
        "3",
        "-u",
        "2",
        "--max-tokens",
        "2",
        "--images-per-request",
        "2",
        "--image-size",
        "112x84",
    )
    done = run_locust(seeing_server.url, *arguments, locustfile=FILES / "vision.py")
    assert done.code == 0, done.err
    ours = done.summary["llama_load"]
    assert ours["total_images"] == 6
    assert 20 < ours["tokens_per_image"] < 200
    assert (
        f"{'Mean prompt tokens an image:':<40} {ours['tokens_per_image']:<10.2f}"
        in done.out
    )
    assert len(set(done.records.strings("prompt_sha256"))) == 4
    assert done.manifest["targets"][0]["modalities"]["vision"] is True


def test_pictures_for_a_server_that_cannot_see(
    llama_server: Server, run_locust: Run
) -> None:
    done = run_locust(
        llama_server.url,
        "--num-prompts",
        "2",
        "--image-size",
        "56x56",
        locustfile=FILES / "vision.py",
    )
    assert done.code == 2, done.out
    assert "cannot see" in done.err


def test_a_mixture_of_documents_and_images(
    seeing_server: Server, run_locust: Run
) -> None:
    """The reference's table: a row a request, four of each task."""
    arguments = [
        "--num-prompts",
        "8",
        "-u",
        "4",
        "--max-tokens",
        "4",
        "--document-tokens",
        "300",
        "--image-size",
        "112x112",
    ]
    done = run_locust(seeing_server.url, *arguments, locustfile=FILES / "mixed.py")
    assert done.code == 0, done.err
    report = (done.folder / "report.md").read_text(encoding="utf-8")
    assert (
        "| Task | Elapse | Tokens Per Second | Prompt Per Second | Predict Per Second | Prompt | Predict |"
        in report
    )
    table = [
        line.split("|")[1:-1]
        for line in report.partition("## Requests")[2].splitlines()
        if line.startswith(("| doc", "| vis"))
    ]
    assert [cells[0].strip() for cells in table].count("document") == 4
    assert len(table) == 8
    for row in rows(done):
        expected = (row["prompt_tokens"] + row["output_tokens"]) / row["e2el_ms"] * 1e3
        assert any(cells[2].strip() == f"{expected:.1f}" for cells in table)
    assert {"document", "vision"} == set(done.summary["llama_load"]["by_workload"])
    assert max(map(len, done.report_lines)) <= 80


def test_images_are_new_to_the_server_in_each_run(
    seeing_server: Server, run_locust: Run, tmp_path: Path
) -> None:
    """A line of text goes before them, because servers cache images too. It does not change what an
    image costs."""
    for number, image in enumerate(drawn(2, (112, 112), "png", 5)):
        (tmp_path / f"{number}.png").write_bytes(
            base64.b64decode(image.data_url.partition(b",")[2])
        )
    flags = (
        "--images",
        str(tmp_path),
        "--num-prompts",
        "2",
        "--max-tokens",
        "4",
        "--warmup",
        "0",
    )
    seeds = {"seed": ("--seed", "0"), "new": ()}
    runs = {
        name: run_locust(
            seeing_server.url,
            *flags,
            *seed,
            locustfile=FILES / "vision.py",
            folder=tmp_path / name,
        )
        for name, seed in seeds.items()
    }
    costs = [done.summary["llama_load"]["tokens_per_image"] for done in runs.values()]
    assert costs[0] == costs[1] is not None, runs["new"].err
    known = runs["new"].manifest
    assert (
        runs["new"].records.numbers("cached_tokens").max()
        <= known["targets"][0]["head_tokens"] + known["prefix_tokens"]
    )
    assert "their number of tokens is not known before the run" in " ".join(
        runs["new"].err.split()
    )


def test_embeddings(embedding_server: Server, run_locust: Run) -> None:
    """Batches of four texts; there are no tokens to be timed, and the block has none."""
    arguments = ("--num-prompts", "2", "-u", "2", "--batch-size", "4", "--warmup", "0")
    done = run_locust(
        embedding_server.url, *arguments, locustfile=FILES / "embeddings.py"
    )
    assert done.code == 0, done.err
    assert done.summary["llama_load"]["total_inputs"] == 8
    assert done.summary["endpoint_type"] == "openai-embeddings"
    rate = 8 / done.summary["duration"]
    assert f"{'Input throughput (inputs/s):':<40} {rate:<10.2f}" in done.out
    block = done.out.partition("More from the Client")[0]
    assert "TTFT" not in block
    assert "generated" not in block
    assert "Mean E2EL (ms):" in block


OWN_RANKING = """
from locust import task
from llama_load import LlamaUser


class OwnRanking(LlamaUser):
    @task
    def rank(self):
        assert self.rerank("x " * 60, [str(number) for number in range(32)]).ok
"""


def test_reranking(ranking_server: Server, run_locust: Run, tmp_path: Path) -> None:
    """A query and four documents: the documents are the inputs. The server's tokens are those of
    the query with each of them: more than the request has bytes, where the query is long and the
    documents are short."""
    own = tmp_path / "own.py"
    own.write_text(OWN_RANKING)
    arguments = (
        "--num-prompts",
        "4",
        "-u",
        "2",
        "--warmup",
        "0",
        "--batch-size",
        "4",
        "--endpoint",
        "rerank",
        "--fail-if",
        "failed>0",
    )
    done = run_locust(
        ranking_server.url, *arguments, locustfile=f"{FILES / 'rerank.py'},{own}"
    )
    assert done.code == 0, done.err
    found = {
        (row["workload"], row["endpoint"], row["inputs"], row["prompt_token_source"])
        for row in rows(done)
    }
    assert found == {
        ("rerank", "rerank", 4, "usage"),
        ("OwnRanking", "rerank", 32, "usage"),
    }
    assert all(
        row["prompt_tokens"] > 32 * 60
        for row in rows(done)
        if row["workload"] == "OwnRanking"
    )
    assert done.summary["endpoint_type"] == "vllm-rerank"
    assert "4 rerank requests from" in " ".join(done.err.split())
    assert "Input throughput (inputs/s):" in done.out
    assert "TTFT" not in done.out.partition("More from the Client")[0]


def test_answers_that_are_not_streamed(llama_server: Server, run_locust: Run) -> None:
    """Chats and bare text: E2EL is all that can be seen, and the server's own counts hold."""
    both = f"{FILES / 'sharegpt_chat.py'},{FILES / 'completions.py'}"
    arguments = ("--num-prompts", "6", "-u", "2", "--max-tokens", "4", "--no-stream")
    done = run_locust(llama_server.url, *arguments, locustfile=both)
    assert done.code == 0, done.err
    assert set(done.records.strings("endpoint")) == {"chat", "completions"}
    assert done.summary["total_output_tokens"] == 24
    assert done.summary["mean_ttft_ms"] is None
    assert done.summary["mean_e2el_ms"] > 0
    assert "Mean E2EL (ms):" in done.out
    assert "Mean TTFT (ms):" not in done.out


def test_several_user_classes_in_one_run(llama_server: Server, run_locust: Run) -> None:
    """-f with two files: a summary overall and one a workload, each with its own prompts from the
    first on. The synthetic ones have 200 tokens, 64 of them a shared beginning that comes from the
    cache, within 1 % by the server's own count."""
    both = f"{FILES / 'sharegpt_chat.py'},{FILES / 'synthetic.py'}"
    lengths = ("--input-len", "200", "--prefix-len", "64", "--output-len", "9")
    done = run_locust(
        llama_server.url, *("--num-prompts", "12", "-u", "2"), *lengths, locustfile=both
    )
    assert done.code == 0, done.err
    parts = done.summary["llama_load"]["by_workload"]
    assert set(parts) == {"sharegpt", "synthetic"}
    assert sum(part["completed"] for part in parts.values()) == 12
    assert sorted(row["prompt_index"] for row in rows(done)) == list(range(12))
    assert len(set(done.records.strings("prompt_sha256"))) == 13

    records = done.records.measured()
    records = records.where(records.equals("workload", "synthetic"))
    (template,) = {target["template_tokens"] for target in done.manifest["targets"]}
    found = records.numbers("prompt_tokens") - template
    assert len(found) > 2 and (np.abs(found - 264) <= 3).all(), found
    assert (records.numbers("output_tokens") == 9).all()
    assert (records.numbers("cached_tokens")[2:] >= 60).all()


@pytest.mark.heavy
@pytest.mark.parametrize("file", ["sharegpt_chat.py", "vision.py", "mixed.py"])
def test_every_kind_of_traffic_in_a_swarm(
    seeing_server: Server, talks: Path, tmp_path: Path, file: str
) -> None:
    """Two workers that have no data: conversations stay with one user, images come with their
    leases, each request once. Catches a kind of prompt that does not survive its way to a
    worker."""
    arguments = [
        "--num-prompts",
        "18",
        "-u",
        "4",
        "--max-tokens",
        "8",
        "--image-size",
        "112x112",
        "--document-tokens",
        "600",
    ]
    arguments += ["--turns", "3"] + (
        ["--dataset-path", str(talks)] if file == "sharegpt_chat.py" else []
    )
    with swarm(
        tmp_path / "s", seeing_server.url, 2, *arguments, locustfile=FILES / file
    ) as running:
        done = running.finish()
    assert done.code == 0, done.err
    assert sorted(row["prompt_index"] for row in rows(done)) == list(range(18))
    assert len({row["worker"] for row in rows(done)}) == 2
    if file == "sharegpt_chat.py":
        for talk in by_conversation(done):
            assert [row["turn"] for row in talk] == [1, 2, 3]
            assert len({row["worker"] for row in talk}) == 1
