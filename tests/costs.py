"""A plugin of pytest: the CPU time of each test, its own and that of what it starts.

`scripts/test_costs.py` runs the suite with it. A file a process of pytest, in the folder
`TEST_COSTS`: a JSON list a test, of its name, its own CPU seconds, those of started processes, and
what was started.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import FORKED

FOLDER = Path(os.environ["TEST_COSTS"])
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
STARTS = {"subprocess.Popen", "os.fork", FORKED}

_started: list[str] = []
_rows: list[tuple[str, float, float, list[str]]] = []


def _note(event: str, details: tuple[Any, ...]) -> None:
    if event not in STARTS:
        return
    words = ["fork"]
    if details:
        words = [Path(str(word)).name for word in details[-1 if event == FORKED else 1]]
    shown = " ".join(word for word in words if not word.startswith("-"))
    _started.append(
        " ".join(shown.split())[:40]
    )  # a program in a string has many lines


sys.addaudithook(_note)


def _of_this_process() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _of_others() -> float:
    """What started processes have used that have ended, and those that run."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    running_s = sum(_of_process(pid) for pid in _descendants("self"))
    return ended.ru_utime + ended.ru_stime + running_s


def _descendants(pid: str) -> Iterator[str]:
    """psutil would look through all processes of the machine, twice a test."""
    with suppress(OSError):  # it has ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield child
                yield from _descendants(child)


def _of_process(pid: str) -> float:
    """With that of its children that have ended (proc_pid_stat(5): fields 14 to 17)."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / TICKS_A_SECOND
    return 0.0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Measures a test with its fixtures."""
    others_s = _of_others()
    own_s = _of_this_process()
    _started.clear()
    result = yield
    own_s = _of_this_process() - own_s
    others_s = max(0.0, _of_others() - others_s)
    _rows.append((item.nodeid, own_s, others_s, [*_started]))
    return result


def pytest_sessionfinish() -> None:
    """Writes the file."""
    lines = "".join(f"{json.dumps(row)}\n" for row in _rows)
    (FOLDER / f"{os.getpid()}.jsonl").write_text(lines, encoding="utf-8")
