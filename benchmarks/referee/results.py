"""The results of all cells in one file, written after each, so that a measurement can be
continued."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.referee.clients import CLIENTS, Client
from benchmarks.referee.measure import Cell
from benchmarks.referee.scenarios import Scenario
from llama_load.run_folder import write_whole
from truth.server.serving import compiled

RESULTS = Path(__file__).resolve().with_name("results.json")


class Results:
    """`cells` by "SCENARIO/CLIENT"; `machine`; `versions` by client."""

    def __init__(self, path: Path) -> None:
        self.path = path
        known: dict[str, Any] = (
            json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        )
        self.cells: dict[str, Cell] = known.get("cells", {})
        self.machine: Mapping[str, Any] = known.get("machine", {})
        self.versions: dict[str, str] = known.get("versions", {})

    def cell(self, scenario: Scenario, client: Client) -> Cell | None:
        return self.cells.get(f"{scenario.name}/{client.name}")

    def add(self, scenario: Scenario, client: Client, cell: Cell) -> None:
        """And write the file."""
        self.cells[f"{scenario.name}/{client.name}"] = cell
        self.versions |= {
            each.name: each.version() for each in CLIENTS if each.installed()
        }
        self.machine = machine()
        value = {
            "machine": self.machine,
            "versions": self.versions,
            "cells": self.cells,
        }
        write_whole(
            self.path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()
        )


def machine() -> dict[str, Any]:
    """Of this measurement."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return {
        "date": time.strftime("%Y-%m-%d"),
        "system": platform.platform(terse=True),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "commit": commit,
        "server": "server.c" if compiled() else "plain.py",
    }
