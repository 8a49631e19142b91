"""All suites of truth with llama-load, and converted commands with the clients that are installed."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.referee.clients import CLIENTS
from tests.conftest import REPOSITORY
from tests.truth.test_run import run
from truth.cases import Answers, read_cases
from truth.convert import PROGRAMS, convert
from truth.log import Entry, read_log
from truth.server.serving import serving
from truth.tokenizer import make_tokenizer
from truth.tools import tool_named
from truth.work import Work

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]
PROGRAMS_HERE = Path(sys.executable).parent
SUITES = sorted({case.suite for case in read_cases()})
# Cases that truth/README.md lists as open: not yet seen true on a machine with nothing else on it.
OPEN = frozenset(("T2", "T3", "T8", "A2", "A4", "Q3"))


def was_judged(case: dict[str, Any]) -> bool:
    """Neither was the server late, nor did other programs use the machine, by llama-load's own
    verdict: then nobody could send on time."""
    has_others = any("other programs used" in doubt for doubt in case["doubts"])
    return not case["void"] and not has_others


@pytest.mark.parametrize("suite", SUITES)
def test_llama_load_passes_the_suite(suite: str) -> None:
    """Catches a figure of ours beyond a limit that we hold others to."""
    words = [
        "run",
        "--tool",
        "llama-load",
        "--bin",
        str(PROGRAMS_HERE),
        "--suite",
        suite,
    ]
    environment = dict(os.environ)
    environment.pop("LOCUST_SKIP_MONKEY_PATCH", None)
    done = subprocess.run(
        [sys.executable, "-m", "truth", *words, "--output", "json"],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env=environment,
        check=False,
    )
    cases = json.loads(done.stdout)["cases"]
    failed = {
        case["id"]: case for case in cases if not case["passed"] and was_judged(case)
    }
    assert failed.keys() <= OPEN, failed


def test_a_client_without_flaws_counts_and_fails_as_the_log_has_it(
    tmp_path: Path,
) -> None:
    """All shapes but wrong usage, and all faults. It doubts nothing, so that level true is right.
    Catches a judge that finds flaws where there are none."""
    suite = [f"C{number}" for number in range(1, 16) if number != 5]
    suite += [f"F{number}" for number in range(1, 9)] + ["Q1", "W1"]
    done = run(
        [*suite],
        "--save",
        str(tmp_path / "r.json"),
        "--badge",
        str(tmp_path / "b.json"),
    )
    cases = json.loads((tmp_path / "r.json").read_text())["cases"]
    wrong = {
        case["id"]: case for case in cases if case["verdict"] not in ("true", "void")
    }
    # its own delays on a busy machine are no matter of this test
    wrong = {
        number: case
        for number, case in wrong.items()
        if any(
            each["level"] != "true" and "error of" not in each["figure"]
            for each in case["findings"]
        )
        and number != "Q1"
    }
    assert not wrong, (wrong, done.stderr)
    assert json.loads((tmp_path / "b.json").read_text())["label"] == "truth"


def programs_of(name: str) -> Path | None:
    """Where a client's program lies; None if it is not installed."""
    for client in CLIENTS:
        if client.name == name and client.installed:
            return client.programs
    return None


def run_client(name: str, command: list[str], folder: Path) -> None:
    """With its own program and environment, to its end."""
    programs = programs_of(name)
    if programs is None:
        pytest.skip(f"{name} is not installed (make referee-clients)")
    environment = {**os.environ, **tool_named(name).env(WORK)}
    environment.pop("LOCUST_SKIP_MONKEY_PATCH", None)
    words = [str(programs / command[0]), *command[1:]]
    subprocess.run(
        words,
        check=False,
        timeout=200,
        env=environment,
        cwd=folder,
        capture_output=True,
    )


WORK = Work("", 24, 16, 48, streams=4)


def shape(entry: Entry) -> tuple[int, int, bool]:
    template = 16 if entry.path.endswith("chat/completions") else 0
    return entry.prompt_tokens - template, entry.tokens, entry.ignore_eos


@pytest.mark.parametrize("target", PROGRAMS)
def test_the_server_sees_the_same_work_from_a_converted_command(
    target: str, tmp_path: Path
) -> None:
    """From vllm's command: as many requests at least (probes may come before), of the same lengths.
    Catches a flag that we convert to other traffic than the other client sends."""
    tokenizer = make_tokenizer(tmp_path / "tokenizer")
    log = tmp_path / "log"
    with serving(Answers(first_token_ms=20, interval_ms=2), log) as url:
        work = Work(url, 24, 16, 48, streams=4, tokenizer=str(tokenizer), seed=3)
        command = shlex.join(tool_named("vllm").commands(work, tmp_path)[0])
        converted = command
        if target != "vllm":
            converted = shlex.join(convert(command, target, tmp_path).commands[0])
        run_client(target, shlex.split(converted), tmp_path)
    entries = [entry for entry in read_log(log).entries if entry.outcome == "ok"][-24:]
    assert len(entries) == 24
    assert {shape(entry) for entry in entries} == {(48, 16, True)}
