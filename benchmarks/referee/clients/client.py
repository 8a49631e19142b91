"""What the referee knows of a client: how it is started, and what it reports."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.referee.scenarios import Job, Scenario

REPOSITORY = Path(__file__).resolve().parents[3]
OFFLINE = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "TOKENIZERS_PARALLELISM": "false"}


class NoResult(Exception):
    """The client ended without a result, or with one that cannot be read."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A completed request as the client reports it; times in ms, None where it reports none.

    It is matched with the server's log by the server's `number` of the request, or by the `request_id` that the client sent; with
    neither only distributions can be compared. `itl_ms` has a gap per token after the first, in their order, or is empty.
    """

    number: int | None = None
    request_id: str | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2el_ms: float | None = None
    itl_ms: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """Of one run: the completed requests, the figures of the client's own summary (`p99_ttft_ms`, `request_rps`, `output_tok_per_s`…),
    and what else is worth a note."""

    requests: Sequence[Seen]
    reported: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


class Client(ABC):
    """A load generator. `requirements` names the file in scripts/requirements that installs it; empty: it is installed here."""

    name: str
    requirements = ""
    distribution = ""

    @abstractmethod
    def command(self, job: Job) -> list[str]: ...

    @abstractmethod
    def read(self, job: Job) -> Result:
        """OSError, KeyError, ValueError or NoResult: there is no usable result."""

    def unable(self, scenario: Scenario) -> str:
        """Why it cannot do this; empty if it can."""
        return ""

    def env(self, job: Job) -> dict[str, str]:
        return OFFLINE

    @cached_property
    def venv(self) -> Path:
        """Where scripts/install.sh puts it, as in the Makefile."""
        scripts = REPOSITORY / "scripts"
        contents = [path.read_bytes() for path in (scripts / "install.sh", scripts / "requirements" / f"{self.requirements}.txt")]
        return caches() / "venvs" / f"{self.requirements}-{hashlib.sha256(b''.join(contents)).hexdigest()[:12]}"

    def program(self, name: str) -> str:
        return str(self.venv / "bin" / name)

    def installed(self) -> bool:
        return not self.requirements or (self.venv / ".ready").exists()

    def version(self) -> str:
        """Of the installed package; empty if unknown."""
        sites = [str(path) for path in self.venv.glob("lib/python*/site-packages")]
        found = [each.version for each in distributions(name=self.distribution, path=sites)]
        return found[0] if found else ""


def caches() -> Path:
    """Where environments and tokenizer are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llama-load"


def load_json(path: Path) -> Any:
    return msgspec.json.decode(path.read_bytes())


def number_in(text: str) -> int:
    """The server's number of a request: the first word of its answer. ValueError: none."""
    return int(text.split(maxsplit=1)[0])
