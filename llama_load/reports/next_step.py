"""The command that a user needs next after a run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from llama_load.analysis.results import Results
from llama_load.foreign_text import printable
from llama_load.metrics.cpu_shares import cpu_shares
from llama_load.metrics.statistics import least_count
from llama_load.metrics.verdict_words import BLURRED, CLIENT_BOUND, FAILED, INCOMPLETE, NOT_COMPARABLE
from llama_load.units import quantity

# Stages suggested to see how a server scales: powers of two up to twice the load of the run, at least up to this.
LEAST_STAGE_USERS = 8
# Flags with a value that a suggested command replaces or must not repeat.
_USERS = ("-u", "--users", "--max-concurrency")
_COUNT = ("--num-prompts",)
_FOLDER = ("--run-dir",)


def next_step(results: Results) -> tuple[str, str] | None:
    """What a command is for, and the command; None where a check has already said what to do."""
    manifest, words = results.run.manifest, results.verdict.words
    if words[0] in (INCOMPLETE, FAILED, NOT_COMPARABLE):
        return None
    if CLIENT_BOUND in words:
        shares = cpu_shares(manifest.workers)
        if shares is not None and shares.advice is not None:  # more workers would not help: the check says what does
            return None
        return "To measure how many workers this load needs:", "llama-load calibrate"
    lacking = [p for p in manifest.percentiles if not results.stages and p in results.total.distributions["e2el"].lacking]
    if lacking and manifest.run_time_s is None:
        needed = max(map(least_count, lacking))
        command = with_flags(manifest.command, (*_COUNT, *_FOLDER), ["--num-prompts", str(needed)])
        word = f"p{max(lacking):g}"
        return f"{word} is n/a with {quantity(results.total.completed, 'request')}; for {word}:", command
    if not results.stages and manifest.arrival is None and BLURRED not in words and not manifest.hands_over:
        stages = ",".join(str(2**n) for n in range(max(LEAST_STAGE_USERS, 2 * manifest.users).bit_length()))
        return "To see how it scales:", with_flags(manifest.command, (*_USERS, *_FOLDER, "--end-below"), ["--stages", stages])
    return "To compare it with another set-up:", f"llama-load compare {shlex.quote(str(results.run.path))} OTHER_RUN"


def with_flags(command: Sequence[str], without: Sequence[str], more: Sequence[str]) -> str:
    """The command without these flags and their values, with `more` appended, quoted for a shell. -u 8, -u8 and --users=8 are
    all removed by "-u" and "--users"."""
    kept: list[str] = []
    skip = False
    for word in command:
        if skip:
            skip = False
        elif word in without:
            skip = True
        elif not any(word.startswith(f"{flag}=" if flag.startswith("--") else flag) for flag in without):
            kept.append(word)
    return printable(shlex.join([*kept, *more]), None)
