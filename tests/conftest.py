"""Servers and runs for the tests: the real embedded llama-server, the simulated one, and Locust as
a subprocess."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any
from zlib import crc32

import msgspec
import psutil
import pyarrow.parquet as pq
import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings

from llama_load.analysis.reports.first_screen import FULL_REPORT
from llama_load.ground.bundled import bundled
from llama_load.ground.clock import SO_TIMESTAMPNS
from llama_load.ground.processes import PR_SET_PDEATHSIG
from llama_load.outside import foreign_text
from llama_load.run_folder.observed.records import Records
from llama_load.servers.kinds import ServerSpec
from llama_load.servers.local_ports import free_port
from llama_load.servers.serving.launch import Server, serving
from llama_load.servers.serving.model_maker import ModelSize, cached_model
from tests.fork_server import LOCUST, SIMULATED, Forked, ForkServer, imports_alike
from tests.schemas import check_folder

# Locust would turn the threads of this very process into greenlets, wherever a test imports what
# imports it. (Its own processes get `environment`, without this.)
os.environ["LOCUST_SKIP_MONKEY_PATCH"] = "1"
# Plans of tests lie in other folders, and nobody answers a question.
os.environ["LLAMA_LOAD_YES"] = "1"

# The suite tries the same examples in every run, so that a change is judged by what it changes, and
# few, as these have been seen to pass; `make fuzz` looks for new ones. A deadline would be an assertion on wall-clock time.
settings.register_profile("suite", deadline=None, derandomize=True, max_examples=20)
settings.register_profile(
    "fuzz",
    deadline=None,
    max_examples=3000,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("LLAMA_LOAD_HYPOTHESIS", "suite"))

# A shell starts what goes to the background with SIGINT ignored, and so would every process of a
# test that is to get one.
signal.signal(signal.SIGINT, signal.default_int_handler)

REPOSITORY = Path(__file__).resolve().parent.parent
# Whether the suite runs without epoll and kernel stamps, as on macOS (see
# `llama_load.loadgen.wire.poller`).
PORTABLE = SO_TIMESTAMPNS is None
SHAREGPT = REPOSITORY / "locustfiles" / "sharegpt_chat.py"

SOURCES = "tests/repository/"

Program = Forked | subprocess.Popen[str]  # one that runs

TINY = ModelSize(layers=2, dim=64, heads=4, kv_heads=2, ff=128)


@dataclass(frozen=True)
class Finished:
    """A run of Locust that has ended."""

    code: int
    out: str
    err: str
    folder: Path

    def __repr__(self) -> str:
        """What pytest shows below an assertion: why the run ended as it did. (It cuts longer
        texts.)"""
        return f"<exit code {self.code}, stderr ends {self.err[-150:]!r}>"

    @property
    def report_lines(self) -> list[str]:
        """The lines that it printed; not paths and commands, which are as long as pytest likes and
        must not be broken."""
        unbroken = (FULL_REPORT, "Run folder: ", "  locust ", "  llama-load ")
        return [line for line in self.out.splitlines() if not line.startswith(unbroken)]

    @property
    def summary(self) -> dict[str, Any]:
        return msgspec.json.decode((self.folder / "summary.json").read_bytes())

    @property
    def manifest(self) -> dict[str, Any]:
        return msgspec.json.decode((self.folder / "run.json").read_bytes())

    @property
    def records(self) -> Records:
        return Records(pq.read_table(self.folder / "requests.parquet"))


def pytest_collection() -> None:
    """Begins. Imports leave no garbage."""
    gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files in an order that has nothing to do with what they test: so those that wait for servers
    and those that compute run side by side, not one kind after the other. Those about the repository
    stay together: they share the parsed sources."""

    def place(item: pytest.Item) -> int:
        file = item.nodeid.partition("::")[0]
        return crc32(SOURCES.encode() if file.startswith(SOURCES) else file.encode())

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """What all tests together imported is never freed: without this, each of the many full
    collections of a session looks through it for a second. Seldom: where a test keeps what it
    makes, as those of the parsed sources do, a collection for each 700 objects takes most of its time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> bool | None:
    """A process of xdist sends one message a test in place of five, each of which the other
    process decodes and shows to all plugins: what passed before and after it is no news."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


