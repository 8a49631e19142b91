"""Run a client through cases: a fresh server for each, the client's command, the judge."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from truth.cases import CLOSED, Answers, Case, Load, Machine
from truth.judge import HUNG, Verdict, beside_others, judge
from truth.log import Log, read_log
from truth.problem import Problem
from truth.prompts import write_prompts
from truth.result import Result
from truth.server.serving import serving
from truth.tokenizer import make_tokenizer
from truth.tools import READING_FAILED, Tool
from truth.usage import Cost, ProcessGroup, Usage
from truth.work import Work, work_of

BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
TAIL = 600  # characters of a client's output that a failed case keeps
LOG = "truth.jsonl"
OUTPUT = "client.txt"
PROMPTS = "prompts.jsonl"
WORKLOAD = "workload"  # the rule that judges lengths
HINTS = {
    "streams": ": give it by --closed, and {load} in the command",
    "rate": ": give it by --open, and {load} in the command",
}
ENDS_WITHIN_S = 5.0  # after SIGTERM
Run = tuple[Load, Answers, Machine]


@dataclass(frozen=True, slots=True)
class Client:
    """How the client is started. `command`: its words with placeholders, empty for the tool's own.
    `closed` and `open`: what stands for {load}. `programs`: a folder in which its program lies.
    `result`: where its result is, with placeholders; empty for the tool's own place."""

    tool: Tool
    command: Sequence[str] = ()
    closed: str = ""
    open: str = ""
    result: str = ""
    programs: Path | None = None
    timeout_s: float = 180.0
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observed:
    """What a run of a client left: the server's log, the client's result and what it cost; or why
    it has no result (`failed`)."""

    log: Log | None = None
    result: Result | None = None
    cost: Cost | None = None
    failed: str = ""


class Runner:
    """Runs of one client, each in a folder of its own in `folder`. Cases with the same load,
    answers and machine share a run."""

    def __init__(self, client: Client, folder: Path) -> None:
        self._client = client
        self._folder = folder
        self._runs: dict[Run, Observed] = {}

    def verdict(self, case: Case) -> Verdict:
        """Run the client, unless it has already run for a case of the same run."""
        reason = unable(self._client, case)
        if reason:
            return Verdict(case, not_asked=reason)
        run = (case.load, case.server, case.machine)
        if run not in self._runs:
            self._runs[run] = observe(self._client, case, self._folder / case.id)

        observed = self._runs[run]
        if observed.log is None or observed.result is None:
            verdict = Verdict(case, failed=observed.failed)
            return beside_others(verdict, observed.cost, os.cpu_count() or 1)
        try:
            verdict = judge(case, observed.log, observed.result)
        except READING_FAILED as error:
            reason = f"{type(error).__name__}: {error}"
            return Verdict(case, failed=f"its result cannot be judged ({reason})")
        costs = (observed.cost,) if observed.cost else ()
        verdict = replace(verdict, costs=costs)
        return beside_others(verdict, observed.cost, os.cpu_count() or 1)


def observe(client: Client, case: Case, folder: Path) -> Observed:
    """Everything of this run lies in `folder` afterwards: log, output, result. What an earlier run
    left there is removed, so that no old result is judged by a new log."""
    if (folder / LOG).exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = str(make_tokenizer(folder.parent / "tokenizer"))
    prompts = str(write_prompts(folder / PROMPTS, case.load)) if case.load.file else ""

    with serving(case.server, folder / LOG, case=case.id) as url:
        work = work_of(case, url, tokenizer, prompts)
        commands = commands_of(client, work, folder)
        usage, problem = run_commands(client, work, commands, folder, case.machine)

    log = read_log(folder / LOG)
    try:
        result = client.tool.read(result_of(client, work, folder))
    except READING_FAILED as error:
        why = problem or f"no result ({type(error).__name__}: {error})"
        output = (folder / OUTPUT).read_text(errors="replace")[-TAIL:]
        return Observed(failed=f"{why}: {output.strip()}", cost=usage.cost(log))
    return Observed(log, result, usage.cost(log))


def unable(client: Client, case: Case) -> str:
    """Why the client cannot be asked this; empty if it can. A command of the user's has a place for
    each value that the case is about, or the value itself as a word."""
    work = work_of(case, "", "", PROMPTS)
    if not client.command:
        reason = client.tool.unable(work)
        return f"{client.tool.title} {reason}" if reason else ""

    words = words_of(client, work)
    text = " ".join(words)
    values = placeholders(work, Path())
    for name in places_of(case):
        if "{" + name + "}" not in text and values[name] not in words:
            return f"the command has no {{{name}}}{HINTS.get(name, '')}"
    return ""


