"""What the runs of a comparison keep in memory, counted for all of them together."""

from __future__ import annotations

from llama_load.analysis.comparison.side import MeasuredRun
from llama_load.ground.errors import UsageError
from llama_load.outside.budget import TooMuchWork, spend_bytes

# Of CPython, about: a hash in a set, an answer with its latencies, a name with its text.
HASH_BYTES = 130
ANSWER_BYTES = 700
TEXT_BYTES = 400


def counted(run: MeasuredRun) -> MeasuredRun:
    """The same run. Raises UsageError where all runs together take too much memory."""
    parts = (run.setup, run.load, run.values, run.vllm_tpot, run.levels)
    size = TEXT_BYTES * sum(map(len, parts))
    size += HASH_BYTES * len(run.prompts or ())
    size += sum(values.nbytes for values in run.samples.values())
    if run.answers is not None:
        size += ANSWER_BYTES * len(run.answers.asked)

    try:
        spend_bytes(kept=size)
    except TooMuchWork as error:
        raise UsageError(f"{run.name} is not read: {error}") from None
    return run
