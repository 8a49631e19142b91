"""A real nginx between us and the servers: one that buffers, one that does not, one that
balances."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests

from llama_load.servers.local_ports import free_port
from llama_load.servers.serving.launch import Server
from tests.conftest import Finished, Simulated

pytestmark = pytest.mark.heavy

CONFIGURATION = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1;
events {{ worker_connections 256; }}
http {{
    access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    upstream servers {{ {servers} }}
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://servers; {more} }}
    }}
}}
"""


@pytest.fixture
def nginx(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Start nginx before these servers: nginx("proxy_buffering on;", url, url) gives its URL."""
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    if not Path(program).exists():
        pytest.skip("there is no nginx: run 'make test-heavy'")
    with ExitStack() as stack:

        def begin(more: str, *urls: str) -> str:
            port = free_port()
            servers = " ".join(
                f"server {url.removeprefix('http://')} max_fails=0;" for url in urls
            )
            file = tmp_path / "nginx.conf"
            file.write_text(
                CONFIGURATION.format(
                    folder=tmp_path, servers=servers, port=port, more=more
                )
            )
            process = subprocess.Popen(
                [program, "-c", str(file), "-p", str(tmp_path)],
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            url = f"http://127.0.0.1:{port}"
            for _ in range(100):
                try:
                    requests.get(url + "/health", timeout=1)
                    return url
                except requests.ConnectionError:
                    time.sleep(0.05)  # between two looks
            raise AssertionError((tmp_path / "error.log").read_text())

        yield begin


SLOW = ("--first-token-ms", "50", "--interval-ms", "15", "--tokens", "60")
RUN = ("--num-prompts", "12", "-u", "4", "--max-tokens", "60")


@pytest.mark.real
def test_a_proxy_that_buffers_is_named(
    run_locust: Callable[..., Finished],
    simulate: Callable[..., Simulated],
    nginx: Callable[..., str],
) -> None:
    """nginx as it comes (buffering, HTTP/1.0 to the server): the tokens come in lumps, and the
    verdict says whose fault that is. Catches lumps as nginx makes them, taken for the server's."""
    url = nginx("proxy_buffering on;", simulate(*SLOW).url)
    done = run_locust(url, *RUN)
    checks = {
        check["name"]: check
        for check in done.summary["llama_load"]["verdict"]["checks"]
    }
    assert not checks["buffered_ratio"]["ok"]
    text = " ".join(done.out.split())
    assert "arrived in bursts: a proxy (nginx/" in text
    assert "proxy_buffering off" in text


def test_a_proxy_that_does_not_buffer_is_not_blamed(
    run_locust: Callable[..., Finished],
    simulate: Callable[..., Simulated],
    nginx: Callable[..., str],
) -> None:
    """Catches nginx's own chunks, taken for lumps."""
    url = nginx("proxy_buffering off;", simulate(*SLOW).url)
    done = run_locust(url, *RUN, "--fail-if", "failed>0")
    assert done.code == 0, done.err
    assert "lumps" not in done.out
    assert done.records.values_of("answered_by")[0].startswith("nginx/")


def test_llama_server_disables_buffering_in_nginx(
    run_locust: Callable[..., Finished], llama_server: Server, nginx: Callable[..., str]
) -> None:
    """Its X-Accel-Buffering: no is obeyed; through a proxy it is still recognised, and the prompts
    are still counted by it. Catches a server that is not recognised through nginx."""
    done = run_locust(
        nginx("proxy_buffering on;", llama_server.url),
        "--num-prompts",
        "12",
        "-u",
        "2",
        "--max-tokens",
        "60",
    )
    assert done.code == 0, done.err
    assert "lumps" not in done.out
    assert done.manifest["targets"][0]["backend"] == "llama-server"


def test_a_load_balancer_with_a_dead_server_behind_it(
    run_locust: Callable[..., Finished],
    simulate: Callable[..., Simulated],
    nginx: Callable[..., str],
) -> None:
    """Half of the requests are answered 502 by the balancer itself. Catches nginx's own error
    pages, taken for the server's."""
    alive = simulate(*SLOW)
    url = nginx(
        "proxy_buffering off; proxy_next_upstream off;",
        alive.url,
        f"http://127.0.0.1:{free_port()}",
    )
    done = run_locust(
        url,
        "--num-prompts",
        "20",
        "-u",
        "2",
        "--max-tokens",
        "8",
        "--backend",
        "openai",
        "--warmup",
        "0",
    )
    if done.code == 2:  # the questions before the run met the dead one
        pytest.skip(done.err)
    assert done.code == 1
    assert set(done.records.measured().failed().strings("status")) == {"http_502"}


def test_a_compressing_proxy_is_named(
    run_locust: Callable[..., Finished],
    simulate: Callable[..., Simulated],
    nginx: Callable[..., str],
) -> None:
    """nginx obeys Accept-Encoding: identity, so it compresses nothing here. Catches a header of
    ours that lets nginx compress."""
    url = nginx(
        "proxy_buffering off; gzip on; gzip_types *; gzip_min_length 1; gzip_proxied any;",
        simulate(*SLOW).url,
    )
    done = run_locust(url, *RUN, "--fail-if", "failed>0")
    assert done.code == 0, done.err
