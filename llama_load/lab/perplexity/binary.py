"""Perplexity from llama.cpp's program `llama-perplexity`.

It prints `Final estimate: PPL = 9.6754 +/- 0.06790`. It cuts the text into windows of `context`
tokens that do not overlap and scores the second half of each; a text needs two windows at least.
Its error is the standard error of the mean of -log p over the scored tokens, taken as independent,
times the perplexity. It prints no number of bytes: bits per byte = log2(perplexity) * tokens of the
text / its bytes, with the tokens counted by a server of the same model, or by `llama-tokenize`
beside the program.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from llama_load.ground.errors import RunError, UsageError
from llama_load.ground.own_modules import child_environment
from llama_load.outside.foreign_text import printable

ENDS_WITHIN_S = 3600.0
MOST_BYTES = 1 << 20
_FINAL = re.compile(
    r"Final estimate: PPL = ([0-9.eE+]+|nan|inf)(?: \+/- ([0-9.eE+]+|nan|inf))?"
)
_COUNT = re.compile(r"Total number of tokens: (\d{1,12})")
TOKENIZE = "llama-tokenize"


def perplexity_of(
    binary: str, model: Path, text: Path, context: int, args: Sequence[str] = ()
) -> dict[str, float]:
    """Run the program, with these further flags; see `read_estimate`.

    UsageError: there is none. RunError: it ended without an estimate.
    """
    program = shutil.which(binary)
    if program is None:
        raise UsageError(
            f"there is no program {binary!r} that can be run; "
            "build llama.cpp's llama-perplexity and give its path"
        )

    command = [program, "-m", str(model), "-f", str(text), "-c", str(context), *args]
    return read_estimate(_printed(command))


def tokens_of(binary: str, model: Path, text: Path) -> int | None:
    """The tokens of a text by `llama-tokenize`, beside `binary` or in PATH.

    None: there is no such program, or it failed.
    """
    beside = Path(shutil.which(binary) or binary).with_name(TOKENIZE)
    program = shutil.which(str(beside)) or shutil.which(TOKENIZE)
    if program is None:
        return None

    command = [
        program,
        "-m",
        str(model),
        "-f",
        str(text),
        "--show-count",
        "--log-disable",
    ]
    counts = _COUNT.findall(_printed(command))
    return int(counts[-1]) if counts else None


def _printed(command: Sequence[str]) -> str:
    """The end of what a command prints. RunError: it does not end in time."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=child_environment(),
            start_new_session=True,
        )
        try:
            process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            raise RunError(
                f"{command[0]} did not end within {ENDS_WITHIN_S:g} s"
            ) from None
        finally:
            code = process.returncode
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

        if code is not None and code < 0:
            name = signal.Signals(-code).name
            message = f"{Path(command[0]).name} was ended by {name}"
            if name == "SIGKILL":
                message += ", for example because the memory was used up"
            raise RunError(message)

        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - MOST_BYTES))
        return output.read().decode("utf-8", "replace")


def read_estimate(printed: str) -> dict[str, float]:
    """The final estimate in what the program printed.

    `perplexity`, and `perplexity_error`, its standard error, if it has one. RunError: there is no
    estimate, with the last line.
    """
    estimates = _FINAL.findall(printed)
    if not estimates or estimates[-1][0] in ("nan", "inf"):
        lines = []
        for line in printed.splitlines():
            if line.strip():
                lines.append(line.strip())

        last = printable(lines[-1], 300) if lines else "it printed nothing"
        raise RunError(f"llama-perplexity ended without an estimate: {last}")

    estimate, error = estimates[-1]
    figures = {"perplexity": float(estimate)}
    if error not in ("", "nan", "inf"):
        figures["perplexity_error"] = float(error)
    return figures
