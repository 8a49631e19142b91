"""The server of the cells: started, kept or restarted between them, its prompt cache emptied."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from llama_load.ground.errors import UsageError
from llama_load.lab.sweep.cells import Cell
from llama_load.lab.sweep.grammar import FIT, KEEP, URL
from llama_load.lab.sweep.plan import PlannedServer
from llama_load.lab.sweep.server_spec import spec_of
from llama_load.outside.foreign_text import redacted, redacted_bytes
from llama_load.outside.plain_http import NoAnswerError, Session
from llama_load.servers.kinds import ServerKind, ServerSpec, kind_named
from llama_load.servers.probe import Probe, ProbeSettings
from llama_load.servers.serving.fit_params import fitted_flags
from llama_load.servers.serving.launch import Server, serving

MEMORY = "memory.log"
FITTED = "fit_param.cmd"
_MEMORY_LINE = re.compile(rb"memory.?breakdown", re.IGNORECASE)
_IS_LOADED = re.compile(rb"n_slots = \d")
FORECAST = (
    "(a forecast from before the model was loaded: "
    "the server did not print the table at its end)"
)
MOST_LOG_BYTES = 64 << 20


@dataclass(slots=True)
class Ready:
    """A server that is ready for a cell.

    `start_s`: it was started for this cell alone; None if it was kept or is a URL.
    """

    url: str
    start_s: float | None
    note: str = ""


class RunningServer:
    """At most one server at a time.

    It goes on for cells with the same settings, until it is stopped.
    """

    def __init__(self, folder: Path, after_a_cell: str, *, empties_cache: bool) -> None:
        self._folder = folder
        self._keeps = after_a_cell == KEEP
        self._empties_cache = empties_cache
        self._stack = ExitStack()
        self._server: Server | None = None
        self._settings = ""
        self._log_folder: Path | None = None

    def ready_for(self, cell: Cell) -> Ready:
        """The server of a cell, started or kept. UsageError, RunError: it cannot be started."""
        if cell.server.kind == URL:
            self.stop()
            url = str(cell.server.settings[URL]).rstrip("/")
            return self._kept(url, None)

        settings = digest(cell.server)
        if (
            self._server is not None
            and self._settings == settings
            and not self._server.ended()
        ):
            return self._kept(self._server.url, kind_named(cell.server.kind))
        self.stop()

        self._log_folder = self._folder / cell.folder
        spec = spec_of(cell.server)
        fit_program = str(cell.server.settings.get(FIT, ""))
        if fit_program:  # while nothing of the server is in memory
            _write_fitted_flags(fit_program, spec, self._log_folder)
        self._server = self._stack.enter_context(serving(spec, self._log_folder))
        self._settings = settings
        return Ready(self._server.url, self._server.start_s)

    def _kept(self, url: str, kind: ServerKind | None) -> Ready:
        """A server that was not started for the cell."""
        note = empty_cache(url, kind) if self._empties_cache else ""
        return Ready(url, None, note)

    def has_ended(self) -> str:
        """Why the server ended; empty while it runs."""
        return self._server.ended() if self._server is not None else ""

    def cell_over(self) -> None:
        """Stop the server unless it is kept."""
        if not self._keeps:
            self.stop()

    def stop(self) -> None:
        """Stop the server, if one runs, and keep its memory breakdown."""
        self._server = None
        self._settings = ""
        self._stack.close()
        if self._log_folder is not None:
            _keep_memory_lines(self._log_folder)
            self._log_folder = None


def _write_fitted_flags(program: str, spec: ServerSpec, folder: Path) -> None:
    """fit_param.cmd: the flags that llama-fit-params fits to the memory."""
    given = list(spec.args)
    if spec.model:
        given[:0] = ["-m", spec.model]
    flags = fitted_flags(program, given, spec.env)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FITTED).write_text(f"{redacted(flags)}\n", encoding="utf-8")


def digest(server: PlannedServer) -> str:
    """All settings of a server as text."""
    return msgspec.json.encode(asdict(server), order="sorted").decode()


def empty_cache(url: str, kind: ServerKind | None = None) -> str:
    """Empty the prompt cache of this server. A sentence if that fails.

    `kind`: of the server; it is asked for it if it is not given.
    """
    try:
        kind = kind or Probe(ProbeSettings(url)).ask().kind
        why = kind.reset_cache(Session(), url)
    except UsageError as error:
        why = str(error)
    except NoAnswerError:
        why = "the server did not answer"
    return why and f"the prompt cache was not emptied: {why}"


def _keep_memory_lines(folder: Path) -> None:
    """memory.log: the lines of the memory breakdown that llama.cpp prints when it ends.

    A server that was killed has only printed the one with which it fits its parameters.
    """
    log = folder / "server.log"
    memory = folder / MEMORY
    if memory.exists() or not log.is_file():
        return

    kept: list[bytes] = []
    is_loaded = False
    is_forecast = False
    with log.open("rb") as file:
        for line in file.read(MOST_LOG_BYTES).splitlines(keepends=True):
            is_loaded = is_loaded or _IS_LOADED.search(line) is not None
            if not _MEMORY_LINE.search(line):
                continue
            if b"[MiB]" in line:  # the heading: it is printed at the start, too
                kept.clear()
                is_forecast = not is_loaded
            kept.append(line)

    if kept and is_forecast:
        kept.append(f"{FORECAST}\n".encode())
    if kept:
        memory.write_bytes(redacted_bytes(b"".join(kept)))
