"""The server of the cells: started, kept or restarted between them, its prompt cache emptied."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from llama_load.errors import UsageError
from llama_load.foreign_text import redacted, redacted_bytes
from llama_load.lab.sweep.cells import Cell
from llama_load.lab.sweep.grammar import FIT, KEEP, URL
from llama_load.lab.sweep.plan import PlannedServer
from llama_load.lab.sweep.server_spec import spec_of
from llama_load.plain_http import NoAnswerError, request
from llama_load.serving.fit_params import fitted_flags
from llama_load.serving.launch import Server, serving
from llama_load.targets.probe import Probe, ProbeSettings
from llama_load.targets.servers import ServerKind, kind_named

ASK_WITHIN_S = 10.0
MOST_SLOTS = 1024
MEMORY, FITTED = "memory.log", "fit_param.cmd"
_MEMORY_LINE = re.compile(rb"memory.?breakdown", re.IGNORECASE)
MOST_LOG_BYTES = 64 << 20


@dataclass(slots=True)
class Ready:
    """A server that is ready for a cell. `start_s`: it was started for this cell alone; None if it was kept or is a URL."""

    url: str
    start_s: float | None
    note: str = ""


class RunningServer:
    """At most one server at a time. It goes on for cells with the same settings, until it is stopped."""

    def __init__(self, folder: Path, after_a_cell: str, *, empties_cache: bool) -> None:
        self._folder, self._keeps, self._empties_cache = folder, after_a_cell == KEEP, empties_cache
        self._stack = ExitStack()
        self._server: Server | None = None
        self._settings = ""
        self._log_folder: Path | None = None

    def ready_for(self, cell: Cell) -> Ready:
        """The server of a cell, started or kept. UsageError, RunError: it cannot be started."""
        if cell.server.kind == URL:
            self.stop()
            url = str(cell.server.settings[URL]).rstrip("/")
            return Ready(url, None, empty_cache(url) if self._empties_cache else "")
        settings = digest(cell.server)
        if self._server is not None and self._settings == settings and not self._server.ended():
            kind = kind_named(cell.server.kind)
            return Ready(self._server.url, None, empty_cache(self._server.url, kind) if self._empties_cache else "")
        self.stop()
        self._log_folder = self._folder / cell.folder
        spec = spec_of(cell.server)
        if program := str(cell.server.settings.get(FIT, "")):  # while nothing of the server is in memory
            self._log_folder.mkdir(parents=True, exist_ok=True)
            flags = fitted_flags(program, (*(("-m", spec.model) if spec.model else ()), *spec.args), spec.env)
            (self._log_folder / FITTED).write_text(f"{redacted(flags)}\n", encoding="utf-8")
        self._server = self._stack.enter_context(serving(spec, self._log_folder))
        self._settings = settings
        return Ready(self._server.url, self._server.start_s)

    def has_ended(self) -> str:
        """Why the server ended; empty while it runs."""
        return self._server.ended() if self._server is not None else ""

    def cell_over(self) -> None:
        """Stop the server unless it is kept."""
        if not self._keeps:
            self.stop()

    def stop(self) -> None:
        """Stop the server, if one runs, and keep its memory breakdown."""
        self._server, self._settings = None, ""
        self._stack.close()
        if self._log_folder is not None:
            _keep_memory_lines(self._log_folder)
            self._log_folder = None


def digest(server: PlannedServer) -> str:
    """All settings of a server as text."""
    return msgspec.json.encode(asdict(server), order="sorted").decode()


def empty_cache(url: str, kind: ServerKind | None = None) -> str:
    """Empty the prompt cache of this server, whose kind is looked up if it is not given. A sentence if that fails."""
    try:
        kind = kind or Probe(ProbeSettings(url)).ask().kind
        has_slots = "{slot}" in kind.cache_reset
        slots = request("GET", url + kind.slots_path, within_s=ASK_WITHIN_S).json()[:MOST_SLOTS] if has_slots else [{"id": 0}]
        paths = [kind.cache_reset.format(slot=int(slot["id"])) for slot in slots]
        answers = [request("POST", url + path, within_s=ASK_WITHIN_S) for path in paths if path]
        why = "" if answers and all(answer.status == 200 for answer in answers) else kind.cache_reset_note
    except UsageError as error:
        why = str(error)
    except (NoAnswerError, ValueError, KeyError, TypeError):
        why = "the server did not answer"
    return why and f"the prompt cache was not emptied: {why}"


def _keep_memory_lines(folder: Path) -> None:
    """memory.log: the lines of the memory breakdown that llama.cpp prints when it ends."""
    log, memory = folder / "server.log", folder / MEMORY
    if memory.exists() or not log.is_file():
        return
    with log.open("rb") as file:
        lines = [line for line in file.read(MOST_LOG_BYTES).splitlines(keepends=True) if _MEMORY_LINE.search(line)]
    heads = [place for place, line in enumerate(lines) if b"[MiB]" in line]
    lines = lines[heads[-1] :] if heads else lines  # it is printed at the start, too
    if lines:
        memory.write_bytes(redacted_bytes(b"".join(lines)))
