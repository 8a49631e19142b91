"""Servers that we start: ready, watched, stopped, and never left behind. With the real
llama-server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import requests

from llama_load.ground.errors import RunError, UsageError
from llama_load.outside.command_secrets import redact_words
from llama_load.servers.kinds import STARTS, ServerSpec, start_of
from llama_load.servers.serving import registry
from llama_load.servers.serving.launch import serving
from tests.conftest import beside, environment
from tests.swarms import wait_until


@pytest.fixture
def spec(tiny_model: Path) -> ServerSpec:
    return ServerSpec(
        model=str(tiny_model),
        args=("-np", "2", "-c", "1024", "-ctk", "f32"),
        alongside=(("sleep", "1000"),),
    )


def touch(path: Path) -> tuple[str, ...]:
    return ("touch", str(path))


def test_a_server_is_ready_known_and_then_stopped(
    spec: ServerSpec, tmp_path: Path
) -> None:
    """Set-up and clean-up commands run around it, flags of llama-server reach it, its companion
    lives as long as it does."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "server.log").touch(0o644)
    spec = replace(
        spec,
        set_up=(touch(tmp_path / "set-up"),),
        clean_up=(touch(tmp_path / "clean-up"),),
        wrap=("nice", "-n", "1"),
    )
    with serving(spec, tmp_path / "logs") as server:
        assert (tmp_path / "set-up").exists()
        assert not (tmp_path / "clean-up").exists()
        assert (
            requests.get(server.url + "/props", timeout=30).json()[
                "default_generation_settings"
            ]["n_ctx"]
            == 512
        )
        assert "K (f32)" in server.log.read_text()
        logs = (tmp_path / "logs").glob("*.log")
        # the programs write to them themselves: nothing is masked
        assert {file.stat().st_mode & 0o777 for file in logs} == {0o600}
        assert server.start_s > 0
        assert server.ended() == ""
        entry = registry.find(server.port)
        assert entry is not None
        assert (entry.pid, entry.log, entry.command) == (
            server.pid,
            str(server.log),
            server.command,
        )
        assert psutil.Process(server.pid).nice() == psutil.Process().nice() + 1
        (companion,) = beside(server.pid)
        assert companion.cmdline() == ["sleep", "1000"]
    assert (tmp_path / "clean-up").exists()
    assert not psutil.pid_exists(server.pid)
    assert not psutil.pid_exists(companion.pid)
    assert registry.find(server.port) is None


HOLDS = """
import sys, time
from pathlib import Path
from llama_load.servers.serving.launch import serving
from llama_load.servers.kinds import ServerSpec
folder = Path(sys.argv[1])
with serving(ServerSpec(model=sys.argv[2], alongside=(("sleep", "1000"),), clean_up=(("touch", str(folder / "clean-up")),)), folder) as server:
    print(server.port, flush=True)
    time.sleep(100)
"""


def test_nothing_is_left_when_we_are_killed(tiny_model: Path, tmp_path: Path) -> None:
    """kill -9: the server and its companion end, and the clean-up commands run."""
    command = [sys.executable, "-c", HOLDS, str(tmp_path), str(tiny_model)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout is not None
        entry = registry.find(int(process.stdout.readline()))
        assert entry is not None
        (companion,) = beside(entry.pid)
        process.kill()
    wait_until((tmp_path / "clean-up").exists, 30)
    wait_until(
        lambda: not any(psutil.pid_exists(pid) for pid in (entry.pid, companion.pid)),
        30,
    )


def test_a_companion_that_ends_is_the_reason_and_ends_the_server(
    spec: ServerSpec, tmp_path: Path
) -> None:
    with serving(spec, tmp_path) as server:
        entry = registry.find(server.port)
        assert entry is not None
        beside(server.pid)[0].kill()
        assert (
            "the companion sleep ended (killed by SIGKILL), so the server was stopped"
            in server.wait()
        )
        assert registry.ending_of(entry) == server.ended()


def test_a_server_that_dies_leaves_its_last_words(
    spec: ServerSpec, tmp_path: Path
) -> None:
    with serving(spec, tmp_path) as server:
        os.kill(server.pid, signal.SIGSEGV)
        why = server.wait()
    assert "the server ended (killed by SIGSEGV)" in why
    assert "listening on" in why


def test_a_start_that_fails_shows_the_logs_end(
    tiny_model: Path, tmp_path: Path
) -> None:
    """And the clean-up commands run all the same."""
    spec = ServerSpec(
        model=str(tiny_model),
        args=("--nonsense", "1"),
        clean_up=(touch(tmp_path / "clean-up"),),
    )
    with (
        pytest.raises(
            RunError,
            match=r"(?s)ended while starting .exit code 1.*has no flag --nonsense; it takes -c",
        ),
        serving(spec, tmp_path),
    ):
        pass
    assert (tmp_path / "clean-up").exists()
    spec = ServerSpec(model=str(tiny_model), ready_within_s=0.01)
    with (
        pytest.raises(RunError, match=r"not ready within 0\.01 s"),
        serving(spec, tmp_path),
    ):
        pass
    spec = ServerSpec(
        model=str(tiny_model), set_up=(("sh", "-c", "echo no clocks here; exit 3"),)
    )
    with (
        pytest.raises(
            RunError, match=r"(?s)set-up command sh failed .exit code 3.*no clocks here"
        ),
        serving(spec, tmp_path),
    ):
        pass


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (
            {"kind": "llama-server", "program": "/no/llama-server"},
            "there is no program '/no/llama-server'",
        ),
        ({"kind": "vllm", "program": "true"}, "vllm needs a model"),
        ({"wrap": ("no-such-program",)}, "there is no program 'no-such-program'"),
        ({"rpc_workers": 1}, "embedded has no RPC"),
        (
            {"kind": "vllm", "model": "a/b", "rpc": ("a:1",)},
            "need llama-server or llama-cpp-python; vllm has no RPC",
        ),
        (
            {"kind": "llama-server", "rpc": ("a:1;b:2",)},
            "HOST:PORT, several with commas",
        ),
    ],
)
def test_what_cannot_be_served_is_refused(
    wrong: dict, says: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=says), serving(ServerSpec(**wrong), tmp_path):
        pass


