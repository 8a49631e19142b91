"""The commands that would make sides comparable, or a difference provable."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from llama_load.comparison.reasons import Reason
from llama_load.comparison.side import Side
from llama_load.options.flag import Role
from llama_load.options.flags import flags_with

# Passes of the loop, each with two runs of every side in the order A B B A (`order`).
PASSES = 3
# Used for runs of other tools, whose command is not known.
_LOCUSTFILE = "locustfiles/sharegpt_chat.py"
# Flags of Locust and ours that are given anew for each run, with the number of words that follow them.
_RENEWED = {flag.name: 1 for flag in flags_with(Role.NAME)}
# Commands with one of these have decided what is cached.
_CACHE_FLAGS = {flag.name for flag in flags_with(Role.CACHE)}
_HOST = "http://SERVER:PORT"
_MOST_COMMANDS = 4


def next_commands(sides: Sequence[Side], reasons: Sequence[Reason], *, is_proof: bool) -> list[str]:
    """The lines of a shell command: a loop that runs the sides in the order A B B A, with the flags that the reasons ask for,
    then the comparison. Of many sides each different command once. `is_proof`: the sides have repeats that took turns. Empty
    where nothing is to be repeated."""
    if len(sides) < 2 or (not reasons and is_proof):
        return []
    flags = [flag for reason in reasons for flag in reason.flags]
    commands = [_command(side, flags) for side in sides]
    if len(sides) > _MOST_COMMANDS:
        different = [(command, "NAME", "") for command in dict.fromkeys(commands)]
        folders = "runs/NAME …"
    else:
        names = [f"side-{number}" for number in range(1, len(sides) + 1)]
        notes = [f"  # {side.label}" for side in sides]
        different = list(zip(commands, names, notes, strict=True))
        folders = " ".join(f"runs/{name}" for name in names)
    there = [f"  {command} --run-dir runs/{name}/${{i}}a{note}" for command, name, note in different]
    back = [f"  {command} --run-dir runs/{name}/${{i}}b{note}" for command, name, note in reversed(different)]
    return [f"for i in $(seq {PASSES}); do", *there, *back, "done", f"llama-load compare {folders}"]


def _command(side: Side, flags: Sequence[str]) -> str:
    """The command of a side with these flags."""
    run = side.runs[0]
    words = _words(run.command)
    if words[:1] != ["locust"]:
        words = ["locust", "-f", _LOCUSTFILE, "--headless", "--host", _HOST, "-u", str(run.concurrency or 1)]
        words += ["--num-prompts", str(run.planned or run.count("completed"))]
    # A repeat sends the prompts of the run before: without this a server answers it from its cache.
    uncached = [] if _CACHE_FLAGS & {word.partition("=")[0] for word in words} else ["--bust-prefix-cache"]
    return shlex.join(_with(words, [*flags, *uncached]))


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return []


def _with(words: list[str], flags: Sequence[str]) -> list[str]:
    """The words without the flags that are renewed or set anew, then the flags; the first value of each counts."""
    values_of: dict[str, list[str]] = {}
    name = ""
    for flag in flags:
        if flag.startswith("-") and not flag[1:2].isdigit():
            name = flag
            values_of.setdefault(flag, [])
        elif not values_of[name]:
            values_of[name].append(flag)
    dropped = {**_RENEWED, **{flag: len(values) for flag, values in values_of.items()}}
    kept: list[str] = []
    skip = 0
    for word in words:
        plain, sign, _ = word.partition("=")
        if skip:
            skip -= 1
        elif plain in dropped:
            skip = 0 if sign else dropped[plain]
        else:
            kept.append(word)
    return kept + [word for flag, values in values_of.items() for word in (flag, *values)]
