"""The question before a plan from elsewhere starts anything."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from llama_load.cli.ask import YES, agrees, is_there
from llama_load.cli.parser import Parser
from llama_load.cli.say import say
from llama_load.ground.errors import UsageError

if TYPE_CHECKING:
    from llama_load.lab.sweep.plan import Plan


def add_yes(parser: Parser) -> None:
    """The flag that answers it."""
    parser.add_argument(
        "--yes",
        action="store_true",
        help=f"start a plan from another folder without asking (or {YES}=1)",
    )


def agree_to(arguments: argparse.Namespace, path: Path, plan: Plan) -> None:
    """A plan from elsewhere is a stranger's script: say what it would start, and ask. UsageError:
    the person does not agree, or nobody is there."""
    from llama_load.lab.sweep.plan_origin import is_own, what_it_starts

    if arguments.yes or os.environ.get(YES) or is_own(path):
        return
    say(f"{path} is not in this folder, and a plan is as trusted as a script. It")
    for line in what_it_starts(plan):
        say(f"  {line}")
    if not is_there():
        raise UsageError(
            f"nothing was started; if you trust {path} add --yes, or set {YES}=1"
        )
    if not agrees("Start it?"):
        raise UsageError("nothing was started")
