"""Searches and tunings to their end on the real llama-server, and what watching does to servers."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from llama_load.servers.kinds import ServerSpec
from llama_load.servers.serving.launch import serving
from tests.conftest import Finished, environment, run_to_the_end

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(400)]
COMMAND = (sys.executable, "-m", "llama_load.cli.main")
WITHIN_S = 380


def test_a_capacity_is_searched_to_its_end(
    llama_cpp: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """One slot, so that others wait: without a limit of time or requests there is an upper bound,
    but where other programs keep the probes from one, which the answer says. Catches a search that
    the noise of a real server keeps from ending."""
    server = f"{llama_cpp / 'llama-server'} -m {tiny_model} -c 2048 -np 1 -t 1"
    command = [*COMMAND, "capacity", "--serve", server, "--out", "c", "--goodput"]
    command += ["ttft:400", "--max-users", "64", "--", "--max-tokens", "48"]
    done = run_to_the_end(command, WITHIN_S, env=environment(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    found = json.loads((tmp_path / "c" / "search.json").read_bytes())
    if found["high"] is None:
        assert (
            "other programs" in found["ended_early"] or "client" in found["ended_early"]
        )
    else:
        assert found["low"] <= found["capacity"] <= found["high"]

    text = " ".join(done.stdout.split())
    is_named = "NOT COMPARABLE, see the notes" in text
    assert is_named is bool(found["not_ranked"])
    for probe in found["probes"]:
        assert (tmp_path / "c" / probe["run"] / "run.json").exists()


TUNED = """
servers: {a: {llama-server: {program: PROGRAM, model: MODEL, args: "-c 8192 -np 4 -t 1"}}}
vary: {batch: {a.args+: ["-b 16 -ub 16", "-b 512 -ub 512"]}}
workload: synthetic
load: {u: 1, num-prompts: 24, input-len: 1500, max-tokens: 4}
idle-s: 0
"""


@pytest.mark.timing
def test_a_tuning_ends_with_a_real_winner(
    llama_cpp: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """Prompts that are processed 16 tokens at a time, by default, or 512 at a time: the second wins
    with confidence, and the command line to start it is printed first. The pairs of a block meet
    the same other programs, unless these keep the client itself from its work in block after block.
    Catches a tuning that does not see a setting's real effect."""
    text = TUNED.replace("PROGRAM", str(llama_cpp / "llama-server"))
    (tmp_path / "plan.yaml").write_text(text.replace("MODEL", str(tiny_model)))
    command = [*COMMAND, "tune", "plan.yaml", "--goodput", "ttft:60000", "--out", "t"]
    done = run_to_the_end(command, WITHIN_S, env=environment(), cwd=tmp_path)
    said = done.stderr + done.stdout
    if "runs in a row were disturbed" in said or "can be judged: " in said:
        assert "CLIENT-BOUND" in said, said
        pytest.skip("other programs kept the client from its work")
    assert done.returncode == 0, said

    first = done.stdout.splitlines()[0]
    assert "-b 512 -ub 512" in first and f"-m {tiny_model}" in first
    (stage,) = json.loads((tmp_path / "t" / "tune.json").read_bytes())["stages"]
    assert (stage["winner"], stage["is_real"]) == ("batch=-b 512 -ub 512", True)
    gain, low, high = stage["gain"]
    assert 0.03 < low <= gain <= high


REQUEST = re.compile(r"\b(GET|POST) (/[^\s?\"]*)")
SAMPLED = ("/slots", "/metrics")


def requests_in(log: str) -> Counter[tuple[str, str]]:
    """The requests that a server logged."""
    return Counter(REQUEST.findall(log))


def seen_by(
    spec: ServerSpec, run_locust: Callable[..., Finished], folder: Path, interval_s: str
) -> tuple[Counter[tuple[str, str]], Mapping[str, object]]:
    """The requests that a server of its own logged in a run, and the run's counts. No check of
    the run names another client."""
    with serving(spec, folder / "server") as server:
        before = _log_of(folder)
        load = ("-u", "2", "--num-prompts", "16", "--max-tokens", "24")
        flags = ("--seed", "7", "--telemetry-interval", interval_s)
        done = run_locust(server.url, *load, *flags, folder=folder / "run")
        log = _log_of(folder)[len(before) :]
    assert done.code == 0, done.err
    checks = done.summary["llama_load"]["verdict"]["checks"]
    doubts = [check["text"] for check in checks if not check["ok"]]
    assert not any("another client" in text for text in doubts)
    keys = ("completed", "failed", "total_input_tokens", "total_output_tokens")
    return requests_in(log), {key: done.summary[key] for key in keys}


def test_watching_changes_nothing(
    llama_cpp: Path,
    tiny_model: Path,
    run_locust: Callable[..., Finished],
    tmp_path: Path,
) -> None:
    """A run with telemetry each 0.1 s and one without, each on a server of its own: the same
    requests in the server's log but for the pages that telemetry reads, and the same counts.
    Catches requests of telemetry that a real llama-server logs as load."""
    program = llama_cpp / "llama-server"
    args = ("-c", "4096", "-np", "2", "-t", "1", "--metrics")
    spec = ServerSpec("llama-server", str(tiny_model), str(program), args)
    unwatched, counts = seen_by(spec, run_locust, tmp_path / "0", "0")
    watched, watched_counts = seen_by(spec, run_locust, tmp_path / "0.1", "0.1")
    assert watched_counts == counts
    others = []
    for logged in (unwatched, watched):
        others.append({of: n for of, n in logged.items() if of[1] not in SAMPLED})
    assert others[0] == others[1]


def test_watching_llama_cpp_python_asks_it_nothing(
    llama_cpp_python: Path,
    tiny_model: Path,
    run_locust: Callable[..., Finished],
    tmp_path: Path,
) -> None:
    """It has no pages for telemetry, and interrupts an answer for the next request where it may
    (--interrupt_requests): its log has the same requests with and without. Catches a look at llama-
    cpp-python that interrupts its answer."""
    args = ("--n_ctx", "2048", "--n_threads", "1", "--interrupt_requests", "false")
    spec = ServerSpec("llama-cpp-python", str(tiny_model), str(llama_cpp_python), args)
    unwatched = seen_by(spec, run_locust, tmp_path / "0", "0")
    watched = seen_by(spec, run_locust, tmp_path / "0.1", "0.1")
    assert watched == unwatched
    assert watched[0]["POST", "/v1/chat/completions"] >= 16


def _log_of(folder: Path) -> str:
    return "".join(file.read_text() for file in sorted(folder.glob("server*/*.log")))
