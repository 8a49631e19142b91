"""One run of Locust for a benchmark, with a llama-server of its own where no URL is given."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from llama_load.errors import RunError, UsageError
from llama_load.own_modules import module_command, module_environment
from llama_load.run_folder import Run, load_run
from llama_load.serving.launch import start
from llama_load.targets.servers.server_start import runnable
from llama_load.terminal import STARTED_AS
from llama_load.wire.local_ports import refuse_taken

LOCUSTFILE = "server_bench.py"


@contextmanager
def server_at(path: str, log: str | None, defaults: Mapping[str, str]) -> Iterator[str]:
    """The URL of a server: `path` itself, or that of the program `path`.

    A program gets its flags from LLAMA_ARG_… in the environment, where `defaults` fill in those
    that are not set. Its log is `log`, in which {port} is replaced. Raises UsageError, RunError.
    """
    if path.startswith(("http://", "https://")):
        yield path
        return

    env = {}
    for name, value in defaults.items():
        if name not in os.environ:
            env[name] = value

    for name, value in env.items():
        print(f"{name} is not set, using {value}", flush=True)

    host = os.environ.get("LLAMA_ARG_HOST") or defaults["LLAMA_ARG_HOST"]
    port = os.environ.get("LLAMA_ARG_PORT") or defaults["LLAMA_ARG_PORT"]
    if not port.isdigit():
        raise UsageError(f"LLAMA_ARG_PORT must be a port, got {port!r}")
    program = runnable(path, "give llama-server's path, or the URL of a server")
    refuse_taken(host, int(port))

    url = f"http://{host}:{port}"
    log_file = Path(os.devnull)
    if log is not None:
        log_file = Path(log.replace("{port}", port))
    print(f"Starting {path} at {url} …", flush=True)
    server = start([program], url, log_file, env=env)
    try:
        yield url
    finally:
        server.stop()


def run_locust(
    code: str, url: str, flags: Sequence[str], *, typed: str, folder: Path
) -> Run:
    """Run a locustfile headless and read its run folder.

    `typed`: the user's command; `folder`: for the locustfile. RunError: there is no report.
    """
    locustfile = folder / LOCUSTFILE
    locustfile.write_text(code, encoding="utf-8")
    run_folder = Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-server-bench"
    # fmt: off
    command = module_command(
        "locust",
        "-f", str(locustfile),
        "--headless",
        "--host", url,
        "--loglevel", "WARNING",
        "--run-dir", str(run_folder),
        *flags,
    )
    # fmt: on

    # Locust is in our process group and also receives Ctrl-C; we wait for its report.
    previous = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        environment = module_environment({STARTED_AS: typed})
        exit_code = subprocess.call(command, env=environment)
    finally:
        signal.signal(signal.SIGINT, previous)
    if not (run_folder / "requests.parquet").is_file():
        raise RunError(
            f"the run left no records (exit code {exit_code}); the message above says why"
        )
    return load_run(run_folder)
