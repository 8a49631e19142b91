"""The referee: load generators in truth's suite of times, and what each of them costs.

    # installs the clients, runs each, and writes build/referee/README.md
    make referee

    # one client, five runs of each case, on a machine that does nothing else
    .venv/bin/python -m benchmarks.referee --clients aiperf --runs 5

    # the pages of the results that are kept in truth/results
    .venv/bin/python -m benchmarks.referee --render

A run of a client takes 1 to 3 minutes. A client that has its file is skipped, so that the same
command continues.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.referee.clients import CLIENTS, NAMES, REPOSITORY, Client
from benchmarks.referee.pages import write_pages

FOLDER = REPOSITORY / "build" / "referee"
TABLE = "README.md"
# Our own tests set it; a Locust client without its patches sleeps as a whole.
NOT_PATCHED = "LOCUST_SKIP_MONKEY_PATCH"


def main() -> int:
    """Run what is missing, then write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument(
        "--runs", type=int, default=1, metavar="N", help="of each case (default 1)"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=FOLDER,
        help="of the results (default build/referee)",
    )
    parser.add_argument(
        "--render",
        action="store_true",
        help="run nothing: write docs/comparison.md, its charts and the pages of truth/results",
    )
    arguments = parser.parse_args()
    if arguments.render:
        write_pages()
        return 0

    folder: Path = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for client in CLIENTS:
        if client.name in arguments.clients:
            measure(client, arguments.runs, folder)
    return write_table(folder)


def measure(client: Client, runs: int, folder: Path) -> None:
    """Unless it has its file."""
    result = result_of(client, folder)
    if result.exists():
        print(f"{client.title}: {result} is there", file=sys.stderr)
        return
    if not client.installed:
        print(f"{client.title}: make referee-clients installs it", file=sys.stderr)
        return

    print(f"{client.title} {client.version}", file=sys.stderr)
    environment = {**os.environ, **client.env}
    environment.pop(NOT_PATCHED, None)
    command = client.command(runs, result)
    subprocess.run(command, cwd=REPOSITORY, env=environment, check=False)


def write_table(folder: Path) -> int:
    """Of the results that there are: the exit code."""
    results = [result_of(client, folder) for client in CLIENTS]
    files = [str(result) for result in results if result.exists()]
    if not files:
        print("there are no results", file=sys.stderr)
        return 1
    target = folder / TABLE
    words = [sys.executable, "-m", "truth", "page", *files, "--to", str(target)]
    print(target)
    return subprocess.run(words, cwd=REPOSITORY, check=False).returncode


def result_of(client: Client, folder: Path) -> Path:
    """The file of its verdicts."""
    return folder / f"{client.name}-times.json"


if __name__ == "__main__":
    sys.exit(main())
