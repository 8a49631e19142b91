"""The flags for a server that is about to start, fitted to the memory of this machine.

llama.cpp's `llama-fit-params` finds them.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence

from llama_load.ground.own_modules import child_environment
from llama_load.outside.foreign_text import printable

WITHIN_S = 120.0
# Flags that a program may refuse because they belong to llama-server.
MOST_REFUSED = 40
MOST_CHARS = 4000
_REFUSED = re.compile(r"error: (?:invalid argument|unknown argument): (\S+)")
_FLAG = re.compile(r"--?[A-Za-z]")


def fitted_flags(program: str, args: Sequence[str], env: Mapping[str, str]) -> str:
    """What the program prints for those of llama-server's flags that it knows.

    A comment if it fails.
    """
    words = list(args)
    for _ in range(MOST_REFUSED):
        try:
            done = subprocess.run(
                [program, *words],
                env=child_environment(env),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=WITHIN_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"# {printable(str(error), 300)}"

        errors = done.stderr.decode("utf-8", "replace")
        refused = _REFUSED.search(errors)
        if refused is None or refused[1] not in words:
            break
        words = _without(words, refused[1])

    if done.returncode:
        why = printable(_last_line(errors) or "it printed nothing", 300)
        return f"# {program} ended with exit code {done.returncode}: {why}"
    fitted = done.stdout.decode("utf-8", "replace").split()
    return printable(" ".join(fitted), MOST_CHARS)


def _last_line(text: str) -> str:
    """The last line that is not blank; "" if there is none."""
    for line in reversed(text.splitlines()):
        if line.strip():
            return line
    return ""


def _without(words: Sequence[str], flag: str) -> list[str]:
    """The words without a flag and its values. -np 1 --port 80, without --port: -np 1."""
    start = words.index(flag)
    end = start + 1
    while end < len(words) and not _FLAG.match(words[end]):
        end += 1
    return [*words[:start], *words[end:]]
