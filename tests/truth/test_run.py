"""`truth run`, with a client of the standard library whose flaws are known."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
import requests

from tests.conftest import REPOSITORY
from truth.cases import chosen, read_cases
from truth.cli import main, parser
from truth.runner import Client, unable
from truth.tools import tool_named

CLIENT = Path(__file__).with_name("plain_client.py")
COMMAND = [
    *(sys.executable, str(CLIENT), "--url", "{url}", "--csv", "{out}/rows.csv"),
    *(
        "--requests",
        "{requests}",
        "--tokens",
        "{tokens}",
        "--prompt-tokens",
        "{prompt_tokens}",
    ),
    *("--choices", "{choices}", "{load}"),
]

PLACES = ("{url}", "{requests}", "{streams}")


def truth(*words: str) -> subprocess.CompletedProcess[str]:
    """The command `truth`, without a start of Python."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(words)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def run(
    suite: list[str], *further: str, flaw: str = ""
) -> subprocess.CompletedProcess[str]:
    words = [
        "run",
        "--format",
        "csv",
        "--result",
        "{out}/rows.csv",
        "--closed",
        "--concurrency {streams}",
    ]
    flawed = [*COMMAND, "--flaw", flaw] if flaw else COMMAND
    return truth(*words, "--suite", *suite, *further, "--", *flawed)


def test_a_client_without_flaws_passes_the_short_forms(tmp_path: Path) -> None:
    """A form after another, a fault after another; and a badge of the two."""
    files = ["--save", str(tmp_path / "r.json"), "--badge", str(tmp_path / "b.json")]
    done = run(["C16", "F9"], *files)
    cases = json.loads((tmp_path / "r.json").read_text())["cases"]
    if any(case["void"].startswith("the server") for case in cases):
        pytest.skip("the machine is too busy for the server")
    wrong = [
        (case["id"], finding)
        for case in cases
        for finding in case["findings"]
        if finding["level"] != "right" and "error of" not in finding["figure"]
    ]
    assert not wrong, done.stderr
    badge = json.loads((tmp_path / "b.json").read_text())
    judged = sum(case["verdict"] != "void" for case in cases)
    assert badge["label"] == "truth" and badge["message"].endswith(f" of {judged}")


@pytest.mark.heavy
def test_cases_of_the_same_load_share_a_run_and_runs_are_repeated(
    tmp_path: Path,
) -> None:
    """C1 and W1 are judged by the client's run for C1, twice; each run has its folder. Catches a
    case that is judged by another case's run."""
    keep = ["--keep", str(tmp_path), "--save", str(tmp_path / "r.json")]
    done = run(["C1", "W1"], *keep, "--runs", "2")
    assert done.returncode in (0, 3), done.stdout  # 3: the machine is too busy
    logs = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("truth.jsonl"))
    assert list(map(str, logs)) == ["C1/truth.jsonl", "repeat-1/C1/truth.jsonl"]
    cases = json.loads((tmp_path / "r.json").read_text())["cases"]
    runs = [(case["id"], case["runs"] + case["void_runs"]) for case in cases]
    assert runs == [("C1", 2), ("W1", 2)]


@pytest.mark.parametrize(
    ("flaw", "case", "figure"),
    [
        ("late", "C1", ""),
        ("events", "C6", "output tokens"),
        ("cut", "F1", "failed"),
        ("short", "W1", "prompt tokens"),
        ("role", "C10", "error of TTFT, least / p50, ms"),
    ],
)
def test_a_flaw_is_found_by_its_case(flaw: str, case: str, figure: str) -> None:
    """And only there: a client whose times are late still counts correctly."""
    done = run([case], "--output", "json", flaw=flaw)
    (found,) = json.loads(done.stdout)["cases"]
    if found["void"].startswith("the server"):
        pytest.skip("the machine is too busy for the server")
    wrong = [each["figure"] for each in found["findings"] if each["level"] != "right"]
    assert figure in wrong if figure else not wrong
    if not found["void"]:
        assert done.returncode == (1 if figure else 0)


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("A3", "{rate}: give it by --open"),
        ("W3", "{prompts}"),
        ("S3", "{seconds}"),
        ("S5", "{warmup}"),
    ],
)
def test_a_case_for_which_the_command_has_no_place_is_not_asked(
    case: str, name: str
) -> None:
    done = run([case])
    assert done.returncode == 3 and "1 not asked" in done.stdout
    assert f"not asked: the command has no {name}" in done.stdout


def readme_example() -> list[str]:
    """The words of the command by which README runs any program."""
    text = (REPOSITORY / "truth" / "README.md").read_text(encoding="utf-8")
    block = re.search(r"```\n(truth run --format csv .*?)```", text, re.DOTALL)
    assert block is not None
    return shlex.split(block[1].replace("\\\n", " "))[1:]


