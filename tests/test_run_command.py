"""`llama-load run`: one word for locust with a bundled locustfile."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from llama_load.analysis.reports.write import write_reports
from llama_load.analysis.results.results import analyze
from llama_load.cli import found_server, run_command
from llama_load.cli.main import FIRST_COMMANDS, command_parser, main
from llama_load.ground.errors import UsageError
from llama_load.lab.start_run import locustfile_of
from llama_load.loadgen.options.flags import USUAL
from llama_load.loadgen.options.server_keys import KEYS_FOR, NOBODY
from llama_load.loadgen.options.vllm_command import our_run
from llama_load.outside.terminal import STARTED_AS
from llama_load.run_folder import RunWriter, load_run
from llama_load.servers.serving.launch import Server
from tests.conftest import environment, run_program, run_to_the_end
from tests.make_records import manifest, record

VLLM = "vllm bench serve --backend openai-chat --endpoint /v1/chat/completions"


def parts(line: str) -> tuple[str | None, str, list[str]]:
    return run_command._parts_of_words(shlex.split(line))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("http://a:1 -u 8 -n 64", ("http://a:1", "sharegpt_chat", "-u 8 -n 64")),
        ("-u 8 -n 64 http://a:1", ("http://a:1", "sharegpt_chat", "-u 8 -n 64")),
        ("localhost:1 -u 8", ("localhost:1", "sharegpt_chat", "-u 8")),
        ("-u 8", (None, "sharegpt_chat", "-u 8")),
        ("http://a:1 http://b:2", ("http://a:1,http://b:2", "sharegpt_chat", "")),
        ("--host http://a:1 -f vision", ("http://a:1", "vision", "")),
        ("vllm bench serve --base-url http://a:1 --num-prompts 4 --dataset-name custom "
         "--custom-output-len -1",
         ("http://a:1", "custom", "--endpoint completions -u 4 --num-prompts 4")),
        ("--locustfile=my.py http://a:1", ("http://a:1", "my.py", "")),
        # a flag without a value stands before the server, a flag with one takes its URL
        ("--save-texts http://a:1", ("http://a:1", "sharegpt_chat", "--save-texts")),
        ("--scrape http://b:2", (None, "sharegpt_chat", "--scrape http://b:2")),
        ("--scrape=http://b:2 http://a:1", ("http://a:1", "sharegpt_chat", "--scrape=http://b:2")),
    ],
)  # fmt: skip
def test_server_locustfile_and_flags_are_told_apart(
    line: str, expected: tuple[str | None, str, str]
) -> None:
    url, workload, words = expected
    assert parts(line) == (url, workload, shlex.split(words))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # aiperf, guidellm, k6, vegeta and others
        ("--url http://a:1 --concurrency 4 --request-count 9", ("http://a:1", "-u 4 --num-prompts 9")),
        ("--target=http://a:1 --rate 3 --max-seconds 60", ("http://a:1", "--request-rate 3 -t 60")),
        ("--base-url http://a:1 --requests=9 --duration 5m", ("http://a:1", "--num-prompts 9 -t 5m")),
        ("http://a:1 --num-requests 9", ("http://a:1", "--num-prompts 9")),
        # at a rate it is the most requests in flight
        ("http://a:1 --rate 3 --concurrency 4", ("http://a:1", "--request-rate 3 --max-concurrency 4")),
        # the URL of an API is that of --endpoint
        ("http://a:1/v1/completions", ("http://a:1/v1/completions", "--endpoint completions")),
        ("http://a:1/v1/chat/completions", ("http://a:1/v1/chat/completions", "")),
        ("http://a:1/v1/responses --endpoint chat", ("http://a:1/v1/responses", "--endpoint chat")),
    ],
)  # fmt: skip
def test_flags_of_other_tools_are_understood(
    line: str, expected: tuple[str, str]
) -> None:
    url, words = expected
    assert parts(line) == (url, "sharegpt_chat", shlex.split(words))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--backend infinity-embeddings", "--backend infinity-embeddings has no equal"),
        ("--num-prompts many", "--num-prompts must be a whole number, got 'many'"),
        ("--extra-body '[1]'", "--extra-body of vllm bench serve must be a JSON object"),
        ("--num-prompts 3 4", "'4' stands where an option is expected"),
    ],
)  # fmt: skip
def test_a_value_that_is_none_is_named(options: str, message: str) -> None:
    with pytest.raises(UsageError, match="vllm bench serve") as raised:
        our_run(shlex.split(options))
    assert message in str(raised.value)


def test_what_is_no_vllm_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--", "-u", "8"]) == 2
    assert "must be a command of a load generator" in capsys.readouterr().err


def test_a_workload_that_does_not_exist_names_those_that_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "http://127.0.0.1:9", "-f", "longdocument"]) == 2
    assert "did you mean long_document?" in capsys.readouterr().err


def test_every_bundled_workload_has_a_locustfile() -> None:
    assert Path(locustfile_of("sharegpt_chat")).is_file()
    assert locustfile_of(__file__) == __file__


def test_the_help_lists_few_commands_and_more_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every command is listed once. Without a word the help is printed."""
    assert main([]) == 0
    help_text = capsys.readouterr().out
    listed = re.findall(r"^    (\S+) ", help_text, re.MULTILINE)
    assert listed == [*FIRST_COMMANDS, "more", "llama-load", "llama-load", "llama-load"]
    assert main(["more"]) == 0
    others = re.findall(r"^(\S+) ", capsys.readouterr().out, re.MULTILINE)
    (action,) = command_parser()._subparsers._group_actions
    assert {*others, *FIRST_COMMANDS, "more"} == {*action.choices}


