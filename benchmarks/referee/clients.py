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
    Client("llama-load", "llama-load", "llama-load", "llama-load"),
    Client("vllm", "vllm bench serve", "vllm", "vllm", "vllm"),
    Client("aiperf", "aiperf", "aiperf", "aiperf", "aiperf"),
    Client("guidellm", "guidellm", "guidellm", "guidellm", "guidellm"),
    Client(
        *("inference-perf", "inference-perf", "inference-perf", "inference-perf"),
        "inference_perf",
    ),
    Client(
        *("endpoints", "MLCommons endpoints", "endpoints", "inference-endpoint"),
        "endpoints",
    ),
    Client("genai-bench", "genai-bench", "genai-bench", "genai-bench", "genai_bench"),
    Client(
        *("http-user", "Locust HttpUser", "csv", "locust"),
        module="benchmarks.referee.http_user_rows",
    ),
    Client(
        *("k6", "k6", "csv", "k6", "k6"),
        module="benchmarks.referee.k6_rows",
    ),
    Client(
        *("normal", "llama-load --client-priority normal", "llama-load", "llama-load"),
        suite="T6",
        env={"LLAMA_LOAD_CLIENT_PRIORITY": "normal"},
    ),
)
NAMES = tuple(client.name for client in CLIENTS)