def test_of_the_readme_example_only_lengths_of_prompts_are_not_asked() -> None:
    words = readme_example()
    place = words.index("--")
    given = parser().parse_args(words[:place])
    client = Client(
        tool_named("csv"), words[place + 1 :], closed=given.closed, open=given.open
    )
    cases = chosen(read_cases(), given.suite)
    assert len(cases) > 10
    reasons = {case.id: unable(client, case) for case in cases}
    assert {number: reason for number, reason in reasons.items() if reason} == {
        "W1": "the command has no {prompt_tokens}"
    }


@pytest.mark.heavy
def test_the_readme_example_passes_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches an example of README after which an author of a good client sees a wrong verdict."""
    program = tmp_path / "my-bench"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {CLIENT} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    done = truth(*readme_example())
    assert done.returncode == 0, done.stdout


def test_a_command_has_a_place_or_the_value_itself() -> None:
    """W1 asks for 40 requests of 100 + 25 tokens, 8 in flight; the open loop of A3 is Poisson."""
    cases = {case.id: case for case in read_cases()}
    words = ["c", "{url}", "-n", "40", "-c", "8", "--out", "25", "{load}"]

    def reason(number: str, *more: str, load: str = "") -> str:
        client = Client(tool_named("csv"), (*words, *more), open=load)
        return unable(client, cases[number])

    assert reason("W1") == "the command has no {prompt_tokens}"
    assert not reason("W1", "--in", "100") and not reason("W1", "--in={prompt_tokens}")
    assert not reason("T8") and reason("T2") == "the command has no {requests}"
    poisson = "-r {rate} -n {requests} --arrival poisson"
    assert not reason("A3", load=poisson)
    assert reason("A2", load=poisson) == "the command has no {arrival}"


def test_no_result_of_an_earlier_run_is_judged(tmp_path: Path) -> None:
    """The second client writes nothing."""
    assert run(["C6"], "--keep", str(tmp_path)).returncode in (0, 3)
    words = ["--format", "csv", "--result", "{out}/rows.csv", "--keep", str(tmp_path)]
    idle = [sys.executable, "-c", "", *PLACES]
    done = truth("run", *words, "--suite", "C6", "--", *idle)
    assert done.returncode == 1 and "no result" in done.stdout


def test_a_command_runs_where_its_user_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the path of its program and of its script as he writes them."""
    monkeypatch.chdir(tmp_path)
    Path("python").symlink_to(sys.executable)
    Path("client.py").write_text("print('ran here'); raise SystemExit(7)")
    done = truth("run", "--suite", "C6", "--", "./python", "client.py", *PLACES)
    assert done.returncode == 1
    assert "exit code 7: ran here" in done.stdout


def test_a_client_that_is_not_there_and_one_that_fails() -> None:
    missing = truth("run", "--suite", "C1", "--", "no-such-program", *PLACES)
    assert (
        missing.returncode,
        missing.stderr.count("no program 'no-such-program'"),
    ) == (2, 1)
    program = [sys.executable, "-c", "1 / 0", *PLACES]
    failing = truth("run", "--suite", "C1", "--output", "json", "--", *program)
    (case,) = json.loads(failing.stdout)["cases"]
    assert failing.returncode == 1 and case["verdict"] == "failed"
    assert "exit code 1" in case["failed"] and "ZeroDivisionError" in case["failed"]


def test_serve_then_judge_by_hand(tmp_path: Path) -> None:
    """Each case has a port; the log is written at the end, names its case, and is judged."""
    words = ["serve", "--suite", "C1", "C6", "--port", "0", "--logs", str(tmp_path)]
    command = [sys.executable, "-m", "truth", *words]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    )
    assert process.stdout is not None
    urls = [process.stdout.readline().split()[1] for _ in range(2)]
    assert all(
        requests.get(f"{url}/health", timeout=30).status_code == 200 for url in urls
    )
    client = [
        sys.executable,
        str(CLIENT),
        "--url",
        urls[1],
        "--csv",
        str(tmp_path / "rows.csv"),
    ]
    load = [
        "--requests",
        "12",
        "--concurrency",
        "4",
        "--tokens",
        "21",
        "--prompt-tokens",
        "40",
    ]
    subprocess.run([*client, *load], check=True, timeout=60)
    time.sleep(0.1)  # the last line of the log is written
    process.terminate()
    assert process.wait(20) == 0
    log = str(tmp_path / "C6.jsonl")
    done = truth(
        "judge", log, "--client", str(tmp_path / "rows.csv"), "--format", "csv"
    )
    assert "C6" in done.stdout and "output tokens" in done.stdout
    assert done.returncode in (0, 3), done.stdout
    wrong = truth("judge", log, "--client", log, "--format", "vllm")
    assert wrong.returncode == 2 and "has no result of vllm bench serve" in wrong.stderr


def test_output_that_nobody_reads_to_its_end_is_no_error() -> None:
    """As with `truth suites | head -1`: no traceback, and the exit code of SIGPIPE."""
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", "truth", "suites"]
    ended = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, check=False)
    os.close(writes)
    assert (ended.returncode, ended.stderr) == (141, b"")