def test_the_usual_flags_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flags"]) == 0
    out = capsys.readouterr().out
    for name in USUAL:
        assert f"\n{name} " in out
    assert "--token-timeout" not in out
    assert main(["flags", "--all"]) == 0
    assert "--token-timeout" in capsys.readouterr().out


def test_a_comparison_leaves_out_a_run_that_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two", "going"):
        end = "running" if name == "going" else "completed"
        written = RunWriter(tmp_path / name, manifest(num_prompts=1, end=end))
        written.append([record(0)])
        if name != "going":
            written.finish()
            written.release()
            write_reports(analyze(load_run(tmp_path / name)))
    sides = [str(tmp_path / name) for name in ("going", "one", "two")]
    assert main(["compare", *sides]) == 0
    said = capsys.readouterr()
    assert f"{sides[0]} is left out: its run goes on" in said.err
    assert "two against one" in said.out
    assert main(["compare", sides[0]]) == 2
    written.release()


class _Started(Exception):
    """What os.execv would have started."""


def started(monkeypatch: pytest.MonkeyPatch, words: Sequence[str]) -> list[str]:
    def execv(program: str, command: list[str]) -> None:
        raise _Started(command)

    monkeypatch.setattr("os.execv", execv)
    monkeypatch.setenv(STARTED_AS, "")  # restored after the test
    with pytest.raises(_Started) as caught:
        main(["run", *words])
    (command,) = caught.value.args
    return list(command)


