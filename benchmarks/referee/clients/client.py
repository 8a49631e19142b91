"""What the referee knows of a client: how it is started, and what it reports."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from importlib.metadata import distributions
from pathlib import Path

from benchmarks.referee.scenarios import Job, Scenario
from truth.result import Result
from truth.tools.tool import OFFLINE

REPOSITORY = Path(__file__).resolve().parents[3]


class Client(ABC):
    """A load generator. `requirements` names the file in scripts/requirements that installs it;
    empty: it is installed here."""

    name: str
    requirements = ""
    distribution = ""

    @abstractmethod
    def command(self, job: Job) -> list[str]: ...

    @abstractmethod
    def read(self, job: Job) -> Result:
        """One of truth's READING_FAILED: there is no usable result."""

    def unable(self, scenario: Scenario) -> str:
        """Why it cannot do this; empty if it can."""
        return ""

    def env(self, job: Job) -> Mapping[str, str]:
        return OFFLINE

    @cached_property
    def venv(self) -> Path:
        """Where scripts/install.sh puts it, as in the Makefile."""
        scripts = REPOSITORY / "scripts"
        contents = [
            path.read_bytes()
            for path in (
                scripts / "install.sh",
                scripts / "requirements" / f"{self.requirements}.txt",
            )
        ]
        return (
            caches()
            / "venvs"
            / f"{self.requirements}-{hashlib.sha256(b''.join(contents)).hexdigest()[:12]}"
        )

    def program(self, name: str) -> str:
        return str(self.venv / "bin" / name)

    def installed(self) -> bool:
        return not self.requirements or (self.venv / ".ready").exists()

    def version(self) -> str:
        """Of the installed package; empty if unknown."""
        sites = [str(path) for path in self.venv.glob("lib/python*/site-packages")]
        found = [
            each.version for each in distributions(name=self.distribution, path=sites)
        ]
        return found[0] if found else ""


def caches() -> Path:
    """Where environments and tokenizer are kept."""
    return (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llama-load"
    )
