"""What llama.cpp's log says of a server: model, slots, where layers and buffers are, draft models,
a router's models. Pure.

Logs of llama-server and of llama-cpp-python of 2024 to 2026; other servers' lines are read by their
own patterns. Lines may be wrapped as JSON (--log-jsonl). What is not in a log stays unknown:
another version may word it differently, and at a low log level the lines are missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from llama_load.outside.foreign_text import printable
from llama_load.run_folder.observed.server_description import Buffers
from llama_load.servers.kinds.server_kind import LogFact
from llama_load.servers.kinds.slot_log import WOKE

MOST_LINE_CHARS = 500
MOST_DEVICES = 256
MOST_MEMORY_LINES = 300
MOST_FIT_LINES = 8

_UNITS = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * 1024.0 ** (1 + "KMGT".index(unit)))


def _build(number: str, commit: str) -> dict[str, Any]:
    return {} if commit == "unknown" else {"build": f"b{number}-{commit}"}


# Of several matches the last counts: a fit to memory tries before it loads.
LOG_FACTS: tuple[LogFact, ...] = tuple(
    (re.compile(pattern), facts)
    for pattern, facts in (
        (r"\bbuild(?:: | = | )(\d{1,15}) \((\w+)\)", lambda m: _build(m[1], m[2])),
        (r"build_info: b(\d{1,15})-(\w+)", lambda m: _build(m[1], m[2])),
        (r"general\.name\s+= (.+)", lambda m: {"model": m[1].strip()}),
        (
            r"(?:file type|model ftype)\s+= (.+)",
            lambda m: {"quantization": m[1].strip()},
        ),
        (
            r"(?:file|model) size\s+= (\d{1,12}(?:\.\d{1,9})?) ([KMGT])iB",
            lambda m: {"model_bytes": _bytes(m[1], m[2])},
        ),
        (
            r"model params\s+= (\d{1,12}(?:\.\d{1,9})?) ([KMBT])\b",
            lambda m: {"n_params": round(float(m[1]) * _UNITS[m[2]])},
        ),
        (
            r"print_(?:info|meta): n_layer\s+= (\d{1,15})",
            lambda m: {"own_layers": int(m[1])},
        ),
        (r"llama_\w+: n_ctx\s+= (\d{1,15})", lambda m: {"context": int(m[1])}),
        (r"llama_\w+: n_batch\s+= (\d{1,15})", lambda m: {"batch": int(m[1])}),
        (r"llama_\w+: n_ubatch\s+= (\d{1,15})", lambda m: {"micro_batch": int(m[1])}),
        (r"llama_\w+: flash_attn\s+= (\w+)", lambda m: {"flash_attention": m[1]}),
        (
            r"Flash Attention (?:was auto, set to )?(enabled|disabled)",
            lambda m: {"flash_attention": m[1]},
        ),
        (
            r"n_slots = (\d{1,15})(?:, n_ctx_slot = (\d{1,15}))?",
            lambda m: (
                {"slots": int(m[1])} | ({"context_per_slot": int(m[2])} if m[2] else {})
            ),
        ),
        (r"kv_unified\s+= '?(true|false)", lambda m: {"kv_unified": m[1] == "true"}),
        (
            r"new slot,? n_ctx(?:_slot)? = (\d{1,15})",
            lambda m: {"context_per_slot": int(m[1])},
        ),
        (
            r"n_threads = (\d{1,15}) \(n_threads_batch = (\d{1,15})\)",
            lambda m: {"threads": int(m[1]), "threads_batch": int(m[2])},
        ),
        (r"K \((\w+)\): .*V \((\w+)\):", lambda m: {"kv_types": f"K {m[1]}, V {m[2]}"}),
        (
            r"offloaded (\d{1,15})/(\d{1,15}) layers to GPU",
            lambda m: {"layers_offloaded": int(m[1]), "layers": int(m[2])},
        ),
        (
            r"cap image_max_tokens \(original=(-?\d{1,15})\) to (\d{1,15})\b",
            lambda m: {"image_tokens_asked": int(m[1]), "image_tokens_cap": int(m[2])},
        ),
    )
)
_BUFFER = re.compile(
    r"(?<!\S)(\S+)\s+(?:(model|KV|RS|compute|output) )?buffer "
    r"size\s*=\s*(\d{1,12}(?:\.\d{1,9})?) MiB"
)
_PLACES = {
    "model": "model_mib",
    "KV": "kv_mib",
    "RS": "kv_mib",
    "compute": "compute_mib",
    "output": "compute_mib",
}
_TABLE = "| memory breakdown [MiB]"
_TABLE_ROW = re.compile(
    # device; total and free, which the host has not
    r"\|\s+-\s[^|]*\|(?:\s*\d{1,20} =\s*\d{1,20} \+ \()?"
    r"\s*\d{1,20} =\s*\d{1,20} \+\s*\d{1,20} \+\s*\d{1,20}\)?(?: \+\s*-?\d{1,20})?\s*\|"
)
_MEMORY = re.compile(
    r"buffer size|memory_breakdown_print|params_fit|fit_params|offload(?:ed|ing)|using device|KV "
    r"self size|KV cache"
)
_SEEN = re.compile(r"using device RPC\S* \(([^)]+)\)")
_FITTED = re.compile(
    r"(?:params_fit|fit_params)\w*: (.*(?:projected|will "
    r"leave|cannot|successfully|failed|layers|context|n_ctx).*)"
)
# What a fit tried is no longer in memory when it ends; nor is an earlier server's in a log that is
# appended to.
_FREES_BUFFERS = re.compile(
    r"(?:successfully|failed to) fit params|fitting params to (?:free|device) memory "
    r"took|system_info: n_threads"
)
# llama-server describes its draft model after these lines, while it fits both to memory and when it
# loads it; then come the slots.
_DRAFT = re.compile(r"loading draft model '|device memory data for the extra model")
_OWN_AGAIN = re.compile(r"n_slots = \d|projected to use")
_IS_LOADED = re.compile(r"n_slots = \d")
# A router's own lines, and those of its models' processes, which begin with their port.
_SPAWNED = re.compile(r"spawning server instance with name=(\S+) on port (\d{1,5})")
_OF_PROCESS = re.compile(r"\[(\d{1,5})\] (?=\S)")
_EVICTED = re.compile(
    r"evicting idle LRU name=|models_max limit reached, removing LRU name="
)
_SHIFT = re.compile(r"slot context shift, n_keep")
_SAVES_PROMPT = re.compile(r" prompt_save: +- saving prompt with length ")
_STAMP = re.compile(r"(\d{1,6})\.(\d\d)\.(\d{3})\.(\d{3}) ")


@dataclass(slots=True)
class ModelLog:
    """What a log says of one model.

    `facts`: fields of a `ServerDescription`, and `own_layers`, without the output layer. `buffers`:
    by device, as they were allocated; `RPC0[host:port]` is a device of an RPC worker.
    `memory_table`: the last memory breakdown. `memory_is_forecast`: it was printed before loading,
    when parameters were fitted.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    buffers: dict[str, Buffers] = field(default_factory=dict)
    memory_table: list[str] = field(default_factory=list)
    memory_is_forecast: bool = False

    def read(self, line: str, patterns: Sequence[LogFact], *, is_loaded: bool) -> None:
        """Facts, buffers and the memory breakdown of a line."""
        for pattern, facts in patterns:
            if match := pattern.search(line):
                self.facts |= facts(match)
        if match := _BUFFER.search(line):
            # Until 2025: "llm_load_tensors:      CUDA0 buffer size = 5434.38 MiB"
            kind = match[2] or ("model" if "load_tensors" in line else "")
            if kind and (match[1] in self.buffers or len(self.buffers) < MOST_DEVICES):
                self._add(match[1], _PLACES[kind], float(match[3]))
        elif _TABLE in line:
            self.memory_table = [line[line.index("|") :]]
            self.memory_is_forecast = not is_loaded
        elif _TABLE_ROW.search(line) and len(self.memory_table) < MOST_DEVICES:
            self.memory_table.append(line[line.index("|") :])

    def _add(self, device: str, place: str, mib: float) -> None:
        """Add to what is on a device.

        A draft model and a vision projector have buffers of their own on it.
        """
        before = self.buffers.get(device) or Buffers(
            device=device, model_mib=0.0, kv_mib=0.0, compute_mib=0.0
        )
        self.buffers[device] = replace(before, **{place: getattr(before, place) + mib})


