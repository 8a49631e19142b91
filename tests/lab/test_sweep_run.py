"""Sweeps that run: one of two cells on a real server; failing cells, interruptions and continuing
with prepared runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest

from llama_load.cli.main import main
from llama_load.ground.errors import UsageError
from llama_load.lab.calibrate import wait_for_quiet
from llama_load.lab.sweep import runner, running_server
from llama_load.lab.sweep.cells import Cell, expand
from llama_load.lab.sweep.comparison import compare_cells
from llama_load.lab.sweep.folder import Ended, open_folder, read_journal
from llama_load.lab.sweep.located import Faults, parse_yaml
from llama_load.lab.sweep.machine_watch import MachineWatch, own_cpu_s
from llama_load.lab.sweep.read_plan import plan_of
from llama_load.lab.sweep.run_cell import CellRun, LocustRuns, locust_words
from llama_load.lab.sweep.runner import Sweep, run_cells
from llama_load.lab.sweep.running_server import empty_cache
from llama_load.servers.kinds import ANY
from llama_load.servers.kinds.llama_server_kind import LLAMA_SERVER
from llama_load.servers.kinds.vllm_kind import VLLM
from llama_load.servers.serving.fit_params import fitted_flags
from llama_load.servers.serving.launch import Server
from tests.json_server import json_server
from tests.schemas import check_folder
from tests.swarms import wait_until

PLAN = """
servers: {a: {url: "http://127.0.0.1:1"}}
vary: {users: {flags.u: [1, 2, 4]}}
load: {num-prompts: 2}
idle-s: 0
"""


def plan_and_cells(text: str = PLAN) -> tuple[Any, list[Cell]]:
    faults = Faults("plan")
    plan = plan_of(parse_yaml(text, "plan", faults), {}, faults)
    return plan, expand(plan)


class Quiet:
    """A watcher that notes."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def began(self, cell: Cell, doing: str) -> None:
        pass

    def ended(self, cell: Cell, entry: Ended) -> None:
        self.seen.append((cell.settings.get("users", ""), entry.status))


def prepared(
    interrupt_at: str = "", fail_at: str = ""
) -> Callable[[LocustRuns, Cell, str, Path, float], CellRun]:
    """In place of Locust: writes a run folder with as many tokens/s as users; or fails, or is
    interrupted in the midst."""

    def run(
        _: LocustRuns, cell: Cell, url: str, folder: Path, limit_s: float
    ) -> CellRun:
        folder.mkdir()
        users = cell.settings["users"]
        if users == interrupt_at:
            raise KeyboardInterrupt
        if users == fail_at:
            return CellRun(3, "locust ended with exit code 3: it broke")
        verdict = {"word": "VALID", "words": ["VALID"]}
        summary = {
            "output_throughput": float(users),
            "completed": 2,
            "failed": 0,
            "llama_load": {"verdict": verdict},
        }
        (folder / "summary.json").write_text(json.dumps(summary))
        (folder / "run.json").write_text("{}")
        return CellRun(0, "")

    return run


