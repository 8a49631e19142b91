"""Probes beside the load of a real llama-server: their figures against the server's own log, in one
process and in a swarm."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llama_load.cli.main import main
from llama_load.ground.bundled import bundled
from llama_load.run_folder.observed.probe_names import ALONE, BESIDE, SETTLING
from llama_load.run_folder.observed.record import CANCELLED
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.probe_file import PROBE_JOURNAL, PROBES, load_probes
from llama_load.servers.kinds import ServerSpec
from llama_load.servers.serving.launch import Server, serving
from llama_load.servers.serving.model_maker import ModelSize, cached_model
from llama_load.servers.serving.projector_maker import cached_projector
from tests.conftest import REPOSITORY, Finished, environment, locust_command

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(200)]
MIXED = REPOSITORY / "locustfiles" / "mixed.py"
SIZE = ModelSize(layers=4, dim=256, ff=768)
Run = Callable[..., Finished]
# Of each request: the tokens of its prompt, and those taken from the cache.
PROMPT = re.compile(r"task (\d+) \| new prompt, .*task\.n_tokens = (\d+)")
CACHED = re.compile(r"task (\d+) \| cached n_tokens = (\d+)")
MOST_PROBE_TOKENS = 100  # documents and images have hundreds


@pytest.fixture(scope="module")
def server(
    llama_cpp: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """llama.cpp's llama-server with four slots, which reads images."""
    model = cached_model(SIZE, bundled("datasets/sharegpt_sample.json"))
    args = (
        "-np",
        "4",
        "-c",
        "16384",
        "-t",
        "1",
        "--metrics",
        "--mmproj",
        str(cached_projector(SIZE.dim)),
    )
    spec = ServerSpec(
        kind="llama-server",
        model=str(model),
        program=str(llama_cpp / "llama-server"),
        args=args,
    )
    with serving(spec, tmp_path_factory.mktemp("probed")) as started:
        yield started


def probes_of(folder: Path) -> Records:
    probes = load_probes(folder)
    assert probes is not None
    return probes


def checks_of(done: Finished) -> dict[str, Any]:
    return {
        check["name"]: check
        for check in done.summary["llama_load"]["verdict"]["checks"]
    }


def small_tasks(log: str) -> dict[str, int]:
    """The prompt tokens of the tasks that are as small as a probe, by the number of the task."""
    return {
        task: int(tokens)
        for task, tokens in PROMPT.findall(log)
        if int(tokens) < MOST_PROBE_TOKENS
    }


