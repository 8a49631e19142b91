"""`llama-load tune`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from llama_load.cli.parser import Parser
from llama_load.cli.plan_question import add_yes, agree_to
from llama_load.cli.say import say
from llama_load.ground.errors import UsageError
from llama_load.ground.exit_codes import INTERRUPTED
from llama_load.outside.foreign_files import read_foreign

if TYPE_CHECKING:
    from llama_load.lab.sweep.cells import Cell
    from llama_load.lab.sweep.folder import Ended


def add_tune(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the subcommand."""
    tune = commands.add_parser(
        "tune",
        help="find the server's flags that carry the most requests within objectives",
        description="Race the settings of a plan, stage by stage (memory, throughput, drafts), "
        "by requests per second within "
        "the objectives. The first value of each setting is the default. An interrupted tuning "
        "continues with the same --out.",
        examples={
            "The flags of a plan": "llama-load tune plan.yaml --goodput 'ttft:500 tpot:50'",
            "The best number of draft tokens for 1, 4 and 16 users": "llama-load tune plan.yaml "
            "--goodput 'tpot:50' --concurrency 1,4,16",
            "Continue": "llama-load tune plan.yaml --goodput 'ttft:500 tpot:50' --out tunings/qwen",
        },
    )
    tune.add_argument(
        "plan",
        metavar="PLAN",
        help="a plan as for llama-load sweep, with one server, one workload and one load",
    )
    tune.add_argument(
        "--goodput",
        required=True,
        metavar="OBJECTIVES",
        help="METRIC:MILLISECONDS, such as 'ttft:500 tpot:50'",
    )
    tune.add_argument(
        "--out",
        type=Path,
        help="folder of the tuning (default: tunings/<time>-<plan>); an existing one is continued",
    )
    tune.add_argument(
        "--concurrency",
        metavar="USERS",
        help="race the settings of drafts again with each of these numbers of users, such as "
        "1,4,16: how many draft tokens are best depends on how many requests run at once",
    )
    add_yes(tune)
    tune.set_defaults(run=_tune)


def _tune(arguments: argparse.Namespace) -> int:
    from llama_load.lab.sweep.read_plan import plan_file, read_plan
    from llama_load.lab.tune.run_tune import HTML, MARKDOWN, tune, write_tuned
    from llama_load.run_folder.vocabulary.slo import parse_slo

    try:
        objectives = [parse_slo(word) for word in arguments.goodput.split()]
    except ValueError as error:
        raise UsageError(str(error)) from None
    if not objectives:
        raise UsageError("tune needs objectives, such as --goodput 'ttft:500 tpot:50'")
    concurrencies = _concurrencies(arguments.concurrency)
    path = plan_file(arguments.plan)
    plan = read_plan(path)
    agree_to(arguments, path, plan)
    out = (
        arguments.out
        or Path("tunings") / f"{time.strftime('%Y%m%d-%H%M%S')}-{path.stem}"
    )
    say(f"folder {out}")
    try:
        tuned = tune(
            plan,
            read_foreign(path),
            arguments.goodput,
            out,
            _Progress(),
            concurrencies=concurrencies,
        )
    except KeyboardInterrupt:
        say(f"interrupted; continue with --out {out}")
        return INTERRUPTED
    for line in write_tuned(tuned, out, plan.title or "Tuning"):
        print(line)
    print(f"\nTuning folder: {out} ({MARKDOWN}, {HTML})")
    return 0


def _concurrencies(given: str | None) -> list[int]:
    """UsageError: not numbers of users."""
    try:
        found = [int(word) for word in (given or "").split(",") if word.strip()]
    except ValueError:
        found = [0]
    if any(users < 1 for users in found):
        raise UsageError(
            f"--concurrency must be numbers of users, such as 1,4,16, got {given!r}"
        )
    return found


class _Progress:
    """A line on stderr for each run."""

    def began(self, cell: Cell, doing: str) -> None:
        """See `runner.Watcher`."""

    def ended(self, cell: Cell, entry: Ended) -> None:
        """See `runner.Watcher`."""
        settings = ", ".join(f"{name}={label}" for name, label in cell.settings.items())
        say(f"{settings}: {entry.reason or f'done in {entry.took_s:.0f} s'}")
