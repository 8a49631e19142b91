"""Perplexity from llama.cpp's `llama-perplexity` program: `Final estimate: PPL = 9.6754 +/- 0.06790`.

It cuts the text into windows of `context` tokens that do not overlap and scores the second half of each; a text needs two windows
at least. It prints no number of bytes: bits per byte = log2(perplexity) * tokens of the text / its bytes, with the tokens counted
by a server of the same model.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from llama_load.errors import RunError, UsageError
from llama_load.foreign_text import printable

ENDS_WITHIN_S = 3600.0
MOST_BYTES = 1 << 20
_FINAL = re.compile(r"Final estimate: PPL = ([0-9.eE+]+|nan|inf)")


def perplexity_of(binary: str, model: Path, text: Path, context: int) -> float:
    """Run the program. UsageError: there is none. RunError: it ended without an estimate."""
    program = shutil.which(binary)
    if program is None:
        raise UsageError(f"there is no program {binary!r} that can be run; build llama.cpp's llama-perplexity and give its path")
    command = [program, "-m", str(model), "-f", str(text), "-c", str(context)]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            raise RunError(f"{binary} did not end within {ENDS_WITHIN_S:g} s") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(max(0, output.seek(0, os.SEEK_END) - MOST_BYTES))
        return read_estimate(output.read().decode("utf-8", "replace"))


def read_estimate(printed: str) -> float:
    """The final estimate in what the program printed. RunError: there is none, with its last line."""
    found = _FINAL.findall(printed)
    if not found or found[-1] in ("nan", "inf"):
        lines = [line.strip() for line in printed.splitlines() if line.strip()]
        raise RunError(
            f"llama-perplexity ended without an estimate: {printable(lines[-1], 300) if lines else 'it printed nothing'}"
        )
    return float(found[-1])