@pytest.fixture(autouse=True)
def forget_secrets() -> Iterator[None]:
    """Secrets that a test makes known are not looked for in the texts of all later ones."""
    yield
    foreign_text._secrets = {}


def beside(pid: int) -> list[psutil.Process]:
    """What was started beside the server with this process by its supervisor: RPC workers and
    companions, in their order."""
    above = [psutil.Process(pid), *psutil.Process(pid).parents()]
    place = next(
        number
        for number, process in enumerate(above)
        if "llama_load.servers.serving.supervisor" in process.cmdline()
    )
    children = sorted(above[place].children(), key=psutil.Process.create_time)
    return [child for child in children if child != above[place - 1]]


def environment() -> dict[str, str]:
    """Without what would change a run; with compiled bytecode, which every start of Locust reads in
    a tenth of the time; without report.html, which takes longer than a short run, and telemetry,
    which takes 0.1 s of CPU time a run. Tests run beside each other: other programs belong to their
    machine."""
    ours = ("LLAMA_LOAD_", "LOCUST_", "PYTHONDONTWRITEBYTECODE")
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(ours)
    }
    without = {
        "LLAMA_LOAD_NO_REPORT_HTML": "true",
        "LLAMA_LOAD_TELEMETRY_INTERVAL": "0",
        "LLAMA_LOAD_SHARED_MACHINE": "true",
    }
    return (
        kept
        | {"COLUMNS": "100", "LLAMA_LOAD_YES": "1"}
        | without
        | ({"LLAMA_LOAD_PORTABLE": "1"} if PORTABLE else {})
    )


def locust_command(
    host: str, folder: Path, *arguments: str, locustfile: Path = SHAREGPT
) -> list[str]:
    command = [
        sys.executable,
        "-m",
        "locust",
        "-f",
        str(locustfile),
        "--headless",
        "--host",
        host,
        "--loglevel",
        "WARNING",
    ]
    return [*command, "--run-dir", str(folder), *arguments]


