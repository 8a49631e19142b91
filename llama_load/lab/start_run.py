"""The command of one run, for those that start Locust: `llama-load run`, Python, pytest."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from llama_load.ground.bundled import bundled, find_bundled
from llama_load.ground.errors import RunError, UsageError, did_you_mean
from llama_load.ground.own_modules import module_command, module_environment
from llama_load.ground.plugins import added_locustfiles

DEFAULT_WORKLOAD = "sharegpt_chat"
TIMEOUT_S = 1800.0
MOST_ERROR_LINES = 20
# Of a run in progress, which a run that it starts must not take for its own.
NOT_INHERITED = ("LOCUST_SKIP_MONKEY_PATCH", "LLAMA_LOAD_RUN_DIR")


def locust_command(locustfile: str, url: str | None, words: Sequence[str]) -> list[str]:
    """Locust without its web UI and its own log of progress, with these further words."""
    command = module_command("locust", "-f", locustfile, "--headless")
    if not any(word.startswith(("-L", "--loglevel")) for word in words):
        command += ["--loglevel", "WARNING"]
    if url is not None:
        command += ["--host", url]
    return [*command, *words]


def typed_command(url: str | None, workload: str, words: Sequence[str]) -> str:
    """The same run as `llama-load run`, for reports and the commands that they suggest."""
    typed = ["llama-load", "run"]
    if url is not None:
        typed.append(url)
    if workload != DEFAULT_WORKLOAD:
        typed += ["-f", workload]
    return shlex.join([*typed, *words])


def locustfile_of(workload: str) -> str:
    """The locustfile of this path, or the one of this name that comes with llama-load or with a
    package of yours.

    UsageError: there is none.
    """
    if Path(workload).exists():
        return workload
    theirs = added_locustfiles()
    if workload in theirs:
        return str(theirs[workload])

    names = []
    for name in find_bundled(workload):
        if name.endswith(".py"):
            names.append(name)

    if len(names) == 1:
        return str(bundled(names[0]))

    files = bundled("locustfiles").glob("*.py")
    known = []
    for file in files:
        if not file.stem.startswith("_"):
            known.append(file.stem)

    known += theirs
    known.sort()
    advice = did_you_mean(workload, known) or f"; there are {', '.join(known)}"
    raise UsageError(
        f"there is no workload {workload!r}, and no locustfile of that path{advice}"
    )


def run_to_its_end(
    command: Sequence[str], folder: Path, timeout_s: float, variables: Mapping[str, str]
) -> int:
    """Run it in a process group of its own; its exit code.

    `variables` are added to the environment. RunError or UsageError: it left no report in the
    folder, with its last lines. RunError: it took longer than this. Its whole group ends with it,
    also where the caller is interrupted.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        env=module_environment(variables, without=NOT_INHERITED),
    )
    try:
        errors = process.communicate(timeout=timeout_s)[1]
    except subprocess.TimeoutExpired:
        raise RunError(
            f"the run took over {timeout_s:g} s; give it fewer requests, or a larger timeout_s"
        ) from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    code = process.returncode
    if not (folder / "summary.json").is_file():
        shown = "\n".join(errors.splitlines()[-MOST_ERROR_LINES:])
        kind = UsageError if code == UsageError.exit_code else RunError
        raise kind(f"llama-load made no report (exit code {code}):\n{shown}")
    return code
