"""Searches and sweeps that the page starts.

One at a time, each a process of the llama-load command with a folder of its own. What is typed
never becomes a command or a path: the server must be a URL that the keys were given for, and a plan
one of the files listed in the folder of plans.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from llama_load.ground.errors import UsageError
from llama_load.ground.own_modules import module_command, module_environment
from llama_load.loadgen.options.objectives import parse_objectives
from llama_load.loadgen.options.server_keys import API_KEY, KEY_VARIABLES
from llama_load.outside.foreign_files import begin_of, is_ours_alone, read_foreign_json
from llama_load.outside.foreign_text import printable, printable_lines
from llama_load.page.guard import WebGuard
from llama_load.servers.address import parse_url

SEARCH = "search"
SWEEP = "sweep"
KINDS = (SEARCH, SWEEP)
VARIED = ("concurrency", "rate")
RESULTS = ("search.html", "sweep.html")
LOG = "log.txt"
STATE = "state.json"
PLAN_ENDS = (".yaml", ".yml")
LONGEST_S = 7 * 24 * 3600.0
SHORTEST_S = 60.0
# Where the command line keeps them, too.
FOLDERS = {SEARCH: "searches", SWEEP: "sweeps"}
# A plan of a sweep has one of these keys at its top; other YAML files are none.
PLAN_KEY = re.compile(rb"^(?:servers?|load|vary)[ \t]*:", re.MULTILINE)
MOST_PLAN_BYTES = 64 * 1024  # that are looked at
MOST_FOUND = 50
# Of a folder of plans, of state.json and of the end of the log.
MOST_PLANS = 200
MOST_ENTRIES = 10_000
MOST_STATE_BYTES = 4 << 20
MOST_LOG_BYTES = 4000


@dataclass(slots=True)
class Started:
    """A search or sweep that was started here."""

    kind: str
    title: str
    folder: Path
    process: subprocess.Popen[bytes]
    began_s: float
    stops: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """A search or sweep with a result. `name`: of its folder."""

    kind: str
    name: str
    result: Path


class Experiments:
    """See above."""

    def __init__(
        self, options: Any, guard: WebGuard, is_busy: Callable[[], bool]
    ) -> None:
        self._options = options
        self._guard = guard
        self._is_busy = is_busy
        self.folder = Path(options.ui_folder or ".").resolve()  # of plans
        self.present: Started | None = None

    @property
    def is_running(self) -> bool:
        """Whether a search or sweep has not ended."""
        return self.present is not None and self.present.process.poll() is None

    def plans(self) -> list[str]:
        """The names of the plans: regular files directly in the folder of plans."""
        names = []
        try:
            with os.scandir(self.folder) as entries:
                for entry in islice(entries, MOST_ENTRIES):
                    is_hidden = entry.name.startswith((".", "-"))
                    if not entry.name.endswith(PLAN_ENDS) or is_hidden:
                        continue
                    is_file = entry.is_file(follow_symlinks=False)
                    if is_file and self._is_plan(entry.name):
                        names.append(entry.name)
        except OSError:
            return []

        return sorted(names)[:MOST_PLANS]

    def _is_plan(self, name: str) -> bool:
        try:
            head = begin_of(self.folder / name, MOST_PLAN_BYTES, inside=self.folder)
        except (OSError, ValueError):
            return False
        return PLAN_KEY.search(head) is not None

    def start(self, typed: Mapping[str, Any]) -> None:
        """Start what was typed. UsageError: it cannot be started."""
        if self.is_running:
            raise UsageError("a search or sweep is running: stop it first")
        if self._is_busy():
            raise UsageError("a run is under way: stop it first")

        kind = typed.get("kind")
        if kind not in KINDS:
            raise UsageError("choose a search or a sweep")

        now = time.strftime("%Y%m%d-%H%M%S")
        if kind == SEARCH:
            title, words, environment = self._search(typed)
        else:
            title, words, environment = self._sweep(typed)
        folder = Path(FOLDERS[kind]) / now

        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with Path(f"{folder}.{LOG}").open("xb") as log:
                process = subprocess.Popen(
                    module_command("llama_load.cli.main", *words, f"--out={folder}"),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            raise UsageError(
                f"it cannot be started: {error.strerror or error}"
            ) from None

        self.present = Started(kind, title, folder, process, time.time())

    def stop(self) -> None:
        """As Ctrl-C does; pressed again, it ends the process."""
        if self.present is None or not self.is_running:
            return

        self.present.stops += 1
        if self.present.stops == 1:
            self.present.process.send_signal(signal.SIGINT)
        else:
            self.present.process.send_signal(signal.SIGTERM)

    def status(self) -> dict[str, Any] | None:
        """The present or last one; None: none was started."""
        if self.present is None:
            return None

        code = self.present.process.poll()
        return {
            "kind": self.present.kind,
            "title": self.present.title,
            "folder": str(self.present.folder),
            "running": code is None,
            "exit_code": code,
            "elapsed_s": time.time() - self.present.began_s,
            "stopping": self.present.stops > 0 and code is None,
            "state": self._state(),
            "log": self._log(),
            "has_result": self.result() is not None,
        }

    def result(self) -> Path | None:
        """The page with the result of the last one, when it has ended."""
        if self.present is None or self.is_running:
            return None

        return _result_in(self.present.folder)

    def _search(
        self, typed: Mapping[str, Any]
    ) -> tuple[str, list[str], dict[str, str]]:
        """Title, words after `llama-load`, environment."""

        def text(name: str) -> str:
            return str(typed.get(name) or "").strip()

        try:
            url = parse_url(text("host")).url
        except ValueError as error:
            raise UsageError(f"--host: {error}") from None

        self._guard.check(Namespace(**vars(self._options)), url)
        vary = text("vary")
        if vary not in VARIED:
            raise UsageError("--vary must be users or requests per second")

        goals = text("goodput")
        parse_objectives([goals])

        words = [
            "search",
            f"--serve={url}",
            f"--vary={vary}",
            f"--goodput={goals}",
            f"--max-time={_seconds_field(text('max_time')):g}",
        ]
        key = getattr(self._options, "api_key", None)
        environment = module_environment({API_KEY: key} if key else {})

        unit = "users" if vary == "concurrency" else "requests per second"
        title = f"Search of the most {unit} within {printable(goals)} on {url}"

        return title, words, environment

    def _sweep(self, typed: Mapping[str, Any]) -> tuple[str, list[str], dict[str, str]]:
        """The same. Its servers are those of the plan, which get no key."""
        plan = typed.get("plan")
        if not isinstance(plan, str) or plan not in self.plans():
            raise UsageError("choose one of the plans in the list")
        if not is_ours_alone(self.folder / plan, self.folder):
            raise UsageError(
                f"{printable(plan)} can be changed by others, and a plan starts programs: start "
                "it with llama-load sweep, which shows them and asks"
            )

        environment = module_environment(without=KEY_VARIABLES)
        words = ["sweep", "--yes", str(self.folder / plan)]

        return f"Sweep {printable(plan)}", words, environment

    def _state(self) -> dict[str, Any] | None:
        """What is shown of state.json; None without it."""
        assert self.present is not None
        file = self.present.folder / STATE
        try:
            state = read_foreign_json(file, MOST_STATE_BYTES, follows_links=False)
        except (OSError, ValueError):
            return None

        probes = state.get("probes")
        present = state.get("present")
        step = ""
        if isinstance(present, dict):
            step = printable(str(present.get("step") or ""))

        return {
            "sentence": printable(str(state.get("sentence") or ""), None),
            "unit": printable(str(state.get("unit") or "")),
            "low": state.get("low"),
            "high": state.get("high"),
            "probes": len(probes) if isinstance(probes, list) else 0,
            "step": step,
            "limits": state.get("limits"),
        }

    def _log(self) -> str:
        assert self.present is not None
        try:
            with Path(f"{self.present.folder}.{LOG}").open("rb") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - MOST_LOG_BYTES))
                return printable_lines(
                    log.read(MOST_LOG_BYTES).decode("utf-8", "replace")
                )
        except OSError:
            return ""


def found() -> list[Found]:
    """The searches and sweeps that have a result, whoever started them, the newest first."""
    results = []
    for kind, folder in FOLDERS.items():
        try:
            with os.scandir(folder) as entries:
                names = [
                    entry.name
                    for entry in islice(entries, MOST_ENTRIES)
                    if entry.is_dir(follow_symlinks=False)
                ]
        except OSError:
            continue
        for name in sorted(names, reverse=True)[:MOST_FOUND]:
            path = _result_in(Path(folder) / name)
            if path is not None:
                results.append(Found(kind, name, path))

    results.sort(key=lambda each: each.name, reverse=True)
    return results[:MOST_FOUND]


def found_result(kind: str, name: str) -> Path | None:
    """The page with the result of one of `found`."""
    for each in found():
        if (each.kind, each.name) == (kind, name):
            return each.result
    return None


def _result_in(folder: Path) -> Path | None:
    """The page with the result in a folder; None without it."""
    for name in RESULTS:
        path = folder / name
        if path.is_file() and not path.is_symlink():
            return path
    return None


def _seconds_field(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0

    if not SHORTEST_S <= seconds <= LONGEST_S:
        limits = f"from {SHORTEST_S:g} to {LONGEST_S:g}"
        raise UsageError(
            f"--max-time must be a number of seconds {limits}, got {printable(text)!r}"
        )

    return seconds