def test_a_found_server_gets_no_key_unless_somebody_agrees(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(KEYS_FOR, "")
    monkeypatch.setattr(found_server, "find_servers", lambda: ["http://127.0.0.1:8080"])
    monkeypatch.setattr(found_server, "listens_as_we_do", lambda port: True)
    monkeypatch.setattr(found_server, "is_there", lambda: False)
    command = started(monkeypatch, ["-u", "2", "--api-key", "canary-of-run"])
    assert command[command.index("--host") + 1] == "http://127.0.0.1:8080"
    assert os.environ[KEYS_FOR] == NOBODY
    assert "it gets no key" in capsys.readouterr().err
    assert os.environ[STARTED_AS].startswith("llama-load run http://127.0.0.1:8080 -u")


def test_vllms_default_server_gets_no_key_unless_somebody_agrees(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """vLLM's benchmark takes port 8000 of this machine where its command names no server."""
    monkeypatch.setenv(KEYS_FOR, "")
    monkeypatch.setattr(found_server, "is_there", lambda: False)
    words = ["--api-key", "canary-of-run", "--", *shlex.split(VLLM)]
    command = started(monkeypatch, words)
    assert command[command.index("--host") + 1] == "http://127.0.0.1:8000"
    assert os.environ[KEYS_FOR] == NOBODY
    assert "it gets no key" in capsys.readouterr().err

    monkeypatch.setenv(KEYS_FOR, "")
    started(monkeypatch, [*words, "--base-url", "http://127.0.0.1:8000"])
    assert os.environ[KEYS_FOR] == ""


def test_of_several_servers_the_person_chooses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    urls = ["http://127.0.0.1:8080", "http://127.0.0.1:8000"]
    monkeypatch.setenv(KEYS_FOR, "")
    monkeypatch.setattr(found_server, "find_servers", lambda: urls)
    monkeypatch.setattr(found_server, "is_there", lambda: False)
    assert main(["run", "-u", "2"]) == 2
    assert f"name one: llama-load run {urls[0]}" in capsys.readouterr().err

    monkeypatch.setattr(found_server, "is_there", lambda: True)
    monkeypatch.setattr("sys.stdin", _Typed("2\n"))
    command = started(monkeypatch, ["-u", "2"])
    assert command[command.index("--host") + 1] == urls[1]
    monkeypatch.setattr("sys.stdin", _Typed("3\n"))
    assert main(["run"]) == 2
    assert "no server was chosen" in capsys.readouterr().err


class _Typed:
    def __init__(self, line: str) -> None:
        self._line = line

    def readline(self) -> str:
        return self._line


def test_a_server_named_elsewhere_is_not_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a locustfile, in Locust's configuration, in the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(found_server, "find_servers", lambda: pytest.fail("looked"))
    mine = tmp_path / "mine.py"
    mine.write_text('class Mine:\n    host = "http://127.0.0.1:9"\n', encoding="utf-8")
    assert "--host" not in started(monkeypatch, ["-f", str(mine)])
    assert "--host" not in started(monkeypatch, ["--worker"])
    Path("locust.conf").write_text("host = http://127.0.0.1:9\n", encoding="utf-8")
    assert "--host" not in started(monkeypatch, ["-u", "1"])
    Path("locust.conf").unlink()
    monkeypatch.setenv("LOCUST_HOST", "http://127.0.0.1:9")
    assert "--host" not in started(monkeypatch, ["-u", "1"])


def test_no_server_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(found_server, "find_servers", list)
    assert main(["run"]) == 2
    error = capsys.readouterr().err
    assert "give its URL: llama-load run http://HOST:PORT" in error
    assert error.count("\n") == 1


def only_manifest(folder: Path) -> dict[str, Any]:
    (manifest,) = folder.glob("runs/*/run.json")
    return json.loads(manifest.read_bytes())


def test_a_run_of_the_embedded_server(llama_server: Server, tmp_path: Path) -> None:
    """The command in the manifest is the one that was typed."""
    words = [llama_server.url, "-u", "2", "-n", "4", "--max-tokens", "4"]
    command = [sys.executable, "-m", "llama_load.cli.main", "run", *words]
    done = run_to_the_end(command, cwd=tmp_path, env=environment())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 of 4 answered" in done.stdout
    manifest = only_manifest(tmp_path)
    assert manifest["command"][:3] == ["llama-load", "run", llama_server.url]
    assert manifest["command"][-6:] == words[1:]
    assert manifest["users"] == 2


def test_a_vllm_command_runs(
    llama_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here what it starts is a fork."""
    line = (
        f"{VLLM} --base-url {llama_server.url} --dataset-name random --num-prompts 4"
        " --random-input-len 16 --random-output-len 4 --max-concurrency 2 --save-result"
    )
    command = started(monkeypatch, ["--", *shlex.split(line)])
    typed = {STARTED_AS: os.environ[STARTED_AS]}
    done = run_program(
        command[command.index("locust") :], tmp_path, environment() | typed
    )
    assert "4 of 4 answered" in done.stdout, done.stderr
    manifest = only_manifest(tmp_path)
    assert (manifest["users"], manifest["workload"]) == (2, "synthetic")
    assert "vllm" not in manifest["command"]


def test_an_unknown_flag_names_the_help_of_its_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["datasets", "list", "--foo"])
    said = "llama-load datasets list: unrecognized arguments: --foo; see llama-load datasets list --help\n"
    assert capsys.readouterr().err == said
