"""What a server's log says of itself: build, model, slots, where the layers and buffers are, the memory breakdown. Pure.

A log may describe two models: the second is the draft model of speculative decoding. Lines may be wrapped as JSON (--log-jsonl).
Logs of llama-server and of llama-cpp-python (which is llama.cpp, too) of 2024 to 2026, and of vLLM. What is not found is None or
empty: another version may word it differently, and at a low log level the lines are missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from llama_load.foreign_text import printable
from llama_load.targets.servers import KINDS

MOST_LINE_CHARS = 500
MOST_DEVICES = 256
MOST_MEMORY_LINES = 300
# The breakdown's "unaccounted" is a difference of unsigned numbers: below zero it shows as nearly 2^64 bytes.
MOST_MIB = 2**40


@dataclass(frozen=True, slots=True)
class Device:
    """The buffers on one device in MiB, as they were allocated. `RPC0[host:port]` is a device of an RPC worker."""

    name: str
    model_mib: float = 0.0
    kv_mib: float = 0.0
    compute_mib: float = 0.0
    output_mib: float = 0.0

    @property
    def total_mib(self) -> float:
        """All buffers on it."""
        return self.model_mib + self.kv_mib + self.compute_mib + self.output_mib

    @property
    def rpc(self) -> str:
        """The address of the RPC worker that it belongs to; "" if none."""
        found = _RPC_DEVICE.fullmatch(self.name)
        return found["address"] if found else ""


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """A row of llama.cpp's memory breakdown, MiB: self = model + context + compute. The host has no total."""

    device: str
    total: int | None
    free: int | None
    self: int
    model: int
    context: int
    compute: int
    unaccounted: int | None


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The facts. Sizes in bytes if not named otherwise."""

    build: str | None = None
    model_name: str | None = None
    quantization: str | None = None  # "Q4_K - Medium"
    model_bytes: int | None = None
    n_params: int | None = None
    n_layers: int | None = None
    context: int | None = None  # of all slots together
    context_per_slot: int | None = None
    slots: int | None = None
    batch: int | None = None
    micro_batch: int | None = None
    threads: int | None = None
    threads_batch: int | None = None
    flash_attention: str | None = None
    kv_types: str | None = None  # "K f16, V f16"
    offloaded: tuple[int, int] | None = None  # layers on devices other than the CPU, of all
    devices: tuple[Device, ...] = ()
    layers: dict[str, int] = field(default_factory=dict)  # layers per device, at log level "debug" only
    rpc_seen: tuple[str, ...] = ()  # addresses of RPC workers whose devices were found
    memory: tuple[MemoryRow, ...] = ()  # the last breakdown in the log
    fit: tuple[str, ...] = ()  # what the fitting of parameters to memory did
    kv_tokens: int | None = None  # vLLM: tokens that the KV cache holds
    kv_unified: bool | None = None  # all slots share one KV pool of `context` tokens
    image_tokens: tuple[int, int] | None = None  # the most of an image: asked for (-1: by the model), allowed by the micro-batch
    context_shifts: int = 0  # times that the beginning of a full context was dropped (--context-shift)
    memory_table: tuple[str, ...] = ()  # `memory`, as the log shows it
    memory_is_forecast: bool = False  # printed before loading, when parameters were fitted; not what was allocated
    memory_lines: tuple[str, ...] = ()  # all lines about memory, as they stand in the log
    draft: LogFacts | None = None  # the draft model of speculative decoding, with its own buffers
    models: Mapping[str, LogFacts] = field(default_factory=dict)  # those of a router, each from its own process's lines
    evictions: int = 0  # times that a router unloaded a model to make room for another


_RPC_DEVICE = re.compile(r"RPC\d*(?:\[|\s\()(?P<address>[^\])]+)[\])]")
_BUFFER = re.compile(r"(?<!\S)(\S+)\s+(?:(model|KV|RS|compute|output) )?buffer size\s*=\s*(\d{1,12}(?:\.\d{1,9})?) MiB")
_ROW = re.compile(
    r"\|\s+-\s(?P<device>[^|]*?)\s*\|(?:\s*(?P<total>\d{1,20}) =\s*(?P<free>\d{1,20}) \+ \()?"
    r"\s*(?P<self>\d{1,20}) =\s*(?P<model>\d{1,20}) \+\s*(?P<context>\d{1,20}) \+\s*(?P<compute>\d{1,20})\)?"
    r"(?: \+\s*(?P<unaccounted>-?\d{1,20}))?\s*\|"
)
_MEMORY = re.compile(
    r"buffer size|memory_breakdown_print|params_fit|fit_params|offload(?:ed|ing)|using device|KV self size|KV cache"
)


# Of several matches the last counts: a fit to memory tries before it loads.
_FACTS = tuple(fact for kind in KINDS.values() for fact in kind.log_facts)
_LAYER = re.compile(r"layer\s+\d+ assigned to device ([^,\s]+)")
_SEEN = re.compile(r"using device RPC\S* \(([^)]+)\)")
_FITTED = re.compile(
    r"(?:params_fit|fit_params)\w*: (.*(?:projected|will leave|cannot|successfully|failed|layers|context|n_ctx).*)"
)
# What a fit tried is no longer in memory when it ends; nor is an earlier server's in a log that is appended to.
_BEGINS_ANEW = re.compile(
    r"(?:successfully|failed to) fit params|fitting params to (?:free|device) memory took|system_info: n_threads"
)


# llama-server describes its draft model after these lines, while it fits both to memory and when it loads it; then come the slots.
_DRAFT = re.compile(r"loading draft model '|device memory data for the extra model")
_OWN_AGAIN = re.compile(r"n_slots = \d|projected to use")
_IS_LOADED = re.compile(r"n_slots = \d")
# A router's own lines, and those of its models' processes, which begin with their port.
_SPAWNED = re.compile(r"spawning server instance with name=(\S+) on port (\d{1,5})")
_OF_PROCESS = re.compile(r"\[(\d{1,5})\] (?=\S)")
_EVICTED = re.compile(r"evicting idle LRU name=|models_max limit reached, removing LRU name=")
_SHIFT = re.compile(r"slot context shift, n_keep")


class _Line(msgspec.Struct):
    """A line of --log-jsonl; others have no message."""

    msg: str = ""


_decode_line = msgspec.json.Decoder(_Line).decode


@dataclass(slots=True)
class _Model:
    """What was read of one model."""

    facts: dict[str, Any] = field(default_factory=dict)
    devices: dict[str, Device] = field(default_factory=dict)
    layers: dict[str, int] = field(default_factory=dict)
    memory: list[MemoryRow] = field(default_factory=list)
    table: list[str] = field(default_factory=list)
    is_forecast: bool = False

    def read(self, line: str, *, is_loaded: bool) -> None:
        """Facts, buffers, layers and the memory breakdown of a line."""
        for pattern, read in _FACTS:
            if match := pattern.search(line):
                self.facts |= read(match)
        if match := _BUFFER.search(line):
            _add(self.devices, match, line)
        elif match := _LAYER.search(line):
            if match[1] in self.layers or len(self.layers) < MOST_DEVICES:
                self.layers[match[1]] = self.layers.get(match[1], 0) + 1
        elif "memory breakdown [MiB]" in line:
            self.memory, self.table, self.is_forecast = [], [_table_row(line)], not is_loaded
        elif (match := _ROW.search(line)) and len(self.memory) < MOST_DEVICES:
            self.memory.append(_row(match))
            self.table.append(_table_row(line))

    def begin_anew(self) -> None:
        """Forget buffers and layers: those of a trial, or of an earlier server."""
        self.devices.clear()
        self.layers.clear()

    def log_facts(self, **others: Any) -> LogFacts:
        """As frozen facts."""
        return LogFacts(
            **self.facts,
            devices=tuple(self.devices.values()),
            layers=self.layers,
            memory=tuple(self.memory),
            memory_table=tuple(self.table),
            memory_is_forecast=self.is_forecast,
            **others,
        )


def read_log(lines: Iterable[str]) -> LogFacts:
    """The facts in these lines of a server's log. Any text is accepted."""
    own = current = _Model()
    draft: _Model | None = None
    is_loaded, shifts, evictions = False, 0, 0
    names: dict[str, str] = {}  # of a router's models, by the port of their processes
    processes: dict[str, list[str]] = {}
    seen: dict[str, None] = {}
    fit: list[str] = []
    memory_lines: list[str] = []
    for line in lines:
        line = _plain(line)
        if _MEMORY.search(line) and len(memory_lines) < MOST_MEMORY_LINES:
            memory_lines.append(line)
        if (match := _OF_PROCESS.match(line)) and match[1] in names:
            processes.setdefault(names[match[1]], []).append(line[match.end() :])
            continue
        if (match := _SPAWNED.search(line)) and len(names) < MOST_DEVICES:
            names[match[2]] = match[1]
        evictions += _EVICTED.search(line) is not None
        if _DRAFT.search(line):
            draft = current = draft or _Model()
        elif _OWN_AGAIN.search(line):
            current = own
        if "system_info: n_threads" in line:  # a server starts
            draft, current, is_loaded, shifts = None, own, False, 0
        is_loaded = is_loaded or _IS_LOADED.search(line) is not None
        current.read(line, is_loaded=is_loaded)
        if _BEGINS_ANEW.search(line):
            for model in (own, draft) if draft else (own,):
                model.begin_anew()
        if (match := _SEEN.search(line)) and len(seen) < MOST_DEVICES:
            seen[match[1]] = None
        elif match := _FITTED.search(line):
            fit.append(match[1])
        shifts += _SHIFT.search(line) is not None
    return own.log_facts(
        rpc_seen=tuple(seen),
        fit=tuple(fit[-8:]),
        memory_lines=tuple(memory_lines),
        context_shifts=shifts,
        draft=draft.log_facts() if draft else None,
        models={name: read_log(of_process) for name, of_process in processes.items()},
        evictions=evictions,
    )