def server_command(
    spec: ServerSpec, port: int, workers: tuple[str, ...] = ()
) -> tuple[str, ...]:
    return start_of(spec).command(spec, port, workers)


def test_commands_of_the_other_servers(tiny_model: Path) -> None:
    """Flags that are given are not given twice; secrets are not shown."""
    model = str(tiny_model)
    spec = ServerSpec(
        "llama-server", model, program="true", args=("-ngl", "7", "--api-key", "s3cret")
    )
    command = server_command(spec, 1234, ("h:1", "g:2"))
    assert command[1:] == (
        *(
            "-m",
            model,
            "--host",
            "127.0.0.1",
            "--port",
            "1234",
            "--metrics",
            "-lv",
            "4",
        ),
        *("--rpc", "h:1,g:2", "-ngl", "7", "--api-key", "s3cret"),
    )
    assert redact_words(command)[-2:] == ("--api-key", "***")
    assert redact_words(("x", "--hf-token=abc", "--max-tokens", "5")) == (
        "x",
        "--hf-token=***",
        "--max-tokens",
        "5",
    )
    assert redact_words(("env", "HF_TOKEN=abc", "THREADS=2", "x", "--first-token-ms", "5"))[1:] == ("HF_TOKEN=***", "THREADS=2", "x", "--first-token-ms", "5")  # fmt: skip
    assert server_command(
        ServerSpec("llama-server", args=("-lv", "5", "-hf", "a/b"), program="true"), 1
    )[-4:] == ("-lv", "5", "-hf", "a/b")
    assert server_command(ServerSpec("vllm", "a/b", program="true"), 80)[1:] == (
        "serve",
        "a/b",
        "--host",
        "127.0.0.1",
        "--port",
        "80",
    )
    keys = {
        kind: start.environment(ServerSpec(api_key="k", env={"A": "b"}))
        for kind, start in STARTS.items()
    }
    assert keys["vllm"] == {"VLLM_API_KEY": "k", "A": "b"}
    assert keys["llama-server"] == {
        "LLAMA_API_KEY": "k",
        "A": "b",
        "GGML_NO_BACKTRACE": "1",
    }
    assert (
        keys["llama-cpp-python"]["API_KEY"]
        == keys["embedded"]["LLAMA_LOAD_SERVER_API_KEY"]
        == "k"
    )
    assert server_command(ServerSpec("llama-cpp-python", model), 80)[-2:] == (
        "--interrupt_requests",
        "false",
    )


def test_a_foreign_or_stale_entry_is_not_believed(
    spec: ServerSpec, tmp_path: Path
) -> None:
    """Another process has the port or the number, the file may be written by others, or it is
    nonsense."""
    with serving(spec, tmp_path) as server:
        entry = registry.find(server.port)
        assert entry is not None
        path = registry.folder() / f"{server.port}.json"
        for wrong in (replace(entry, pid=os.getpid()), replace(entry, created_s=1.0)):
            registry.write(wrong)
            assert registry.find(server.port) is None
        registry.write(entry)
        path.chmod(0o666)
        assert registry.find(server.port) is None
        path.write_text("{}")
        assert registry.find(server.port) is None
        path.unlink()
        path.symlink_to(tmp_path / "elsewhere")
        assert registry.find(server.port) is None
        path.unlink()
