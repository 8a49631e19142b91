"""A Locust with our page, driven by HTTP."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from llama_load.servers.local_ports import free_port
from tests import web_client
from tests.conftest import SHAREGPT, Program, environment, start_program
from tests.swarms import wait_until


@dataclass
class LlmPage:
    """`url` is that of our page, without a slash at its end."""

    url: str
    folder: Path
    process: Program

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    @property
    def runs(self) -> list[Path]:
        return sorted((self.folder / "runs").glob("*"))

    def get(self, path: str, **how: Any) -> requests.Response:
        return web_client.get(self.url + path, timeout=10, **how)

    def post(self, path: str, **fields: Any) -> dict[str, Any]:
        return web_client.post(self.url + path, json=fields, timeout=30).json()

    def start(self, **fields: Any) -> str:
        answer = self.post("/api/start", **fields)
        assert answer["faults"] == [], answer
        return answer["run"]

    def live(self) -> dict[str, Any]:
        return self.get("/api/live").json()

    def completed(self) -> int:
        live = self.live()["live"]
        return live["rows"][0]["completed"] if live else 0

    def wait_for(self, *states: str, timeout_s: float = 40) -> dict[str, Any]:
        wait_until(lambda: self.live()["state"] in states, timeout_s)
        return self.live()


@contextmanager
def llm_page(
    folder: Path, *arguments: str, locustfile: Path = SHAREGPT, **env: str
) -> Iterator[LlmPage]:
    """Start Locust with its web UI in this folder."""
    port = free_port()
    command = [
        "locust",
        "-f",
        str(locustfile),
        "--web-port",
        str(port),
        "--web-token",
        web_client.TOKEN,
        *arguments,
    ]
    with (folder / "log").open("w") as log:
        process = start_program(command, folder, environment() | env, log)
    page = LlmPage(f"http://127.0.0.1:{port}/llm", folder, process)
    try:
        wait_until(lambda: web_client.get(page.url, timeout=10).ok)
        yield page
    finally:
        process.terminate()
        try:
            process.wait(20)
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
