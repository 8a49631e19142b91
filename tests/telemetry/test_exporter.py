"""`llama-load telemetry`: what it serves, to whom, and what a run makes of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from llama_load.cli.main import main
from llama_load.outside.bound_headers import bearer, bound
from llama_load.run_folder.sampler_config import Endpoint
from llama_load.telemetry import exporter as module
from llama_load.telemetry.exporter import Exporter, Page
from llama_load.telemetry.prometheus import Scrape
from llama_load.telemetry.source import Source, SourceError, Value


class Gpu(Source):
    name = "gpus"
    is_lost = False

    def sample(self) -> Iterable[Value]:
        if self.is_lost:
            raise SourceError("GPU is lost")
        yield Value("gpu_info", 1.0, (("gpu", "0"), ("name", 'a "b"\\ 显卡')))
        yield Value("gpu_power_watts", 301.25, (("gpu", "0"),))


@contextmanager
def serving(token: str | None = None, source: Source | None = None) -> Iterator[str]:
    exporter = Exporter("127.0.0.1", 0, Page([source or Gpu()]), token)
    threading.Thread(target=exporter.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{exporter.server_address[1]}/metrics"
    finally:
        exporter.shutdown()
        exporter.server_close()


def scraped(
    url: str, token: str | None = None
) -> dict[str, tuple[float, dict[str, str]]]:
    headers = bound(url, bearer(token))
    return {
        each.metric: (each.value, dict(each.labels))
        for each in Scrape(Endpoint(name=url, url=url, headers=headers)).sample()
    }


def test_what_is_exported_comes_back_under_its_own_name() -> None:
    with serving() as url:
        found = scraped(url)
    assert found["gpu_power_watts"] == (301.25, {"gpu": "0"})
    assert found["gpu_info"] == (1, {"gpu": "0", "name": 'a "b"\\ 显卡'})
    assert found["source_up"] == (1, {"source": "gpus"})


def test_a_source_that_is_lost_is_only_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FRESH_S", 0)
    gpu = Gpu()
    gpu.is_lost = True
    with serving(source=gpu) as url:
        assert scraped(url) == {"source_up": (0, {"source": "gpus"})}
        gpu.is_lost = False
        assert scraped(url)["gpu_power_watts"][0] == 301.25


def test_only_who_has_the_token_reads_it() -> None:
    with serving("secret-token") as url:
        assert "gpu_info" in scraped(url, "secret-token")
        for wrong in (None, "secret-tokem", "é"):
            with pytest.raises(SourceError, match="answers 401"):
                scraped(url, wrong)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example:9101", b"403"),
        ("127.0.0.1.evil.example", b"403"),
        ("[", b"403"),
        ("[::1].evil.example", b"403"),
        ("evil.example#localhost", b"403"),
        ("localhost:9101", b"200"),
        ("[::1]:9101", b"200"),
        (socket.gethostname(), b"200"),
        ("my-machine", b"403"),
        ("printer.local", b"403"),
    ],
)
def test_no_page_of_others_reads_it_without_a_token(host: str, status: bytes) -> None:
    with serving() as url:
        port = int(url.rpartition(":")[2].partition("/")[0])
        with socket.create_connection(("127.0.0.1", port), 10) as client:
            client.sendall(f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert client.recv(12)[9:12] == status


def test_other_paths_and_methods_are_refused() -> None:
    with serving() as url:
        for path, data, code in (("/", None, 404), ("/metrics", b"x", 501)):
            with pytest.raises(urllib.error.HTTPError) as raised:
                urllib.request.urlopen(url.replace("/metrics", path), data)
            assert raised.value.code == code


@pytest.mark.parametrize("said", [b"", b"GET /metrics HTTP/1.1\r\nX: "])
def test_silent_connections_keep_nobody_out(said: bytes) -> None:
    """Three times as many as have a place, each in the middle of a request."""
    with serving() as url, ExitStack() as held:
        port = int(url.split(":")[2].partition("/")[0])
        for _ in range(3 * module.MOST_CLIENTS):
            silent = held.enter_context(
                socket.create_connection(("127.0.0.1", port), 10)
            )
            silent.sendall(said)
        for _ in range(3):
            assert "gpu_info" in scraped(url)


def test_clients_that_say_nothing_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLIENT_WITHIN_S", 0.3)
    with serving() as url:
        port = int(url.split(":")[2].partition("/")[0])
        with socket.create_connection(("127.0.0.1", port), 10) as silent:
            assert silent.recv(1) == b""
        assert "gpu_info" in scraped(url)


def command(*arguments: str, **env: str) -> subprocess.Popen[str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("LLAMA_LOAD_")
    }
    words = [sys.executable, "-m", "llama_load.cli.main", "telemetry", *arguments]
    return subprocess.Popen(
        words, env=kept | env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_the_command_serves_this_machine_until_it_is_stopped() -> None:
    with command(
        "--listen", "127.0.0.1:0", LLAMA_LOAD_SCRAPE_TOKEN="long-enough"
    ) as process:
        line = process.stdout.readline()
        url = line.split(" at ")[1].strip()
        assert scraped(url, "long-enough")["host_memory_total_bytes"][0] > 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert process.stderr.read() == "" and "long-enough" not in line


@pytest.mark.parametrize(
    ("arguments", "env", "sentence"),
    [
        (["--listen", "0.0.0.0:0"], {}, "set a token in LLAMA_LOAD_SCRAPE_TOKEN"),
        (["--listen", ":0"], {}, "set a token"),
        (
            ["--listen", "0.0.0.0:0"],
            {"LLAMA_LOAD_SCRAPE_TOKEN": "short"},
            "at least 8 characters",
        ),
        (["--listen", "nonsense"], {}, "must be HOST:PORT"),
        (["--listen", "127.0.0.1:99999"], {}, "must be HOST:PORT"),
        (
            ["--listen", "198.51.100.1:0"],
            {"LLAMA_LOAD_SCRAPE_TOKEN": "long-enough"},
            "cannot listen on",
        ),
        (["--power-command", "a 'b"], {}, "check its quotes"),
    ],
)
def test_wrong_use_is_one_sentence(
    arguments: list[str],
    env: dict[str, str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("LLAMA_LOAD_SCRAPE_TOKEN", raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert main(["telemetry", *arguments]) == 2
    said = capsys.readouterr().err
    assert sentence in said and len(said.splitlines()) == 1
