"""What the command line of a server says, by the flags of all kinds of servers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from llama_load.targets.servers import KINDS, STARTS

_NUMBERS = ("threads", "threads_batch", "batch", "micro_batch", "slots", "context")
_PROGRAM = re.compile(r"llama|vllm|python|server")
_FIELD_OF = {name: what for kind in KINDS.values() for what, names in kind.flags.items() for name in names}


def read_command(command: Sequence[str]) -> dict[str, Any]:
    """Fields of a `ServerDescription` that this command line sets, with `rpc`: addresses of RPC workers.

    Of a flag given twice the last counts. A `;` between RPC workers counts as what was meant: a comma.
    """
    typed = _without_wrap(command)
    words = [word for start in STARTS.values() for word in start.hidden_flags(typed)] + list(typed)
    values: dict[str, str] = {}
    for word, following in zip(words, [*words, ""][1:], strict=True):
        name, is_joined, value = word.partition("=")
        if what := _FIELD_OF.get(name):
            values[what] = value if is_joined else following
    facts: dict[str, Any] = {what: int(values[what]) for what in _NUMBERS if re.fullmatch(r"[0-9]{1,9}", values.get(what, ""))}
    facts |= {what: values[what] for what in ("model", "n_gpu_layers") if values.get(what)}
    if kinds := [f"{letter} {values[what]}" for letter, what in (("K", "kv_type"), ("V", "v_type")) if what in values]:
        facts["kv_types"] = ", ".join(kinds)
    rpc = [address for address in re.split(r"[,;\s]+", values.get("rpc", "")) if address]
    return facts | {"rpc": rpc, "context_shift": "--context-shift" in words}


def _without_wrap(command: Sequence[str]) -> Sequence[str]:
    """The command from the server's program on: `taskset -c 3` has no context of 3 tokens."""
    first = next((number for number, word in enumerate(command) if _PROGRAM.search(word.rpartition("/")[2])), 0)
    return command[first:]
