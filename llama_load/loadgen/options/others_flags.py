"""Flags of other load generators: those that `llama-load run` takes, and what to say of those that
Locust's parser refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

HOST = "--host"
USERS = "-u"
# The same in aiperf, guidellm, genai-perf, inference-perf, k6, vegeta, oha and others.
SYNONYMS = {
    "--concurrency": USERS,
    "--num-users": USERS,
    "--vus": USERS,
    "--duration": "-t",
    "--max-seconds": "-t",
    "--max-duration": "-t",
    "--benchmark-duration": "-t",
    "--requests": "--num-prompts",
    "--num-requests": "--num-prompts",
    "--request-count": "--num-prompts",
    "--max-requests": "--num-prompts",
    "--rate": "--request-rate",
    "--rps": "--request-rate",
    "--qps": "--request-rate",
    "--target": HOST,
    "--base-url": HOST,
    "--url": HOST,
    "--model-name": "--model",
    "--num-warmups": "--warmup",
    "--warmup-requests": "--warmup",
}
RATES = ("--request-rate", "--trace", "--ramp")


def in_our_flags(words: Sequence[str]) -> list[str]:
    """These words with our names of the flags that other tools have.

    With a rate, a concurrency is the most requests in flight.
    """
    names = [word.partition("=")[0] for word in words]
    ours = [SYNONYMS.get(name, name) for name in names]
    has_rate = any(name in RATES for name in ours)
    taken = []
    for word, name, our_name in zip(words, names, ours, strict=True):
        if name in SYNONYMS and our_name == USERS and has_rate:
            our_name = "--max-concurrency"
        taken += _renamed(word, name, our_name)
    return taken


def _renamed(word: str, name: str, our_name: str) -> list[str]:
    _, has_value, value = word.partition("=")
    if name == our_name:
        return [word]
    return [our_name, value] if has_value else [our_name]


def in_our_words(message: str) -> str | None:
    """The equivalents of flags of other tools that argparse refused; None if there is no such
    flag."""
    # only once there is something to explain
    from llama_load.loadgen.options.vllm_options import BACKENDS, EARLIER, OPTIONS

    known = []
    _, _, words = message.partition("unrecognized arguments: ")
    for word in words.split():
        flag = word.partition("=")[0].replace("_", "-")
        option = OPTIONS.get(EARLIER.get(flag, flag))
        if flag in SYNONYMS:
            known.append(f"{flag} of other tools: write {SYNONYMS[flag]}")
        elif option is not None:
            known.append(f"{flag} of vllm bench serve: write {option.instead}")
        else:
            known += _of_programs(flag)

    for name, api in BACKENDS.items():
        if f"argument --backend: invalid choice: '{name}'" in message:
            ours = f"--endpoint {api}" if api else "-f embeddings or rerank"
            known.append(f"--backend {name} of vllm bench serve: write {ours}")
    return "; ".join(known) or None


def _of_programs(flag: str) -> list[str]:
    """What to write for a flag of one of the other load generators."""
    from llama_load.loadgen.options.load_programs import PROGRAMS

    for program in PROGRAMS:
        ours = program.equal.get(flag) or program.instead.get(flag)
        if ours:
            return [f"{flag} of {program.name}: write {ours}"]
    return []


def explain(parser: Any) -> None:
    """Make this parser print the equivalents instead of its own message."""
    error = parser.error

    def explained(message: str) -> None:
        ours = in_our_words(message)
        if ours is None:
            error(message)
        parser.exit(2, f"{parser.prog}: error: {ours}\n")

    parser.error = explained
