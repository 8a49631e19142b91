"""The load generators that are compared: how each is started, and where it is installed."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
HERE = Path(sys.executable).parent
# What a program of this folder is given, which writes rows as truth reads them.
CLOSED_LOOP = "--streams {streams}"
ASKED = ("--url", "{url}", "--requests", "{requests}", "--tokens", "{tokens}")
ROWS = "{out}/rows.csv"


@dataclass(frozen=True, slots=True)
class Client:
    """`name`: of its files and for --clients. `tool`: what truth calls it, csv for one that is
    started by `module`. `requirements` names the file in scripts/requirements that installs it;
    empty: it is installed here. `suite`: of truth, or a case."""

    name: str
    title: str
    tool: str
    distribution: str
    requirements: str = ""
    module: str = ""
    suite: str = "timing"
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def programs(self) -> Path:
        """The folder in which its program lies."""
        return self.venv / "bin" if self.requirements else HERE

    @property
    def venv(self) -> Path:
        """Where scripts/install.sh puts it, as in the Makefile."""
        scripts = REPOSITORY / "scripts"
        digest = hashlib.sha256((scripts / "install.sh").read_bytes())
        wanted = scripts / "requirements" / f"{self.requirements}.txt"
        digest.update(wanted.read_bytes())
        return _caches() / "venvs" / f"{self.requirements}-{digest.hexdigest()[:12]}"

    @property
    def installed(self) -> bool:
        """Whether it can be run here."""
        return not self.requirements or (self.venv / ".ready").exists()

    @property
    def version(self) -> str:
        """Of the installed package; empty if unknown."""
        folder = self.venv if self.requirements else HERE.parent
        sites = [str(path) for path in folder.glob("lib/python*/site-packages")]
        found = list(distributions(name=self.distribution, path=sites))
        return found[0].version if found else ""

    def command(self, runs: int, result: Path) -> list[str]:
        """`truth run` with this client, which writes its verdicts to `result`."""
        words = [sys.executable, "-m", "truth", "run", "--tool", self.tool]
        words += ["--suite", self.suite, "--runs", str(runs), "--save", str(result)]
        words += ["--client-name", self.title, "--client-version", self.version]
        words += ["--bin", str(self.programs)]
        if not self.module:
            return words
        words += ["--closed", CLOSED_LOOP, "--result", ROWS]
        program = [sys.executable, "-m", self.module, *ASKED, "{load}", "--csv", ROWS]
        return [*words, "--", *program, "--programs", str(self.programs)]


def _caches() -> Path:
    kept = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(kept) / "llama-load"


CLIENTS = (
    Client(
        name="llama-load",
        title="llama-load",
        tool="llama-load",
        distribution="llama-load",
    ),
    Client(
        name="vllm",
        title="vllm bench serve",
        tool="vllm",
        distribution="vllm",
        requirements="vllm",
    ),
    Client(
        name="aiperf",
        title="aiperf",
        tool="aiperf",
        distribution="aiperf",
        requirements="aiperf",
    ),
    Client(
        name="guidellm",
        title="guidellm",
        tool="guidellm",
        distribution="guidellm",
        requirements="guidellm",
    ),
    Client(
        name="inference-perf",
        title="inference-perf",
        tool="inference-perf",
        distribution="inference-perf",
        requirements="inference_perf",
    ),
    Client(
        name="endpoints",
        title="MLCommons endpoints",
        tool="endpoints",
        distribution="inference-endpoint",
        requirements="endpoints",
    ),
    Client(
        name="genai-bench",
        title="genai-bench",
        tool="genai-bench",
        distribution="genai-bench",
        requirements="genai_bench",
    ),
    Client(
        name="llama-benchy",
        title="llama-benchy",
        tool="llama-benchy",
        distribution="llama-benchy",
        requirements="llama_benchy",
    ),
    Client(
        name="evalscope",
        title="evalscope perf",
        tool="evalscope",
        distribution="evalscope",
        requirements="evalscope",
    ),
    Client(
        name="http-user",
        title="Locust HttpUser",
        tool="csv",
        distribution="locust",
        module="benchmarks.referee.http_user_rows",
    ),
    Client(
        name="k6",
        title="k6",
        tool="csv",
        distribution="k6",
        requirements="k6",
        module="benchmarks.referee.k6_rows",
    ),
    Client(
        name="normal",
        title="llama-load --client-priority normal",
        tool="llama-load",
        distribution="llama-load",
        suite="T6",
        env={"LLAMA_LOAD_CLIENT_PRIORITY": "normal"},
    ),
)
NAMES = tuple(client.name for client in CLIENTS)
