"""The commands that would make sides comparable, or a difference provable."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from llama_load.analysis.comparison.reasons import Reason
from llama_load.analysis.comparison.side import Side

# Passes of the loop, each with two runs of every side in the order A B B A (`order`).
PASSES = 3
# Used for runs of other tools, whose command is not known.
_LOCUSTFILE = "locustfiles/sharegpt_chat.py"
_HOST = "http://SERVER:PORT"
_MOST_COMMANDS = 4


def next_commands(
    sides: Sequence[Side], reasons: Sequence[Reason], *, is_proof: bool
) -> list[str]:
    """The lines of a shell command, then the comparison.

    A loop that runs the sides in the order A B B A, with the flags that the reasons ask for. Of
    many sides each different command once. `is_proof`: the sides have repeats that took turns.
    Empty where nothing is to be repeated.
    """
    if len(sides) < 2:
        return []
    if is_proof and not reasons:
        return []

    flags: list[str] = []
    for reason in reasons:
        flags += reason.flags
    commands = [_command(side, flags) for side in sides]

    there = []
    back = []
    if len(sides) > _MOST_COMMANDS:
        folders = "runs/NAME …"
        for command in dict.fromkeys(commands):
            there.append(f"  {command} --run-dir runs/NAME/${{i}}a")
            back.append(f"  {command} --run-dir runs/NAME/${{i}}b")
    else:
        named = []
        for number, side in enumerate(sides, 1):
            folder = f"runs/side-{number}"
            command = commands[number - 1]
            named.append(folder)
            there.append(f"  {command} --run-dir {folder}/${{i}}a  # {side.label}")
            back.append(f"  {command} --run-dir {folder}/${{i}}b  # {side.label}")
        folders = " ".join(named)

    loop = f"for i in $(seq {PASSES}); do"
    return [loop, *there, *reversed(back), "done", f"llama-load compare {folders}"]


def _command(side: Side, flags: Sequence[str]) -> str:
    """The command of a side with these flags."""
    run = side.runs[0]
    words = _words(run.command)
    if words[:1] != ["locust"] and words[:2] != ["llama-load", "run"]:
        users = str(run.concurrency or 1)
        prompts = str(run.planned or run.count("completed"))
        words = ["locust", "-f", _LOCUSTFILE, "--headless", "--host", _HOST]
        words += ["-u", users, "--num-prompts", prompts]

    # A repeat sends the prompts of the run before: without this a server answers it from its cache.
    given = {word.partition("=")[0] for word in words}
    roles = run.flag_roles
    if not given.intersection(roles.caches):
        flags = [*flags, "--bust-prefix-cache"]

    renewed = _with(words, flags, roles.renewed)

    return shlex.join(renewed)


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return []


def _with(words: list[str], flags: Sequence[str], renewed: Sequence[str]) -> list[str]:
    """The words without the flags that are renewed (each has a value) or set anew, then the flags.

    The first value of each flag counts.
    """
    values_of: dict[str, list[str]] = {}
    name = ""
    for flag in flags:
        if flag.startswith("-") and not flag[1:2].isdigit():
            name = flag
            values_of.setdefault(flag, [])
        elif not values_of[name]:
            values_of[name].append(flag)

    dropped = dict.fromkeys(renewed, 1)
    for flag, values in values_of.items():
        dropped[flag] = len(values)

    kept: list[str] = []
    skip = 0
    for word in words:
        plain, sign, _ = word.partition("=")
        if skip:
            skip -= 1
        elif plain in dropped:
            # The value of `--flag=value` is in the same word.
            if not sign:
                skip = dropped[plain]
        else:
            kept.append(word)

    for flag, values in values_of.items():
        kept += [flag, *values]

    return kept
