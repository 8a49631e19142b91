"""Draw docs/pictures/coordinated-omission.svg: the same server stall, measured by a closed loop and
by an open loop.

    make pictures

Three runs against a simulated server whose answers take 200 ms and that stalls for 2 s: four users
(20 requests/s); an open loop of 20 requests/s; the same with at most 5 in flight. Each run has a
fresh server. The figures go into coordinated-omission.json and the table of docs/load-models.md.
Takes two minutes on an otherwise idle machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from llama_load.ground.units import NS_PER_S
from llama_load.run_folder import load_run
from llama_load.run_folder.vocabulary.verdict_words import CLIENT_BOUND, INCOMPLETE
from llama_load.servers.local_ports import free_port
from llama_load.servers.serving.launch import start
from llama_load.servers.serving.simulated import read_log

REPOSITORY = Path(__file__).resolve().parent.parent
NAME = "coordinated-omission"
PICTURES = REPOSITORY / "docs" / "pictures"
PAGE = REPOSITORY / "docs" / "load-models.md"
BEGIN, END = "<!-- from scripts/make_pictures.py -->", "<!-- to here -->"

ANSWER_MS = 200  # an answer is a single token, so the picture shows only its latency
# else the users of the closed loop would synchronize, and their dots overlap
JITTER_MS = 30
SLOW_MS = 2 * ANSWER_MS
STALL_AT_S, STALL_S = 10, 2
REQUESTS = 600  # enough that four slow ones are less than 1 %
RATE_RPS, USERS, LIMIT = 20, 4, 5
COMMON = (
    "--num-prompts",
    str(REQUESTS),
    "--input-len",
    "32",
    "--output-len",
    "1",
    "--percentile-metrics",
    "e2el",
    "--metric-percentiles",
    "50,99",
)
OPEN = ("--request-rate", str(RATE_RPS), "--arrival", "constant")
SERVER = (
    "--first-token-ms",
    str(ANSWER_MS),
    "--jitter-ms",
    str(JITTER_MS),
    "--stall-at-s",
    str(STALL_AT_S),
    "--stall-s",
    str(STALL_S),
)
TRIES = 5


@dataclass(frozen=True, slots=True)
class Seen:
    """E2EL of a run in ms, by one way of measuring it. Percentiles as in summary.json; `slow`
    requests took over `SLOW_MS`."""

    what: str
    flags: str
    verdict: str
    completed: int
    slow: int
    median_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class Measured:
    """A run's requests: scheduled time in s, on an axis where the stall begins at `STALL_AT_S`;
    latency in ms from the scheduled time, and from the start."""

    at_s: NDArray[np.float64]
    wanted_ms: NDArray[np.float64]
    started_ms: NDArray[np.float64]
    flags: str
    summary: dict[str, float]
    verdict: str

    def seen(self, what: str, *, from_start: bool = False) -> Seen:
        """Its figures, from the scheduled time of each request or from its start."""
        values, key = (
            (self.started_ms, "e2el")
            if from_start
            else (self.wanted_ms, self._wanted_key)
        )
        median, p99 = self.summary[f"p50_{key}_ms"], self.summary[f"p99_{key}_ms"]
        slow = int((values > SLOW_MS).sum())
        return Seen(
            what,
            self.flags,
            self.verdict,
            len(values),
            slow,
            median,
            p99,
            float(values.max()),
        )

    @property
    def _wanted_key(self) -> str:
        return "scheduled_e2el" if "p50_scheduled_e2el_ms" in self.summary else "e2el"


def measure(*flags: str) -> Measured:
    """A run with these flags against a fresh server. Raises SystemExit if the machine is too busy
    to measure."""
    for _ in range(TRIES):
        with tempfile.TemporaryDirectory() as folder:
            measured = _measure(Path(folder), flags)
        if measured.verdict not in (CLIENT_BOUND, INCOMPLETE):
            return measured
        print(f"{measured.verdict}, repeating …", file=sys.stderr)
    raise SystemExit(
        "this machine is too busy: let it do nothing else, and run make pictures again"
    )


def _measure(folder: Path, flags: Sequence[str]) -> Measured:
    port = free_port()
    url, log = f"http://127.0.0.1:{port}", folder / "truth.jsonl"
    llama_load = [
        sys.executable,
        "-m",
        "llama_load.cli.main",
        "serve",
        "--simulated",
        "--port",
        str(port),
        *SERVER,
        "--log",
        str(log),
    ]
    server = start(llama_load, url, folder / "server.log")
    locust = [
        sys.executable,
        "-m",
        "locust",
        "-f",
        "locustfiles/synthetic.py",
        "--headless",
        "--only-summary",
        "--host",
        url,
    ]
    try:
        subprocess.run(
            [*locust, *COMMON, *flags, "--run-dir", str(folder / "run")],
            cwd=REPOSITORY,
            check=False,
        )
    finally:
        server.stop()
    records = load_run(folder / "run").records.measured().ok()
    summary = json.loads((folder / "run" / "summary.json").read_text(encoding="utf-8"))
    first_ns = min(entry["received_mono_ns"] for entry in read_log(log))
    queued_ms = np.nan_to_num(records.numbers("client_queue_ms"))
    return Measured(
        (records.instants("started_mono_ns") - first_ns) / NS_PER_S - queued_ms / 1e3,
        records.numbers("e2el_ms") + queued_ms,
        records.numbers("e2el_ms"),
        " ".join(flags),
        summary,
        summary["llama_load"]["verdict"]["word"],
    )


def draw(panels: Sequence[tuple[str, Measured, Seen, str]]) -> Figure:
    """One panel per (title, run, colour): every request is a dot at its scheduled time."""
    figure = Figure(figsize=(8, 5.4), facecolor="white", layout="constrained")
    axes: list[Axes] = list(figure.subplots(len(panels), 1, sharex=True, sharey=True))
    for place, (title, measured, seen, colour) in zip(axes, panels, strict=True):
        place.axvspan(STALL_AT_S, STALL_AT_S + STALL_S, color="#d9d9d9", linewidth=0)
        _dots(place, measured, colour)
        place.set_title(title, loc="left", fontsize=10, fontweight="bold")
        text = f"{seen.slow} of {seen.completed} requests took over {SLOW_MS} ms\n"
        text += (
            f"median {seen.median_ms:.0f} ms,  p99 {seen.p99_ms:.0f} ms,  longest "
            f"{seen.max_ms:.0f} ms"
        )
        place.text(
            0.98,
            0.9,
            text,
            transform=place.transAxes,
            ha="right",
            va="top",
            linespacing=1.6,
        )
        place.text(
            STALL_AT_S + STALL_S + 0.3,
            2200,
            "the server\nstalls",
            va="center",
            color="#555555",
        )
        place.set_ylabel("E2EL (ms)")
        place.set_ylim(0, 2500)
        place.set_xlim(0, REQUESTS / RATE_RPS + STALL_S + 1)
        place.grid(axis="y", color="#eeeeee")
        place.set_axisbelow(True)
        place.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("when the request was wanted (s)")
    counts = [seen.slow for _, _, seen, _ in panels]
    figure.suptitle(
        f"One stall of {STALL_S} s: the closed loop sees {counts[0]} slow requests, the open "
        f"loop {counts[1]}",
        fontsize=12,
    )
    return figure


def _dots(place: Axes, measured: Measured, colour: str) -> None:
    """One dot per request, drawn as a line with round ends: markers would take three times the
    bytes."""
    gap = np.full(len(measured.at_s), np.nan)
    across = np.column_stack([measured.at_s, measured.at_s + 1e-3, gap]).ravel()
    up = np.column_stack([measured.wanted_ms, measured.wanted_ms, gap]).ravel()
    place.plot(across, up, color=colour, linewidth=3, solid_capstyle="round")


def table(rows: Sequence[Seen]) -> str:
    """The figures as Markdown."""
    head = (
        f"| E2EL of {REQUESTS} requests | flags | over {SLOW_MS} ms | median (ms) | p99 (ms) "
        "| longest (ms) |"
    )
    lines = [
        f"| {row.what} | `{row.flags}` | {row.slow} | {row.median_ms:.0f} | {row.p99_ms:.0f} | "
        f"{row.max_ms:.0f} |"
        for row in rows
    ]
    return "\n".join([head, "|---|---|---|---|---|---|", *lines])


def main() -> None:
    """Measure, draw, write."""
    closed, scheduled, limited = (
        measure("-u", str(USERS)),
        measure(*OPEN),
        measure(*OPEN, "--max-concurrency", str(LIMIT)),
    )
    rows = [
        closed.seen(f"closed loop: {USERS} users, each waits for its answer"),
        scheduled.seen(f"open loop: {RATE_RPS} requests a second"),
        limited.seen(
            f"open loop, at most {LIMIT} in flight: from sending", from_start=True
        ),
        limited.seen(f"open loop, at most {LIMIT} in flight: from the schedule"),
    ]
    PICTURES.mkdir(exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": NAME, "font.size": 9, "path.simplify": False}):
        one = (
            f"Closed loop, -u {USERS}: each user waits for its answer, then asks again",
            closed,
            rows[0],
            "#0072b2",
        )
        other = (
            f"Open loop, --request-rate {RATE_RPS}: requests come by a schedule",
            scheduled,
            rows[1],
            "#d55e00",
        )
        figure = draw([one, other])
        figure.savefig(PICTURES / f"{NAME}.svg", metadata={"Date": None})
    figures = {
        "server": " ".join(SERVER),
        "common": " ".join(COMMON),
        "rows": [asdict(row) for row in rows],
    }
    (PICTURES / f"{NAME}.json").write_text(
        json.dumps(figures, indent=1) + "\n", encoding="utf-8"
    )
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(
        f"{before}{BEGIN}\n{table(rows)}\n{END}{rest.split(END)[1]}", encoding="utf-8"
    )
    print(table(rows))


if __name__ == "__main__":
    main()
