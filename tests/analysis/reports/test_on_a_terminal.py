"""What a run prints on a terminal: what needs attention, and the first screen last."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import termios
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.progress import Progress as Bar
from rich.text import Text

from llama_load.loadgen.preflight.prepare import rows_to_read
from llama_load.loadgen.run.progress import (
    BACKLOG_S,
    Backlog,
    Counts,
    bar_columns,
    can_spark,
    room_for_spark,
    shown_phase,
    sparkline,
)
from llama_load.run_folder import PreflightRow
from llama_load.servers.serving.launch import Server
from tests.conftest import environment, fork_server, locust_command
from tests.fork_server import LOCUST

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def printed_on_a_terminal(words: Sequence[str], folder: Path, columns: int) -> str:
    """All that a program prints there, with what is drawn over."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    variables = environment() | {"TERM": "xterm", "NO_COLOR": ""}
    del variables["COLUMNS"]
    with open(theirs, "w", encoding="utf-8") as terminal:
        process = fork_server(LOCUST).fork(words, folder, variables, terminal)
    printed = b""
    try:
        while True:
            printed += os.read(ours, 65536)
    except OSError:  # the other side is closed
        pass
    finally:
        os.close(ours)
        process.wait(60)
    return printed.decode().replace("\r\n", "\n")


def on_a_terminal(words: Sequence[str], folder: Path, columns: int) -> list[str]:
    """The lines that the program leaves on a terminal of so many columns, without colours."""
    lines = printed_on_a_terminal(words, folder, columns).split("\n")
    # What was drawn over is gone.
    return [ESCAPES.sub("", line.rpartition("\r")[2]).rstrip() for line in lines]


def test_a_run_ends_with_its_first_screen(llama_server: Server, tmp_path: Path) -> None:
    run = tmp_path / "run"
    flags = ("-u", "2", "--num-prompts", "8", "--max-tokens", "2")
    words = locust_command(llama_server.url, run, *flags)[2:]
    printed = on_a_terminal(words, tmp_path, 80)
    check_first_screen(printed, 80)
    assert "other checks passed (--block shows them)" in "\n".join(printed)
    (named,) = (line for line in printed if line.startswith("Full block, tables: "))
    assert named.endswith("/report.md")
    assert "Serving Benchmark Result" in (run / "summary.txt").read_text(
        encoding="utf-8"
    )

    report = ["llama_load.cli.main", "report", str(run)]
    check_first_screen(on_a_terminal(report, tmp_path, 120), 120)
    with_block = "\n".join(on_a_terminal([*report, "--block"], tmp_path, 80))
    assert "Serving Benchmark Result" in with_block
    assert with_block.rstrip().endswith(f"Run folder: {run}")


def check_first_screen(lines: Sequence[str], columns: int) -> None:
    text = "\n".join(lines)

    assert "Serving Benchmark Result" not in text
    (ran,) = [line for line in lines if line.startswith("8 of 8 answered")]
    after = [line for line in lines[lines.index(ran) :] if line]
    assert len(after) <= 14
    # The last command may be longer than the terminal, so that it can be copied.
    for line in lines:
        commands = ("llama-load ", "locust ", "Full ", "and ")
        is_command = line.lstrip().startswith(commands)
        assert is_command or cell_len(line) <= columns, line


def test_of_the_checks_before_a_run_those_to_read_are_shown() -> None:
    ok = PreflightRow("server", "llama-server at http://h")
    rows = [
        ok,
        PreflightRow("key", "none given, none required"),
        PreflightRow("slots", "4"),
        PreflightRow("context", "not known", "note"),
        replace(ok, name="tools", level="warning"),
    ]
    shown = rows_to_read(rows)
    assert [row.name for row in shown] == ["server", "context", "tools", "checks"]
    assert shown[-1].value == "2 other checks passed (--block shows them)"
    assert rows_to_read(rows[:1]) == [ok]


def test_a_backlog_that_grows_is_an_objection_and_a_burst_is_none() -> None:
    """337 in flight, growing: every second of the last third has more than any of the first."""
    growing, steady, short = Backlog(), Backlog(), Backlog()
    for second in range(BACKLOG_S):
        growing.look(float(second), 4 * second)
        growing.look(second + 0.5, 0)  # within the second: not counted
        steady.look(float(second), 40 if second % 5 == 0 else 4)
    short.look(0.0, 100)
    assert growing.objection == "growing: the server falls behind"
    assert steady.objection == short.objection == ""


def test_a_sparkline_has_a_character_a_second_as_far_as_there_is_room() -> None:
    """The newest seconds stay; of the largest rate each character shows the share."""
    rates = [0.0, 50.0, 100.0, 100.0, 700.0, 350.0]
    assert sparkline(rates, 80) == "▁▂▂▂█▅"
    assert sparkline(rates, 5) == "▂▂▂█▅"
    assert sparkline(range(100), 80) == sparkline(range(80, 100), 20)
    assert len(sparkline(range(100), 80)) == 20
    for nothing in ([], [0.0] * 20, [1.0, 2.0]):
        assert sparkline(nothing, 80) == ""
    assert sparkline(rates, 4) == sparkline(rates, -3) == ""


def test_a_terminal_without_the_characters_has_no_sparkline() -> None:
    assert can_spark("utf-8")
    assert not can_spark("ascii") and not can_spark("latin-1")
    assert not can_spark("no such encoding")


@pytest.mark.parametrize("phase", ["measuring", "stage 4 measuring"])
@pytest.mark.parametrize("width", [76, 80, 100, 110, 130, 200])
def test_the_live_line_with_a_sparkline_is_one_line(width: int, phase: str) -> None:
    counts = Counts(phase, True, 64, 2000, 8, left_s=612.0)
    counts.since = time.monotonic() - 60_000  # a busy machine adds some seconds
    counts.output_tokens = 74_000_000
    counts.spark = sparkline(range(1, 100), room_for_spark(counts, width))
    out = io.StringIO()
    console = Console(file=out, width=width, height=24, force_terminal=True)
    bar = Bar(*bar_columns(width), console=console, auto_refresh=False)
    bar.add_task(
        shown_phase(phase, width), completed=64, total=2000, line=counts.line()
    )
    console.print(bar.get_renderable())
    (line,) = Text.from_ansi(out.getvalue()).plain.splitlines()
    assert cell_len(line) <= width
    shown = re.search(
        r"█ 1\d\d\d tok/s · 10:12 left", line
    )  # a minute ago, and a moment
    assert bool(shown) == (width >= 80)
