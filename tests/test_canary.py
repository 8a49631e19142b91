"""One key, used in a walk through all that a user does; then everything that was written, printed,
shown or sent is searched for it."""

from __future__ import annotations

import base64
import subprocess
import sys
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest

from llama_load.cli.main import command_parser
from llama_load.servers.local_ports import free_port
from tests import web_client
from tests.conftest import SHAREGPT, Finished, Simulated, environment
from tests.heavy import test_canaries
from tests.json_server import json_server
from tests.swarms import own_port, wait_until, web_ui

CANARY = "sk-canary/0123456789+abcdef"
FORMS = {
    CANARY,
    quote(CANARY, safe=""),
    base64.b64encode(CANARY.encode()).decode().rstrip("="),
}
# It comes back in every way that a server has.
MODELS = {"data": [{"id": "m", "owned_by": CANARY, "aliases": [CANARY]}]}
REFUSAL = (
    401,
    {
        "error": {
            "message": f"the key {CANARY} is not known, nor {quote(CANARY, safe='')}"
        }
    },
    {"Server": CANARY},
)


def found_in(text: str | bytes) -> bool:
    data = text if isinstance(text, bytes) else text.encode()
    return any(form.encode() in data for form in FORMS)


def files_with_it(folder: Path) -> list[str]:
    return [
        str(file)
        for file in folder.rglob("*")
        if file.is_file() and found_in(file.read_bytes())
    ]


@pytest.mark.heavy
def test_a_key_stands_nowhere(
    run_locust: Callable[..., Finished],
    simulate: Callable[..., Simulated],
    tmp_path: Path,
) -> None:
    """Catches a key in any output, file, command line or environment of a whole run."""
    key = {"LLAMA_LOAD_API_KEY": CANARY}
    said: list[str] = []
    command_lines: set[str] = set()
    answers = {"/health": {"status": CANARY}, "/v1/models": MODELS, "/props": {"build_info": CANARY, "total_slots": 4, "modalities": {CANARY: True}}, "/v1/chat/completions": REFUSAL}  # fmt: skip
    with json_server(answers) as server:
        # A run, every request of which is refused by quoting the key; with all reports.
        more = (
            "--num-prompts",
            "3",
            "--warmup",
            "0",
            "--junit",
            "out.xml",
            "--csv",
            "csv",
            "--html",
            "out.html",
            "--json-file",
            "out.json",
        )
        runs = [run_locust(server.url, *more, folder=tmp_path / "refused", **key)]
        assert len(runs[0].records) == 3
        assert any(
            headers.get("Authorization") == f"Bearer {CANARY}"
            for headers in server.headers
        )
        assert not found_in(str(runs[0].records.table.to_pylist()))
        # Two processes.
        flags = (
            "--processes",
            "2",
            *own_port(),
            "--num-prompts",
            "4",
            "--warmup",
            "0",
            "-u",
            "2",
        )
        runs.append(run_locust(server.url, *flags, folder=tmp_path / "swarm", **key))
        assert not found_in(str(runs[1].records.table.to_pylist()))
        # A key in a header whose name does not say so.
        flags = (
            "--processes",
            "2",
            *own_port(),
            "--num-prompts",
            "4",
            "--warmup",
            "0",
            "-u",
            "2",
        )
        header = {"LLAMA_LOAD_HEADER": f"X-Team: {CANARY}"}
        runs.append(
            run_locust(server.url, *flags, folder=tmp_path / "header", **header)
        )
        assert any(headers.get("X-Team") == CANARY for headers in server.headers)
        # What is refused before a run.
        faults = (
            ("--header", f"Authorization {CANARY}"),
            ("--extra-body", f'{{"key": "{CANARY}"'),
            ("--model", CANARY + "x"),
            ("--run-dir", f"/dev/null/{CANARY}"),
            ("--label", CANARY, "--num-prompts", "-1"),
        )
        for fault in faults:
            runs.append(
                run_locust(server.url, *fault, folder=tmp_path / "fault", **key)
            )
        for host in (
            f"http://user:{CANARY}@127.0.0.1:1",
            f"{server.url}/?token={CANARY}",
        ):
            runs.append(run_locust(host, folder=tmp_path / "host", **key))
        assert all(run.code for run in runs)
        said += [run.out + run.err for run in runs]
        # The web page.
        port = free_port()
        command = [
            sys.executable,
            "-m",
            "locust",
            "-f",
            str(SHAREGPT),
            *web_ui(port),
            "--host",
            server.url,
        ]
        with (tmp_path / "ui.log").open("w") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment() | key, cwd=tmp_path
            )
        try:
            page = f"http://127.0.0.1:{port}"
            wait_until(lambda: web_client.get(page, timeout=10).ok)
            form = {
                "user_count": "1",
                "spawn_rate": "1",
                "host": server.url,
                "num_prompts": "2",
                "warmup": "0",
            }
            said.append(web_client.post(f"{page}/swarm", data=form, timeout=30).text)
            wait_until(lambda: any((tmp_path / "runs").glob("*/summary.json")), 30)
            for path in (
                "",
                "logs",
                "stats/requests",
                "stats/report",
                "exceptions",
                "exceptions/csv",
                "stats/failures/csv",
                "tasks",
            ):
                said.append(web_client.get(f"{page}/{path}", timeout=30).text)
            command_lines |= {
                " ".join(each.info["cmdline"] or ())
                for each in psutil.process_iter(["cmdline"])
            }
        finally:
            process.terminate()
            process.wait(20)
    assert not any(map(found_in, command_lines))
    assert [text for text in said if found_in(text)] == []
    assert files_with_it(tmp_path) == []


def subcommands(
    parser: ArgumentParser, before: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """The words of every subcommand."""
    below = [each for each in parser._actions if isinstance(each, _SubParsersAction)]
    for action in below:
        for name, inner in action.choices.items():
            yield from subcommands(inner, (*before, name))
    if not below:
        yield before


def test_every_command_is_started_with_planted_keys() -> None:
    """A new one comes into `tests/heavy/test_canaries.py`."""
    known = set(subcommands(command_parser()))
    assert ("datasets", "inspect") in known and ("report",) in known
    commands = test_canaries.commands_of("run", "plan", "http://x") | test_canaries.LONG
    started = {
        tuple(words[: 2 if words[0] == "datasets" else 1])
        for words in commands.values()
    }
    assert known - started == set()