def places_of(case: Case) -> list[str]:
    """The placeholders without whose values a client cannot do what the case is about."""
    load = case.load
    if load.ttft_ms:
        return ["url", "tokens", "ttft_ms", "share"]
    is_wanted = {
        "url": True,
        "requests": not load.seconds,
        "streams": load.arrival == CLOSED,
        "rate": load.arrival != CLOSED,
        "arrival": load.arrival != CLOSED,
        "tokens": case.rule == WORKLOAD,
        "prompt_tokens": case.rule == WORKLOAD,
        "choices": load.choices > 1,
        "warmup": load.warmup,
        "seconds": load.seconds,
        "prompts": load.file,
    }
    return [name for name, wanted in is_wanted.items() if wanted]


def words_of(client: Client, work: Work) -> list[str]:
    """The user's command with the words of --closed or --open in the place of {load}."""
    load = shlex.split(client.closed if work.closed else client.open)
    words: list[str] = []
    for word in client.command:
        words += load if word == "{load}" else [word]
    return words


def commands_of(client: Client, work: Work, folder: Path) -> list[list[str]]:
    """The words of all commands, with the programs' paths."""
    if client.command:
        values = placeholders(work, folder)
        commands = [[filled(word, values) for word in words_of(client, work)]]
    else:
        commands = client.tool.commands(work, folder)
    for command in commands:
        command[0] = _program(command[0], client.programs)
    return commands


def placeholders(work: Work, folder: Path) -> dict[str, str]:
    """What can stand in braces in a command."""
    return {
        "url": work.url,
        "model": work.model,
        "requests": str(work.requests),
        "streams": str(work.streams),
        "rate": f"{work.rate_rps:g}",
        "arrival": work.arrival,
        "tokens": str(work.tokens),
        "prompt_tokens": str(work.prompt_tokens),
        "choices": str(work.choices),
        "warmup": str(work.warmup),
        "seconds": f"{work.seconds:g}",
        "prompts": work.prompts,
        "ttft_ms": f"{work.ttft_ms:g}",
        "share": f"{work.share:g}",
        "tokenizer": work.tokenizer,
        "out": str(folder),
    }


def filled(text: str, values: Mapping[str, str]) -> str:
    """`text` with the value of each {name}. Other braces stay as they are, as in JSON."""
    for name, value in values.items():
        text = text.replace("{" + name + "}", value)
    return text


def _program(name: str, folder: Path | None) -> str:
    if folder is not None and (folder / name).exists():
        return str(folder / name)
    found = shutil.which(name)
    if found is None:
        raise Problem(
            f"there is no program {name!r}: install it, or give its folder by --bin"
        )
    return str(Path(found).absolute())


def result_of(client: Client, work: Work, folder: Path) -> Path:
    """Where the client has written its result."""
    if client.result:
        return Path(filled(client.result, placeholders(work, folder)))
    return client.tool.result(folder)


def run_commands(
    client: Client,
    work: Work,
    commands: Sequence[list[str]],
    folder: Path,
    machine: Machine,
) -> tuple[Usage, str]:
    """Run them to their end; the first one, which is the load, with what the machine does to it. A
    command of the user's runs where he is, a tool's own in `folder`. What the first one used, and
    what went wrong, empty if nothing did."""
    environment = {**os.environ, **client.tool.env(work), **client.env}
    where = None if client.command else folder
    usages: list[Usage] = []
    problem = ""
    with (folder / OUTPUT).open("wb") as output:
        for place, command in enumerate(commands):
            conditions = machine if place == 0 else Machine()
            with ProcessGroup() as group:
                process = subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=where,
                    start_new_session=True,
                    preexec_fn=group.join,
                )
                with (
                    group.measure(process.pid) as usage,
                    busy(conditions.busy),
                    paused(process.pid, conditions),
                ):
                    problem = _wait(process, client.timeout_s) or problem
            usages.append(usage)
    return usages[0], problem


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> str:
    try:
        code = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        _end_group(process)
        return f"{HUNG} {timeout_s:g} s"
    return f"exit code {code}" if code else ""


def _end_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGCONT)
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def busy(wanted: bool) -> Iterator[None]:
    """A process per core that never sleeps, if `wanted`."""
    count = (os.cpu_count() or 1) if wanted else 0
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextmanager
def paused(group: int, machine: Machine) -> Iterator[None]:
    """Stop the processes of the group for a part of the time, as a quota does."""
    if not machine.pause_ms:
        yield
        return

    ended = threading.Event()
    thread = threading.Thread(target=_pause, args=(group, machine, ended))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _pause(group: int, machine: Machine, ended: threading.Event) -> None:
    runs_s = (machine.pause_every_ms - machine.pause_ms) / 1000
    while not ended.wait(runs_s):
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGSTOP)
        ended.wait(machine.pause_ms / 1000)
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGCONT)