def _plain(line: str) -> str:
    """A line of a log as printable text, without the wrapping of --log-jsonl."""
    if line.startswith('{"type":"log"'):
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            line = _decode_line(line).msg
    return printable(line.rstrip("\r\n").replace("\t", " "), MOST_LINE_CHARS)


def _add(devices: dict[str, Device], match: re.Match[str], line: str) -> None:
    """Add a buffer to its device. A draft model and a vision projector have buffers of their own on the same device."""
    name, kind, size = match[1], match[2], float(match[3])
    if kind is None:  # until 2025: "llm_load_tensors:      CUDA0 buffer size = 5434.38 MiB"
        if "load_tensors" not in line:
            return
        kind = "model"
    place = {"KV": "kv_mib", "RS": "kv_mib"}.get(kind, f"{kind}_mib")
    if name in devices or len(devices) < MOST_DEVICES:
        device = devices.setdefault(name, Device(name))
        devices[name] = replace(device, **{place: getattr(device, place) + size})


def _table_row(line: str) -> str:
    return line[line.index("|") :]


def _row(match: re.Match[str]) -> MemoryRow:
    def mib(name: str) -> int | None:
        return None if match[name] is None or abs(int(match[name])) > MOST_MIB else int(match[name])

    return MemoryRow(
        device=match["device"],
        total=mib("total"),
        free=mib("free"),
        self=mib("self") or 0,
        model=mib("model") or 0,
        context=mib("context") or 0,
        compute=mib("compute") or 0,
        unaccounted=mib("unaccounted"),
    )