@pytest.mark.parametrize(
    "processes", [(), ("--processes", "2")], ids=["one process", "swarm"]
)
def test_probes_are_what_the_server_saw_and_in_no_figure_of_the_load(
    server: Server, run_locust: Run, processes: tuple[str, ...]
) -> None:
    """Documents and images, twelve of each, with probes at 3/s. The server's log has as many small
    prompts as there are probes, with their tokens, none of them from its cache; its counters less
    the probes are the load's. Catches a probe that the real server counts as load, or answers from
    its cache."""
    begin = len(server.log.read_text(errors="replace"))
    arguments = (
        "-u",
        "3",
        "--num-prompts",
        "24",
        "--max-tokens",
        "48",
        "--document-tokens",
        "1500",
        "--probe-rate",
        "3",
        "--ignore-eos",
    )
    done = run_locust(server.url, *arguments, *processes, locustfile=MIXED)
    assert done.code == 0, done.err + done.out
    log = server.log.read_text(errors="replace")[begin:]

    probes, summary = probes_of(done.folder), done.summary
    answered = probes.ok()
    names = Counter(probes.strings("name"))
    assert (names[SETTLING], names[ALONE]) == (1, 9)
    assert len(set(probes.strings("prompt_sha256"))) == len(probes)
    seen = small_tasks(log)
    started = len(probes) - int(probes.equals("status", CANCELLED).sum())
    assert started <= len(seen) <= len(probes)
    if len(seen) == len(answered):
        assert sorted(seen.values()) == sorted(
            answered.numbers("prompt_tokens").astype(int)
        )
    assert {cached for task, cached in CACHED.findall(log) if task in seen} == {"0"}
    # The time to the first token includes the server's own time for the prompt.
    assert (answered.numbers("ttft_ms") >= answered.numbers("server_prompt_ms")).all()

    figures = summary["llama_load"]["probes"]
    assert (figures["alone"]["answered"], figures["total"]["sent"] > 5) == (9, True)
    beside, alone = (
        answered.where(answered.equals("name", name)).numbers("ttft_ms")
        for name in (BESIDE, ALONE)
    )
    window_ns = int(done.records.measured().instants("ended_mono_ns").max())
    first = answered.where(answered.equals("name", BESIDE)).instants(
        "first_token_mono_ns"
    )
    beside = beside[first < window_ns]
    assert figures["total"]["ttft_ms"]["p50"] == pytest.approx(np.median(beside))
    assert figures["total"]["ttft_ratio"] == pytest.approx(
        np.median(beside) / np.median(alone)
    )
    assert set(figures["by_class"]) <= {
        "idle",
        "only answers",
        "document",
        "vision",
        "document + vision",
    }
    prompts = [
        sample
        for name, sample in figures["by_class"].items()
        if name not in ("idle", "only answers")
    ]
    assert sum(sample["sent"] for sample in prompts) > 0

    # The books of the load.
    measured = done.records.measured()
    assert (
        len(measured),
        summary["completed"],
        set(measured.values_of("workload")),
    ) == (24, 24, {"document", "vision"})
    assert summary["total_output_tokens"] == 24 * 48
    assert not [
        name for name in summary["llama_load"]["by_workload"] if "probe" in name
    ]
    checks = checks_of(done)
    for name in (
        "other_client_ratio",
        "probe_failure_ratio",
        "probe_cache_gap",
        "missing_records",
        "excess_in_flight",
    ):
        assert name not in checks or checks[name]["ok"], checks[name]
    assert "as many as were ours" in checks["other_client_ratio"]["text"]
    (pair,) = (
        pair
        for pair in summary["llama_load"]["client_server"]
        if pair["name"] == "output tokens"
    )
    assert abs(pair["client"] - pair["server"]) <= 8 * int(
        (~probes.equals("status", "ok")).sum()
    )
    assert "Probes: What a Bystander Feels" in done.out


def test_probes_of_a_run_that_is_killed_are_kept(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches probes that a kill -9 of the real process loses."""
    folder = tmp_path / "run"
    command = locust_command(
        server.url,
        folder,
        "-u",
        "2",
        "-t",
        "60s",
        "--probe-rate",
        "5",
        locustfile=MIXED,
    )
    process = subprocess.Popen(
        command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline_s = time.monotonic() + 60
        while time.monotonic() < deadline_s and (
            not (folder / PROBE_JOURNAL).exists()
            or BESIDE not in probes_of(folder).strings("name")
        ):
            time.sleep(0.2)  # between two looks
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    before = len(probes_of(folder))
    assert before > 10
    assert main(["report", str(folder)]) == 3
    assert (folder / PROBES).is_file() and not (folder / PROBE_JOURNAL).exists()
    assert len(probes_of(folder)) == before
    assert "beside the load" in capsys.readouterr().out


def test_a_cut_run_in_stages_names_what_it_lacks(
    server: Server, run_locust: Run
) -> None:
    """Stages of 4 s with 1 and 3 users: each probe is in the stage in which it was sent, and none
    in the warm-up between. Catches a probe that real waits put into the wrong stage."""
    done = run_locust(
        server.url,
        "--stages",
        "1:4s,3:4s",
        "--max-tokens",
        "32",
        "--document-tokens",
        "600",
        "--probe-rate",
        "4",
        "--warmup",
        "2",
        locustfile=MIXED,
    )
    figures, stages = done.summary["llama_load"]["probes"], done.manifest["stages"]
    started = probes_of(done.folder)
    started = started.where(started.equals("name", BESIDE)).instants("started_mono_ns")
    for stage in stages:
        inside = (started >= stage["begun_mono_ns"]) & (
            started < stage["ended_mono_ns"]
        )
        assert figures["by_stage"][stage["name"]]["sent"] == int(inside.sum()) > 8
    assert checks_of(done)["other_client_ratio"]["ok"], checks_of(done)[
        "other_client_ratio"
    ]
