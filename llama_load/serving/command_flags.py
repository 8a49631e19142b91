"""What the command line of a server says: llama-server's, llama-cpp-python's and vLLM's flags for the same thing."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommandFacts:
    """The values as they were given; None where a flag is not given."""

    model: str | None = None
    n_gpu_layers: str | None = None
    threads: int | None = None
    threads_batch: int | None = None
    batch: int | None = None
    micro_batch: int | None = None
    slots: int | None = None
    context: int | None = None
    kv_types: str | None = None
    rpc: tuple[str, ...] = ()
    context_shift: bool = False


_TEXTS = {
    "model": ("-m", "--model", "-hf", "--hf-repo"),
    "n_gpu_layers": ("-ngl", "--gpu-layers", "--n-gpu-layers", "--n_gpu_layers"),
    "k": ("-ctk", "--cache-type-k", "--type_k", "--kv-cache-dtype"),
    "v": ("-ctv", "--cache-type-v", "--type_v"),
    "rpc": ("--rpc", "--rpc_servers"),
}
_NUMBERS = {
    "threads": ("-t", "--threads", "--n_threads"),
    "threads_batch": ("-tb", "--threads-batch", "--n_threads_batch"),
    "batch": ("-b", "--batch-size", "--n_batch", "--max-num-batched-tokens"),
    "micro_batch": ("-ub", "--ubatch-size", "--n_ubatch"),
    "slots": ("-np", "--parallel", "--max-num-seqs"),
    "context": ("-c", "--ctx-size", "--n_ctx"),
}
_PROGRAM = re.compile(r"llama|vllm|python|server")
_FIELD_OF = {name: what for table in (_TEXTS, _NUMBERS) for what, names in table.items() for name in names}


def read_command(command: Sequence[str]) -> CommandFacts:
    """The facts in a command line; of a flag given twice the last. A `;` between RPC workers counts as what was meant: a comma."""
    words = [*_without_wrap(command), *_embedded_flags(command)]
    found: dict[str, str] = {}
    for word, following in zip(words, [*words, ""][1:], strict=True):
        name, is_joined, value = word.partition("=")
        if what := _FIELD_OF.get(name):
            found[what] = value if is_joined else following
    if "serve" in words[:3] and "model" not in found:  # vllm serve MODEL
        found["model"] = ([*words, "", ""])[words.index("serve") + 1]
    if "head" in words and (place := words.index("head")) + 1 < len(words) and "rpc" not in found:  # our own script for RPC
        found["rpc"] = words[place + 1]
    numbers = {what: int(found[what]) for what in _NUMBERS if re.fullmatch(r"[0-9]{1,9}", found.get(what, ""))}
    kinds = [f"{what.upper()} {found[what]}" for what in ("k", "v") if what in found]
    return CommandFacts(
        model=found.get("model") or None,
        n_gpu_layers=found.get("n_gpu_layers"),
        kv_types=", ".join(kinds) or None,
        rpc=tuple(each for each in re.split(r"[,;\s]+", found.get("rpc", "")) if each),
        context_shift="--context-shift" in words,
        **numbers,
    )


def _without_wrap(command: Sequence[str]) -> Sequence[str]:
    """The command from the server's program on: `taskset -c 3` has no context of 3 tokens."""
    first = next((number for number, word in enumerate(command) if _PROGRAM.search(word.rpartition("/")[2])), 0)
    return command[first:]


def _embedded_flags(command: Sequence[str]) -> list[str]:
    """The embedded server gets its settings as JSON, with llama-server's flags in it."""
    if "llama_load.serving.embedded_server" not in command:
        return []
    try:
        wanted = json.loads(command[-1])
        own = ["-m", wanted["model"], "-t", str(wanted["threads"]), "-np", str(wanted["slots"])]
        return [*own, *map(str, wanted["flags"])]
    except (ValueError, KeyError, TypeError):
        return []
