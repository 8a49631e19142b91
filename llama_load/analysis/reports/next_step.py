"""The command that a user needs next after a run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from llama_load.analysis.figures.cpu_shares import cpu_shares
from llama_load.analysis.results.results import Results
from llama_load.ground.units import quantity
from llama_load.outside.foreign_text import printable
from llama_load.run_folder import Manifest
from llama_load.run_folder.arithmetic.percentiles import least_count
from llama_load.run_folder.vocabulary.verdict_words import (
    BLURRED,
    CLIENT_BOUND,
    FAILED,
    INCOMPLETE,
    NOT_COMPARABLE,
)

# Stages suggested to see how a server scales: powers of two up to twice the load of the run, at
# least up to this.
LEAST_STAGE_USERS = 8
# Flags with a value that a suggested command replaces or must not repeat.
_USERS = ("-u", "--users", "--max-concurrency")
_COUNT = ("--num-prompts", "-n")
_FOLDER = ("--run-dir",)


def next_step(results: Results) -> tuple[str, str] | None:
    """What a command is for, and the command; None where a check has already said what to do."""
    manifest = results.run.manifest
    words = results.verdict.words
    if words[0] in (INCOMPLETE, FAILED, NOT_COMPARABLE):
        return None

    if CLIENT_BOUND in words:
        shares = cpu_shares(manifest.workers)
        # More workers would not help: the check says what does.
        if shares is not None and shares.advice is not None:
            return None
        return "To measure how many workers this load needs:", "llama-load calibrate"

    lacking = _lacking_percentiles(results)
    if lacking and manifest.run_time_s is None:
        return _more_requests(results, lacking)

    is_closed_loop = not results.stages and manifest.arrival is None
    if is_closed_loop and BLURRED not in words and not manifest.hands_over:
        return "To see how it scales:", _in_stages(manifest)

    folder = shlex.quote(str(results.run.path))

    return (
        "To compare it with another set-up:",
        f"llama-load compare {folder} OTHER_RUN",
    )


def _lacking_percentiles(results: Results) -> list[float]:
    """The percentiles that this run has too few requests for."""
    if results.stages:
        return []
    lacking = results.total.distributions["e2el"].lacking
    return [p for p in results.run.manifest.percentiles if p in lacking]


def _more_requests(results: Results, lacking: list[float]) -> tuple[str, str]:
    """The same run with enough requests for these percentiles."""
    needed = max(map(least_count, lacking))
    left_out = (*_COUNT, *_FOLDER)
    command = with_flags(
        results.run.manifest.command, left_out, ["--num-prompts", str(needed)]
    )
    word = f"p{max(lacking):g}"
    requests = quantity(results.total.completed, "request")
    return f"{word} is n/a with {requests}; for {word}:", command


def _in_stages(manifest: Manifest) -> str:
    """The same run with more and more users."""
    most_users = max(LEAST_STAGE_USERS, 2 * manifest.users)
    stages = ",".join(str(2**power) for power in range(most_users.bit_length()))
    left_out = (*_USERS, *_FOLDER, "--end-below")
    return with_flags(manifest.command, left_out, ["--stages", stages])


def with_flags(
    command: Sequence[str], without: Sequence[str], more: Sequence[str]
) -> str:
    """The command without these flags and their values, with `more` appended, quoted for a shell.

    -u 8, -u8 and --users=8 are all removed by "-u" and "--users".
    """
    joined: tuple[str, ...] = ()
    for flag in without:
        joined += (f"{flag}=" if flag.startswith("--") else flag,)

    kept: list[str] = []
    is_value_of_removed = False
    for word in command:
        if is_value_of_removed:
            is_value_of_removed = False
        elif word in without:
            is_value_of_removed = True
        elif not word.startswith(joined):
            kept.append(word)

    return printable(shlex.join([*kept, *more]), None)