@dataclass(slots=True)
class ServerLog(ModelLog):
    """What a log says of a server and its model.

    `memory_lines`: all lines about memory, as they are in the log. `fit_lines`: what the fitting of
    parameters to memory did. `rpc_seen`: addresses of RPC workers whose devices were found.
    `draft`: the draft model of speculative decoding. `models`: those of a router, from the lines of
    their processes; `evictions`: times that it unloaded one for another. `context_shifts`: times
    that a full context lost its beginning (--context-shift).
    """

    memory_lines: list[str] = field(default_factory=list)
    fit_lines: list[str] = field(default_factory=list)
    rpc_seen: list[str] = field(default_factory=list)
    draft: ModelLog | None = None
    models: dict[str, ServerLog] = field(default_factory=dict)
    evictions: int = 0
    context_shifts: int = 0
    wakes: int = 0  # times that it loaded its model again after a sleep
    # time in which it copied prompts from slots to its prompt cache in memory (--cache-ram), ms
    prompt_saves_ms: float = 0.0


def read_log(
    lines: Iterable[str], patterns: Sequence[LogFact] = LOG_FACTS
) -> ServerLog:
    """What these lines say; `patterns` find the facts. Any text is accepted."""
    log = ServerLog()
    current: ModelLog = log
    is_loaded = False
    names: dict[str, str] = {}  # of a router's models, by the port of their processes
    processes: dict[str, list[str]] = {}
    saving_since_ms: float | None = None
    for line in map(_plain_line, lines):
        if _MEMORY.search(line) and len(log.memory_lines) < MOST_MEMORY_LINES:
            log.memory_lines.append(line)
        if (match := _OF_PROCESS.match(line)) and match[1] in names:
            processes.setdefault(names[match[1]], []).append(line[match.end() :])
            continue
        if (match := _SPAWNED.search(line)) and len(names) < MOST_DEVICES:
            names[match[2]] = match[1]
        if _DRAFT.search(line):
            current = log.draft = log.draft or ModelLog()
        elif _OWN_AGAIN.search(line):
            current = log
        if "system_info: n_threads" in line:  # a server starts
            log.draft = None
            log.context_shifts = 0
            current = log
            is_loaded = False
        is_loaded = is_loaded or _IS_LOADED.search(line) is not None
        current.read(line, patterns, is_loaded=is_loaded)
        if _FREES_BUFFERS.search(line):
            log.buffers.clear()
            if log.draft is not None:
                log.draft.buffers.clear()
        if (
            (match := _SEEN.search(line))
            and match[1] not in log.rpc_seen
            and len(log.rpc_seen) < MOST_DEVICES
        ):
            log.rpc_seen.append(match[1])
        elif match := _FITTED.search(line):
            log.fit_lines = [*log.fit_lines, match[1]][-MOST_FIT_LINES:]
        log.evictions += _EVICTED.search(line) is not None
        log.context_shifts += _SHIFT.search(line) is not None
        log.wakes += WOKE in line
        stamp_ms = _stamp_ms(line)
        if saving_since_ms is not None and stamp_ms is not None:
            log.prompt_saves_ms += max(0.0, stamp_ms - saving_since_ms)
            saving_since_ms = None
        if _SAVES_PROMPT.search(line):
            saving_since_ms = stamp_ms
    log.models = {
        name: read_log(own_lines, patterns) for name, own_lines in processes.items()
    }
    return log


def _stamp_ms(line: str) -> float | None:
    """When the line was written, by its stamp (minutes, seconds, ms, us), ms; None without one."""
    match = _STAMP.match(line)
    if match is None:
        return None
    minutes, seconds, ms, us = (int(part) for part in match.groups())
    return (minutes * 60 + seconds) * 1000 + ms + us / 1000


def _plain_line(line: str) -> str:
    """A line of a log as printable text, without the wrapping of --log-jsonl."""
    if line.startswith('{"type":"log"'):
        with suppress(ValueError, RecursionError):
            line = str(json.loads(line).get("msg", ""))
    return printable(line.rstrip("\r\n").replace("\t", " "), MOST_LINE_CHARS)