def end_with_parent() -> None:
    """For `preexec_fn`: should pytest be killed, the kernel kills what it started. (Linux.)"""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def run_to_the_end(
    command: list[str], timeout_s: float = 100, **how: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command in a process group that it does not outlive: at a timeout, or when the test is
    interrupted, all of it is killed, workers of --processes included."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command,
        stdout=pipe,
        stderr=pipe,
        text=True,
        encoding="utf-8",
        start_new_session=True,
        preexec_fn=end_with_parent,
        **how,
    )
    try:
        out, err = process.communicate(timeout=timeout_s)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def run_program(
    arguments: list[str], cwd: Path, env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """`python -m` with these arguments, to its end; on Linux without most of the cost of a start
    (`tests.fork_server`)."""
    if not can_fork(env):
        return run_to_the_end([sys.executable, "-m", *arguments], cwd=cwd, env=env)
    return fork_server(LOCUST).run(arguments, cwd, env, 100)


def start_program(
    arguments: list[str],
    cwd: Path,
    env: dict[str, str],
    log: IO[str] | None = None,
    modules: tuple[str, ...] = LOCUST,
) -> Program:
    """`python -m` with these arguments in a process group of its own, likewise; both its streams go
    to the log, if there is one."""
    if can_fork(env):
        return fork_server(modules).fork(arguments, cwd, env, log)
    out, err = (log, log) if log else (subprocess.PIPE, subprocess.PIPE)
    command = [sys.executable, "-m", *arguments]
    return subprocess.Popen(
        command,
        stdout=out,
        stderr=err,
        text=True,
        cwd=cwd,
        env=env,
        start_new_session=True,
        preexec_fn=end_with_parent,
    )


def can_fork(env: dict[str, str]) -> bool:
    return sys.platform == "linux" and imports_alike(env, environment())


@cache
def fork_server(modules: tuple[str, ...]) -> ForkServer:
    """The one of this process of pytest."""
    return ForkServer.start(environment(), modules)


@pytest.fixture
def run_locust(tmp_path: Path) -> Callable[..., Finished]:
    """Run Locust headless to its end: run_locust(host, *arguments, locustfile=…). Its files must
    follow their schemas."""

    def run(
        host: str,
        *arguments: str,
        locustfile: Path = SHAREGPT,
        folder: Path | None = None,
        **env: str,
    ) -> Finished:
        folder = folder or tmp_path / "run"
        command = locust_command(host, folder, *arguments, locustfile=locustfile)
        done = run_program(command[2:], tmp_path, environment() | env)
        if "PYTHONPATH" not in env:  # else it is a changed copy of the package
            check_folder(folder)
        return Finished(done.returncode, done.stdout, done.stderr, folder)

    return run


@pytest.fixture
def run_report() -> Callable[..., Finished]:
    """`llama-load report` on a run folder."""

    def run(folder: Path, *arguments: str) -> Finished:
        done = run_program(
            ["llama_load.cli.main", "report", str(folder), *arguments],
            Path.cwd(),
            environment(),
        )
        return Finished(done.returncode, done.stdout, done.stderr, folder)

    return run


@pytest.fixture(scope="session")
def tiny_model() -> Path:
    """A model of 0.6 million parameters that answers about 3000 tokens a second."""
    return cached_model(TINY, bundled("datasets/sharegpt_sample.json"))


@pytest.fixture(scope="session")
def llama_server(
    tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """The real llama-server: 4 slots of 4096 tokens."""
    with embedded_server(
        tiny_model, tmp_path_factory.mktemp("llama-server"), "-a", "tiny"
    ) as server:
        yield server


def embedded_server(
    model: Path, folder: Path, *flags: str, api_key: str = ""
) -> AbstractContextManager[Server]:
    """The real llama-server; 4 slots, -c 16384 and one thread unless the flags set others."""
    return serving(
        ServerSpec(
            model=str(model), args=flags, api_key=api_key, is_for_one_client=True
        ),
        folder,
    )


@dataclass(frozen=True)
class Simulated:
    url: str
    log: Path
    pid: int

    def has_answered(self, requests: int) -> Callable[[], bool]:
        """Whether it has come to the end of this many."""
        return lambda: (
            self.log.exists() and self.log.read_bytes().count(b"\n") >= requests
        )

    def clients(self) -> int:
        """How many connections are open."""
        connections = psutil.Process(self.pid).net_connections("tcp")
        return sum(each.status == psutil.CONN_ESTABLISHED for each in connections)


@contextmanager
def simulated_server(folder: Path, *arguments: str) -> Iterator[Simulated]:
    """`llama-load serve --simulated` with these flags."""
    port = free_port()
    log = folder / f"simulated-{port}.jsonl"
    command = [
        "llama_load.cli.main",
        "serve",
        "--simulated",
        "--port",
        str(port),
        "--log",
        str(log),
        *arguments,
    ]
    out = folder / f"simulated-{port}.out"
    with out.open("w", encoding="utf-8") as stream:
        server = start_program(command, folder, environment(), stream, SIMULATED)
    try:
        while "listening on" not in (printed := out.read_text(encoding="utf-8")):
            assert server.poll() is None, printed
            time.sleep(0.005)  # between two looks
        yield Simulated(f"http://127.0.0.1:{port}", log, server.pid)
    finally:
        server.terminate()
        server.wait(20)


@pytest.fixture
def simulate(tmp_path: Path) -> Iterator[Callable[..., Simulated]]:
    """Start simulated servers: simulate("--interval-ms", "5")."""
    from contextlib import ExitStack

    with ExitStack() as stack:
        yield lambda *arguments: stack.enter_context(
            simulated_server(tmp_path, *arguments)
        )