def test_a_sweep_of_two_cells_on_a_real_server(
    llama_server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two run folders, a table, an effect that two runs cannot prove, a page with charts."""
    (tmp_path / "plan.yaml").write_text(
        f'servers: {{a: {{url: "{llama_server.url}"}}}}\nvary: {{n: {{values: [1, 2]}}}}\nidle-s: 0\n'
        'load: {u: "{n}", num-prompts: 2, max-tokens: 2, warmup: 0}\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LLAMA_LOAD_NO_REPORT_HTML", "true")
    monkeypatch.setenv("LLAMA_LOAD_TELEMETRY_INTERVAL", "0")
    monkeypatch.delenv("LOCUST_SKIP_MONKEY_PATCH")
    assert main(["sweep", "plan.yaml", "--out", "s"]) == 0
    check_folder(tmp_path / "s")
    found = json.loads((tmp_path / "s" / "sweep.json").read_bytes())
    assert [cell["status"] for cell in found["cells"]] == ["done", "done"]
    assert all(
        (tmp_path / "s" / cell["run"] / "requests.parquet").is_file()
        for cell in found["cells"]
    )
    table = (tmp_path / "s" / "table.md").read_text()
    assert table.splitlines()[2].startswith("| n | Concurrency | Success Rate |")
    assert "n: " in table or "†" in table  # a busy machine spoils what an effect needs
    html = (tmp_path / "s" / "sweep.html").read_text()
    # a busy machine spoils figures, of which a chart needs two
    assert html.count("data-chart=") >= 2 or "NA" in table
    assert "[2/2]" in capsys.readouterr().err


def test_a_killed_sweep_continues_with_the_cell_that_had_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, cells = plan_and_cells()
    monkeypatch.setattr(runner.LocustRuns, "run", prepared(interrupt_at="2"))
    folder = open_folder(tmp_path / "s", cells, b"plan", "1")
    with pytest.raises(KeyboardInterrupt):
        run_cells(Sweep(plan, cells, folder), Quiet())
    folder.close()
    with (tmp_path / "s" / "cells.jsonl").open("ab") as file:
        file.write(b'{"key":"cut of')  # what a crash leaves
    monkeypatch.setattr(runner.LocustRuns, "run", prepared())
    folder = open_folder(tmp_path / "s", cells, b"plan", "1")
    watcher = Quiet()
    run_cells(Sweep(plan, cells, folder), watcher)
    assert watcher.seen == [("2", "done"), ("4", "done")]
    assert (tmp_path / "s" / "runs" / f"{cells[1].folder}.unfinished-1").is_dir()
    folder.close()


@pytest.mark.parametrize(
    ("place", "leads_to", "said"),
    [
        ("runs", "", "leads out of"),
        ("servers", "", "leads out of"),
        ("runs/CELL", "", "leads out of"),
        ("runs", "missing", "leads out of"),
        ("cells.jsonl", "missing", "leads out of"),
        ("runs/CELL/server.log", "missing", "leads out of"),
        ("servers/CELL/memory.log", "missing", "leads out of"),
        ("runs", "s/runs", "cannot be made"),
    ],
)
def test_links_of_a_sweep_folder_lead_nowhere_else(
    place: str, leads_to: str, said: str, tmp_path: Path
) -> None:
    """A folder that came from elsewhere would have runs read and written at another place."""
    _, cells = plan_and_cells()
    folder = tmp_path / "s"
    open_folder(folder, cells, b"plan", "1").close()
    link = folder / place.replace("CELL", cells[0].folder)
    if link.is_dir():
        link.rmdir()
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / leads_to)
    with pytest.raises(UsageError, match=said):
        open_folder(folder, cells, b"plan", "1")
    link.unlink()
    open_folder(folder, cells, b"plan", "1").close()


def test_a_cell_that_other_programs_disturbed_runs_again_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cell of 2 users was disturbed; the machine is idle later, or it is not."""
    plan, cells = plan_and_cells(PLAN.replace("idle-s: 0", "idle-s: 5"))
    whole = prepared()
    text = "other programs used 40% of the CPUs of the server's machine"
    check = {"name": "other_programs_ratio", "ok": False, "text": text}
    busy = {"words": ["NOT COMPARABLE"], "checks": [check]}

    def run(
        runs: LocustRuns, cell: Cell, url: str, to: Path, limit_s: float
    ) -> CellRun:
        done = whole(runs, cell, url, to, limit_s)
        is_first = not to.with_name(f"{to.name}.disturbed-1").exists()
        if cell.settings["users"] == "2" and is_first:
            summary = json.loads((to / "summary.json").read_bytes())
            summary["llama_load"]["verdict"] = {"word": "NOT COMPARABLE"} | busy
            (to / "summary.json").write_text(json.dumps(summary))
        return done

    monkeypatch.setattr(runner.LocustRuns, "run", run)
    for share, orders in ((0.5, ["1", "2", "4"]), (0.0, ["1", "2", "4", "2"])):
        monkeypatch.setattr(runner, "wait_for_quiet", lambda _, share=share: share)
        folder = open_folder(tmp_path / f"s{share}", cells, b"plan", "1")
        watcher = Quiet()
        run_cells(Sweep(plan, cells, folder), watcher)
        assert [users for users, _ in watcher.seen] == orders
        notes = folder.ended[cells[1].key].notes
        assert any(text in note for note in notes) is (share == 0.0)
        folder.close()


STARTED = """
servers: {a: {embedded: {model: m.gguf}}}
vary: {users: {flags.u: [1, 2]}}
load: {num-prompts: 2}
idle-s: 5
tables: [{columns: [users, output_throughput]}]
"""
SEARCHED = STARTED.replace("flags.u:", "flags.max-tokens:").replace(
    "num-prompts: 2", "search: {goodput: 'ttft:500'}"
)


@pytest.mark.parametrize(
    ("text", "others", "known", "said", "runs"),
    [
        (STARTED, [0.5, 0.0, 0.0], False, "50% of the machine while the cell ran", 3),
        # what a run itself sees of other programs is judged by it alone
        (STARTED, [0.5, 0.0], True, "", 2),
        (STARTED, [0.15, 0.0], False, "", 2),
        (STARTED.replace("idle-s: 5", "idle-s: 0"), [], False, "", 2),
        (STARTED.replace("-prompts: 2", "-prompts: 2, shared-machine: true"), [], False, "", 2),
        # of a search no run says what was meanwhile
        (SEARCHED, [0.5, 0.0, 0.0], True, "50% of the machine while the cell ran", 3),
        # a start and a run of each cell
        (
            STARTED.replace("output_throughput", "server_start_s"),
            [0.3, 0.0, 0.0, 0.0, 0.0],
            True,
            "30% of the machine while the server started",
            3,
        ),
    ],
)  # fmt: skip
def test_the_sweep_looks_at_the_machine_where_a_run_does_not(
    text: str,
    others: list[float],
    known: bool,
    said: str,
    runs: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first cell is disturbed, and runs again at the end; the first result is kept."""
    monkeypatch.delenv("LLAMA_LOAD_SHARED_MACHINE", raising=False)
    shares = iter(others)

    class Watch:
        def others(self) -> float:
            return next(shares)

    whole = prepared()

    def run(of: LocustRuns, cell: Cell, url: str, to: Path, limit_s: float) -> CellRun:
        done = whole(of, cell, url, to, limit_s)
        summary = json.loads((to / "summary.json").read_bytes())
        check = {"name": "other_programs_ratio", "value": 0.0 if known else None}
        summary["llama_load"]["verdict"]["checks"] = [check]
        (to / "summary.json").write_text(json.dumps(summary))
        return done

    ready = running_server.Ready("http://127.0.0.1:1", 1.0)
    monkeypatch.setattr(runner, "MachineWatch", Watch)
    monkeypatch.setattr(runner, "wait_for_quiet", lambda _: 0.0)
    monkeypatch.setattr(runner.RunningServer, "ready_for", lambda *_: ready)
    monkeypatch.setattr(runner.LocustRuns, "run", run)
    plan, cells = plan_and_cells(text)
    folder = open_folder(tmp_path / "s", cells, b"plan", "1")
    watcher = Quiet()
    sweep = Sweep(plan, cells, folder)

    def search(cell: Cell, _: object, to: Path, limit_s: float) -> CellRun:
        return run(LocustRuns(), cell, "", to, limit_s)

    run_cells(sweep, watcher, searcher=search)
    assert len(watcher.seen) == runs
    notes = folder.ended[cells[0].key].notes
    assert any(said in note for note in notes) is bool(said)
    assert (tmp_path / "s" / "runs" / f"{cells[0].folder}.disturbed-1").exists() is bool(said)  # fmt: skip
    folder.close()


def test_a_cell_that_stays_disturbed_is_not_ranked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Busy:
        def others(self) -> float:
            return 0.6

    ready = running_server.Ready("http://127.0.0.1:1", 1.0)
    monkeypatch.delenv("LLAMA_LOAD_SHARED_MACHINE", raising=False)
    monkeypatch.setattr(runner, "MachineWatch", Busy)
    monkeypatch.setattr(runner, "wait_for_quiet", lambda _: 0.6)
    monkeypatch.setattr(runner.RunningServer, "ready_for", lambda *_: ready)
    monkeypatch.setattr(runner.LocustRuns, "run", prepared())
    plan, cells = plan_and_cells(STARTED)
    folder = open_folder(tmp_path / "s", cells, b"plan", "1")
    sweep = Sweep(plan, cells, folder)
    run_cells(sweep, Quiet())
    (table,) = compare_cells(sweep).tables
    assert [row[1].text for row in table.rows] == ["1.00 †", "2.00 †"]
    assert "not ranked: other programs used 60% of the machine" in table.notes[0]
    folder.close()


def test_what_the_sweep_started_is_no_other_program() -> None:
    """A process that used 0.2 s of CPU time, while it runs and after it has ended."""
    burn = "import time\nwhile time.process_time() < 0.2: pass\nprint('done', flush=True)\ninput()"
    before_s = own_cpu_s()
    command = [sys.executable, "-c", burn]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        while_running_s = own_cpu_s() - before_s
    assert while_running_s >= 0.18 and own_cpu_s() - before_s >= 0.18  # ticks of 10 ms
    assert 0.0 <= MachineWatch().others() <= 1.0


def test_rows_are_in_the_plans_order_whatever_the_order_of_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, cells = plan_and_cells(PLAN + "order: shuffled\nseed: 3\n")
    assert [cell.settings["users"] for cell in cells] != ["1", "2", "4"]
    monkeypatch.setattr(runner.LocustRuns, "run", prepared())
    folder = open_folder(tmp_path / "s", cells, b"plan", "1")
    sweep = Sweep(plan, cells, folder)
    run_cells(sweep, Quiet())
    (table,) = compare_cells(sweep).tables
    assert [row[0].text for row in table.rows] == ["1", "2", "4"]
    folder.close()


def test_a_cell_that_fails_is_na_and_the_sweep_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    monkeypatch.setattr(runner.LocustRuns, "run", prepared(fail_at="2"))
    command = ["sweep", str(tmp_path / "plan.yaml"), "--out", str(tmp_path / "s")]
    assert main(command) == 1
    printed = capsys.readouterr().out
    assert (
        "NA: a, num-prompts=2, users=2: locust ended with exit code 3: it broke"
        in printed
    )
    assert main(command) == 1  # it has ended, so it is not run again
    monkeypatch.setattr(runner.LocustRuns, "run", prepared())
    assert main([*command, "--retry-failed"]) == 0
    assert "NA" not in capsys.readouterr().out.rpartition("users")[2]


def test_a_sweep_without_any_result_ends_with_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Servers that cannot start: each cell has the reason."""
    (tmp_path / "plan.yaml").write_text(
        "servers: {a: {llama-server: {program: /nowhere/llama-server, model: m.gguf}}}\nload: {u: 1}\nidle-s: 0"
    )
    assert (
        main(["sweep", str(tmp_path / "plan.yaml"), "--out", str(tmp_path / "s")]) == 3
    )
    assert (
        "the server did not start: there is no program '/nowhere/llama-server'"
        in capsys.readouterr().out
    )


def test_a_server_that_ends_during_a_cell_is_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, cells = plan_and_cells()
    monkeypatch.setattr(runner.LocustRuns, "run", prepared())
    monkeypatch.setattr(
        runner.RunningServer, "has_ended", lambda _: "killed by signal 9"
    )
    folder = open_folder(tmp_path / "s", cells, b"plan", "1")
    run_cells(Sweep(plan, cells, folder), Quiet())
    assert {entry.reason for entry in folder.ended.values()} == {
        "the server ended: killed by signal 9"
    }
    folder.close()


def test_a_changed_plan_is_refused_unless_the_change_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, cells = plan_and_cells()
    monkeypatch.setattr(runner.LocustRuns, "run", prepared())
    folder = open_folder(tmp_path / "s", cells, b"plan", "1")
    run_cells(Sweep(plan, cells, folder), Quiet())
    with pytest.raises(UsageError, match="another sweep writes to"):
        open_folder(tmp_path / "s", cells, b"plan", "1")
    folder.close()
    changed, others = plan_and_cells(PLAN.replace("[1, 2, 4]", "[1, 2, 8]"))
    with pytest.raises(UsageError, match="2 of its 3 cells are the same"):
        open_folder(tmp_path / "s", others, b"plan", "1")
    folder = open_folder(tmp_path / "s", others, b"plan", "1", accept_changes=True)
    watcher = Quiet()
    run_cells(Sweep(changed, others, folder), watcher)
    assert watcher.seen == [("8", "done")]
    folder.close()


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("x")
    with pytest.raises(UsageError, match="has other files"):
        open_folder(tmp_path, plan_and_cells()[1], b"", "1")


def test_a_journal_of_nonsense_has_no_cells(tmp_path: Path) -> None:
    (tmp_path / "cells.jsonl").write_bytes(
        b'\xff\n[]\n{}\n{"key":"a","status":"done"}\n{"key":1}\n'
    )
    assert list(read_journal(tmp_path)) == ["a"]


# A locustfile that does while it is imported what the file `how` beside it says.
OWN_FILE = """
import os, random, sys, time
from pathlib import Path
import numpy

how = (Path(__file__).parent / "how").read_text()
if how == "endless":
    (Path(__file__).parent / "pid").write_text(str(os.getpid()))
    time.sleep(100)
if how == "killed":
    os.kill(os.getppid(), 9)
    time.sleep(100)
print(os.getpid(), os.getsid(0), random.random(), numpy.random.rand(), "--run-dir" in sys.argv, sys.stdin.read())
sys.exit(5)
"""


@pytest.mark.heavy
def test_the_runs_of_one_forker_are_processes_of_their_own(tmp_path: Path) -> None:
    """Each has its own session, random numbers and exit code. One beyond its time is ended, and so
    is one at Ctrl-C; a forker that was killed is replaced. Catches a forked run that shares a
    session, random numbers or an end with another."""
    (tmp_path / "own.py").write_text(OWN_FILE)
    (cell, *_) = plan_and_cells(PLAN + f"workload: {tmp_path}/own.py\n")[1]
    runs = LocustRuns()

    def run(how: str, limit_s: float = 60.0) -> CellRun:
        (tmp_path / "how").write_text(how)
        return runs.run(cell, "http://127.0.0.1:1", tmp_path / "run", limit_s)

    try:
        printed = [
            run("prints").reason.removeprefix("locust ended with exit code 5: ").split()
            for _ in range(2)
        ]
        for pid, session, *_, has_flags in printed:
            assert (pid, has_flags) == (session, "True")
        assert all(
            first != second
            for first, second in zip(*(words[:4] for words in printed), strict=True)
        )
        assert (
            run("endless", 0.3).reason
            == "it took longer than cell-time-limit-s (0.3 s)"
        )
        (tmp_path / "pid").unlink()
        assert run("killed").exit_code == -9
        assert run("prints").exit_code == 5
        interrupter = Thread(target=interrupt_when, args=((tmp_path / "pid").exists,))
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            run("endless")
        interrupter.join()
    finally:
        runs.close()
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def interrupt_when(true: Callable[[], bool]) -> None:
    """Ctrl-C for this process."""
    wait_until(true)
    os.kill(os.getpid(), signal.SIGINT)


def test_locust_gets_the_flags_of_the_cell() -> None:
    more = "num-prompts: 2, metric-percentiles: [50, 99], ignore-eos: true, header: ['Accept: a', 'Via: b']"
    (cell, *_) = plan_and_cells(PLAN.replace("num-prompts: 2", more))[1]
    words = locust_words(cell, "http://h", Path("run"))
    text = " ".join(words)
    assert (
        "--metric-percentiles 50,99 --ignore-eos --header Accept: a --header Via: b"
        in text
    )
    for expected in ("--host http://h", "--run-dir run", "-u 1", "--seed 0"):
        assert expected in text
    assert "--ignore-eos True" not in text


def test_a_server_is_kept_as_long_as_its_settings_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two loads on each of two settings: four starts, or two where it is kept."""
    started: list[str] = []

    class Started:
        url, start_s = "http://127.0.0.1:1", 1.0

        def __enter__(self) -> Started:
            return self

        def __exit__(self, *_: object) -> None:
            started.append("stopped")

        def ended(self) -> str:
            return ""

    def start(spec: Any, folder: Path) -> Started:
        started.append(" ".join(spec.args))
        return Started()

    monkeypatch.setattr(running_server, "serving", start)
    text = 'servers: {a: {llama-server: {model: m, args: "-t {t}"}}}\nvary: {t: {values: [1, 2]}}\nload: [{u: 1}, {u: 2}]\n'
    for after, expected in (
        ("restart", ["-t 1", "stopped"] * 2 + ["-t 2", "stopped"] * 2),
        ("keep", ["-t 1", "stopped", "-t 2", "stopped"]),
    ):
        server = running_server.RunningServer(tmp_path, after, empties_cache=False)
        started.clear()
        ready = []
        for cell in plan_and_cells(text)[1]:
            ready.append(server.ready_for(cell).start_s)
            assert server.ready_for(cell).start_s is None  # probes of a search share it
            server.cell_over()
        server.stop()
        assert started == expected
        assert ready.count(None) == (
            2 if after == "keep" else 0
        )  # a kept server had no cold start


def test_the_memory_table_of_a_killed_server_is_a_forecast(
    tiny_model: Path, tmp_path: Path
) -> None:
    """llama.cpp prints the table before it loads the model, to fit its flags, and when it ends."""
    text = f"servers: {{a: {{embedded: {{model: '{tiny_model}', args: '-c 256 -np 1'}}}}}}\nload: {{u: 1}}"
    (cell,) = plan_and_cells(text)[1]
    server = running_server.RunningServer(tmp_path, "restart", empties_cache=False)
    psutil.Process(pid_listening_at(server.ready_for(cell).url)).kill()
    wait_until(lambda: server.has_ended() != "")
    server.stop()
    heading, host, said = (
        (tmp_path / cell.folder / running_server.MEMORY).read_text().splitlines()
    )
    assert "memory breakdown [MiB]" in heading and "- Host" in host
    assert said == running_server.FORECAST


def pid_listening_at(url: str) -> int:
    port = int(url.rpartition(":")[2])
    for each in psutil.net_connections("tcp"):
        if each.status == psutil.CONN_LISTEN and each.laddr.port == port:
            assert each.pid is not None
            return each.pid
    raise AssertionError(f"nothing listens at {url}")


def test_flags_that_the_fitting_program_does_not_know_are_left_out(
    tmp_path: Path,
) -> None:
    """It refuses the first one that it does not know, with its value; what it prints for the others
    is kept."""
    program = tmp_path / "llama-fit-params"
    program.write_text(
        "#!/bin/sh\nfor word; do case $word in --port|--metrics) echo error: invalid argument: $word >&2; exit 1;; esac; done\n"
        'echo "fitting" >&2; echo "$@" -ngl 7 $GPUS\n'
    )
    program.chmod(0o755)
    args = ("-m", "m.gguf", "--port", "80", "-ts", "-1,2", "--metrics")
    assert (
        fitted_flags(str(program), args, {"GPUS": "2"}) == "-m m.gguf -ts -1,2 -ngl 7 2"
    )
    program.write_text(
        "#!/bin/sh\necho error: invalid argument: --nowhere >&2; exit 3\n"
    )
    assert fitted_flags(str(program), args, {}).startswith(
        f"# {program} ended with exit code 3: error: invalid argument"
    )
    assert fitted_flags("/nowhere", args, {}).startswith("# [Errno 2]")


def test_a_cache_that_cannot_be_emptied_is_noted(llama_server: Server) -> None:
    assert empty_cache(llama_server.url).endswith(
        "was not emptied: llama-server erases slots only with --slot-save-path"
    )
    assert "the prompt cache was not emptied: cannot reach" in empty_cache(
        "http://127.0.0.1:1"
    )
    assert empty_cache("http://127.0.0.1:1", ANY).endswith(
        "was not emptied: the server has no request for that"
    )
    assert empty_cache("http://127.0.0.1:1", VLLM).endswith(
        "was not emptied: the server did not answer"
    )


def test_a_cache_is_emptied_by_the_request_of_its_kind() -> None:
    erased: list[int] = []
    erase = {
        f"/slots/{slot}?action=erase": lambda _, slot=slot: erased.append(slot) or {}
        for slot in (0, 7)
    }
    with json_server({"/slots": [{"id": 0}, {"id": 7}], **erase}) as server:
        assert empty_cache(server.url, LLAMA_SERVER) == ""
        assert erased == [0, 7]


def test_wrong_use_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    for arguments, expected in (
        ([], "needs a plan or --serve"),
        (["x.yaml", "--serve", "llama-server"], "not both"),
        (
            ["nowhere"],
            "there is no plan nowhere; give the path of a .yaml file, or one of the bundled plans: cold-start",
        ),
        ([str(tmp_path / "plan.yaml"), "--set", "x"], "--set must be NAME=VALUE"),
        ([str(tmp_path / "plan.yaml"), "--set", "x=1"], "the plan has no such value"),
        ([str(tmp_path / "plan.yaml"), "--repeats", "3"], "belong to --serve"),
    ):
        assert main(["sweep", *arguments]) == 2
        assert expected in capsys.readouterr().err


def test_the_short_form_takes_locusts_flags_after_two_dashes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    serve = [
        "sweep",
        "--dry-run",
        "--serve",
        "llama-load serve -t {t}",
        "--vary",
        "t=1,2",
        "--repeats",
        "2",
    ]
    assert main([*serve, "--", "-u", "2", "--num-prompts", "4"]) == 0
    printed = capsys.readouterr().out
    assert "embedded, t=2, sharegpt_chat, u=2 num-prompts=4, repeat 2" in printed
    assert "4 cells, 4 to run" in printed


def test_a_dry_run_lists_the_cells_and_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN.replace("num-prompts: 2", "t: 30s"))
    assert (
        main(
            [
                "sweep",
                str(tmp_path / "plan.yaml"),
                "--dry-run",
                "--out",
                str(tmp_path / "s"),
            ]
        )
        == 0
    )
    printed = capsys.readouterr().out
    assert "a, users=4, sharegpt_chat, t=30s, repeat 1  (35 s)" in printed
    assert "3 cells, 3 to run: about 2 min" in printed
    assert not (tmp_path / "s").exists()


def test_waiting_for_an_idle_machine_has_a_limit() -> None:
    assert wait_for_quiet(0.01, lambda: 0.5) == 0.5
