"""What the command line of a server says, by the flags of all kinds of servers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from llama_load.servers.kinds import KINDS, STARTS

_NUMBERS = ("threads", "threads_batch", "batch", "micro_batch", "slots", "context")
_PROGRAM = re.compile(r"llama|vllm|python|server")
_TEXTS = ("model", "n_gpu_layers")


def _fields_by_flag() -> dict[str, str]:
    fields: dict[str, str] = {}
    for kind in KINDS.values():
        for what, flags in kind.flags.items():
            fields |= dict.fromkeys(flags, what)
    return fields


_FIELD_OF = _fields_by_flag()


def read_command(command: Sequence[str]) -> dict[str, Any]:
    """The fields of a `ServerDescription` that this command line sets.

    With `rpc`: addresses of RPC workers. Of a flag given twice the last counts. A `;` between RPC
    workers counts as a comma, which is what was meant.
    """
    typed = _without_wrap(command)
    words: list[str] = []
    for start in STARTS.values():
        words += start.hidden_flags(typed)
    words += typed
    values = _values_by_field(words)

    facts: dict[str, Any] = {}
    for what in _NUMBERS:
        if re.fullmatch(r"[0-9]{1,9}", values.get(what, "")):
            facts[what] = int(values[what])
    for what in _TEXTS:
        if values.get(what):
            facts[what] = values[what]

    cache_types = []
    if "kv_type" in values:
        cache_types.append(f"K {values['kv_type']}")
    if "v_type" in values:
        cache_types.append(f"V {values['v_type']}")
    if cache_types:
        facts["kv_types"] = ", ".join(cache_types)

    addresses = re.split(r"[,;\s]+", values.get("rpc", ""))
    facts["rpc"] = [address for address in addresses if address]
    facts["context_shift"] = "--context-shift" in words
    return facts


def _values_by_field(words: Sequence[str]) -> dict[str, str]:
    """The value of each flag that we know, as `--flag value` or `--flag=value`, by its field."""
    values = {}
    for number, word in enumerate(words):
        flag, is_joined, value = word.partition("=")
        what = _FIELD_OF.get(flag)
        if what is None:
            continue

        if is_joined:
            values[what] = value
        else:
            values[what] = "".join(words[number + 1 : number + 2])
    return values


def _without_wrap(command: Sequence[str]) -> Sequence[str]:
    """The command from the server's program on: `taskset -c 3` has no context of 3 tokens."""
    for number, word in enumerate(command):
        program = word.rpartition("/")[2]
        if _PROGRAM.search(program):
            return command[number:]
    return command
