"""What the command line of a server says, by the flags of all kinds of servers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from llama_load.targets.servers import KINDS, STARTS


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


# The fields that are numbers.
_NUMBERS = ("threads", "threads_batch", "batch", "micro_batch", "slots", "context")
_PROGRAM = re.compile(r"llama|vllm|python|server")
_FIELD_OF = {name: what for kind in KINDS.values() for what, names in kind.flags.items() for name in names}


def read_command(command: Sequence[str]) -> CommandFacts:
    """The facts in a command line; of a flag given twice the last. A `;` between RPC workers counts as what was meant: a comma."""
    typed = _without_wrap(command)
    words = [word for start in STARTS.values() for word in start.hidden_flags(typed)] + list(typed)
    values: dict[str, str] = {}
    for word, following in zip(words, [*words, ""][1:], strict=True):
        name, is_joined, value = word.partition("=")
        if what := _FIELD_OF.get(name):
            values[what] = value if is_joined else following
    numbers = {what: int(values[what]) for what in _NUMBERS if re.fullmatch(r"[0-9]{1,9}", values.get(what, ""))}
    kinds = [f"{letter} {values[what]}" for letter, what in (("K", "kv_type"), ("V", "v_type")) if what in values]
    return CommandFacts(
        model=values.get("model") or None,
        n_gpu_layers=values.get("n_gpu_layers"),
        kv_types=", ".join(kinds) or None,
        rpc=tuple(address for address in re.split(r"[,;\s]+", values.get("rpc", "")) if address),
        context_shift="--context-shift" in words,
        **numbers,
    )


def _without_wrap(command: Sequence[str]) -> Sequence[str]:
    """The command from the server's program on: `taskset -c 3` has no context of 3 tokens."""
    first = next((number for number, word in enumerate(command) if _PROGRAM.search(word.rpartition("/")[2])), 0)
    return command[first:]
