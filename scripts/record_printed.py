"""Record what the commands of README and docs print: python -m scripts.record_printed [NAME …]

A recording is a run folder (or a text) in tests/data/printed. tests/repository/test_printed.py
renders it and compares each output that the documentation quotes. Record on a machine that does
nothing else; then quote: python -m tests.printed NAME prints what there is.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from llama_load.run_folder.manifest import MANIFEST, TABLE
from llama_load.servers.serving.launch import start

REPOSITORY = Path(__file__).resolve().parent.parent
PRINTED = REPOSITORY / "tests" / "data" / "printed"
CHAT = "locust -f locustfiles/sharegpt_chat.py --headless --host http://127.0.0.1:8080"
SERVE = "llama-load serve"
SIMULATED = "llama-load serve --simulated --cached-tokens -1"


@dataclass(frozen=True, slots=True)
class Recording:
    """A command as the documentation prints it, what runs before it, and the servers it needs, each
    with its port."""

    command: str
    servers: tuple[tuple[str, int], ...] = ()
    before: tuple[str, ...] = ()


RECORDINGS = {
    "demo": Recording("llama-load demo"),
    "open-loop": Recording(
        f"{CHAT} --request-rate 4 --num-prompts 120 --max-tokens 64", ((SERVE, 8080),)
    ),
    "stages": Recording(
        f"{CHAT} --stages 1,4,8 --num-prompts 32 --max-tokens 64", ((SERVE, 8080),)
    ),
    "turns": Recording(
        f'{CHAT} --dataset-path talks.json --turns all --system-prompt "Be brief." -u 4 '
        "--num-prompts 40 --max-tokens 64",
        ((SERVE, 8080),),
        ("llama-load datasets make talks.json --turns 4",),
    ),
    "mixed": Recording(
        "locust -f locustfiles/mixed.py --headless --host http://127.0.0.1:8080 -u 6 "
        "--num-prompts 24 --document-tokens 3000",
        ((f"{SERVE} --vision", 8080),),
    ),
    "replicas": Recording(
        "locust -f locustfiles/sharegpt_chat.py --headless --host "
        "http://127.0.0.1:8081,http://127.0.0.1:8082 -u 4 "
        "--num-prompts 24 --max-tokens 32",
        (
            (f"{SIMULATED} --first-token-ms 50 --interval-ms 5", 8081),
            (f"{SIMULATED} --first-token-ms 400 --interval-ms 50", 8082),
        ),
    ),
    "capacity": Recording("llama-load capacity --max-time 325", ((SERVE, 8080),)),
    "capacity-llama-server": Recording(
        "llama-load capacity --max-time 191",
        (("llama-server -m tiny.gguf -np 4 -c 16384 -t 1 --metrics", 8080),),
    ),
    "cold-start": Recording("llama-load serve --cold-start 2 --port 8080"),
    "iter-lines": Recording("python -m benchmarks.iter_lines"),
}


def main(names: Sequence[str]) -> None:
    """Record these, or all."""
    for name in names or RECORDINGS:
        with tempfile.TemporaryDirectory() as folder:
            record(name, RECORDINGS[name], Path(folder))


def record(name: str, recording: Recording, folder: Path) -> None:
    """Run the command in a folder that looks like the repository, and keep its run folder, else
    what it printed."""
    for part in ("locustfiles", "benchmarks"):
        (folder / part).symlink_to(REPOSITORY / part)
    path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    # A cache of its own: a model that another server has open stays in the page cache, so that no
    # start of it is cold.
    env = (
        os.environ
        | path
        | {
            "COLUMNS": "100",
            "LLAMA_LOAD_NO_REPORT_HTML": "1",
            "XDG_CACHE_HOME": str(folder / "cache"),
        }
    )
    with ExitStack() as stack:
        for command, port in recording.servers:
            stack.enter_context(_server(f"{command} --port {port}", port, folder, env))
        for command in recording.before:
            subprocess.run(shlex.split(command), cwd=folder, env=env, check=True)
        done = subprocess.run(
            shlex.split(recording.command),
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
    print(f"{recording.command}\n{done.stderr}{done.stdout}exit code {done.returncode}")
    if not (runs := [*folder.glob("runs/*/run.json")]):
        (PRINTED / f"{name}.txt").write_text(
            f"$ {recording.command}\n{_public(done.stdout, folder)}", encoding="utf-8"
        )
        return
    shutil.rmtree(PRINTED / name, ignore_errors=True)
    (PRINTED / name).mkdir(parents=True)
    (run,) = runs
    manifest = msgspec.json.decode(_public(run.read_text(encoding="utf-8"), folder))
    manifest["command"] = shlex.split(recording.command)
    (PRINTED / name / MANIFEST).write_bytes(
        msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
    )
    shutil.copyfile(run.parent / TABLE, PRINTED / name / TABLE)


@contextmanager
def _server(
    command: str, port: int, folder: Path, env: dict[str, str]
) -> Iterator[None]:
    server = start(
        shlex.split(command),
        f"http://127.0.0.1:{port}",
        folder / f"server-{port}.log",
        env=env,
    )
    try:
        yield
    finally:
        server.stop()


def _public(text: str, folder: Path) -> str:
    """Without the folders of this machine."""
    for path, stand_in in (
        (f"{folder}/", ""),
        (f"{REPOSITORY}/", ""),
        (str(Path.home()), "~"),
    ):
        text = text.replace(path, stand_in)
    return text


if __name__ == "__main__":
    main(sys.argv[1:])
