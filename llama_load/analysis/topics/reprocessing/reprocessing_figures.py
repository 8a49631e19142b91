"""What prompts cost that were processed again, by cause."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from llama_load.analysis.topics.reprocessing.causes import REMEDIES, TEXT
from llama_load.analysis.topics.reprocessing.kv_blocks import kv_blocks
from llama_load.analysis.topics.reprocessing.reprocessed_turns import (
    ReprocessedTurn,
    RunFacts,
    TurnTable,
)
from llama_load.analysis.topics.reprocessing.seen_slots import slot_series
from llama_load.analysis.topics.reprocessing.shared_beginnings import shared_beginnings
from llama_load.analysis.topics.topic import TopicInput
from llama_load.run_folder import Run
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.observed.server_description import ServerDescription
from llama_load.run_folder.server_files import MIDDLE_LEFT_OUT, kept_logs
from llama_load.servers.kinds import KINDS
from llama_load.servers.kinds.slot_log import SlotLog, read_slot_log

_CACHE_OFF_FLAGS = frozenset().union(*(kind.cache_off_flags for kind in KINDS.values()))


@dataclass(frozen=True, slots=True)
class ReprocessingCause:
    """A cause: turns, tokens and ms (None: the server reports no times) that it cost, their share
    of all prefill (of its time, else of its tokens), a remedy, and where it was seen first."""

    cause: str
    turns: int
    tokens: int
    ms: float | None
    ratio: float | None
    remedy: str
    example: str


@dataclass(frozen=True, slots=True)
class ReprocessingFigures:
    """The later turns and the requests that begin as earlier ones (`turns` counts both), whose
    cached tokens are known. Tokens; `ratio`: the avoidable share of all
    prefill, 0 to 1; `causes`: those that cost most first."""

    turns: int
    could_tokens: int
    cached_tokens: int
    lost_tokens: int
    ratio: float | None
    causes: list[ReprocessingCause]


def reprocessing(given: TopicInput) -> ReprocessingFigures | None:
    """The figures of a run; None without later turns whose cached tokens are known."""
    table = turn_table(given.run)
    turns = list(table.later_turns())
    if not given.run.manifest.cache_off:
        turns += shared_beginnings(given.run.records, table)
    if not turns:
        return None
    return reprocessing_figures(turns, given.measured)


def turn_table(run: Run) -> TurnTable:
    """The turns of a run, with what its servers' logs say of them."""
    manifest = run.manifest
    slots = {server.url: server.slots for server in manifest.servers}
    facts = RunFacts(
        cache_off=manifest.cache_off or any(map(_has_no_cache, manifest.servers)),
        slots=slots,
        logs=_logs(run.path, list(slots)),
        blocks=kv_blocks(run),
        slot_series=slot_series(run),
    )
    return TurnTable(run.records, facts)


def reprocessing_figures(
    turns: Sequence[ReprocessedTurn], measured: Records
) -> ReprocessingFigures:
    """The figures of these turns; `measured`: all requests whose prefill counts."""
    by_cause: dict[str, list[ReprocessedTurn]] = defaultdict(list)
    for turn in turns:
        if turn.cause is not None:
            by_cause[turn.cause].append(turn)
    prefill_ms = float(np.nansum(measured.numbers("server_prompt_ms")))
    processed = measured.numbers("prompt_tokens") - measured.numbers("cached_tokens")
    prefill_tokens = float(np.nansum(processed))

    causes = []
    for name, lost in by_cause.items():
        causes.append(_cause(name, lost, prefill_ms, prefill_tokens))
    causes.sort(key=lambda cause: -cause.tokens)
    ratios = [cause.ratio for cause in causes if cause.ratio is not None]
    return ReprocessingFigures(
        turns=len(turns),
        could_tokens=sum(turn.could for turn in turns),
        cached_tokens=sum(turn.cached for turn in turns),
        lost_tokens=sum(turn.lost for turn in turns),
        ratio=min(1.0, sum(ratios)) if prefill_ms or prefill_tokens else None,
        causes=causes,
    )


def _cause(
    name: str, lost: Sequence[ReprocessedTurn], prefill_ms: float, prefill_tokens: float
) -> ReprocessingCause:
    tokens = sum(turn.lost for turn in lost)
    known_ms = [turn.ms for turn in lost if turn.ms is not None]
    ms = sum(known_ms) if len(known_ms) == len(lost) else None
    ratio = None
    if ms is not None and prefill_ms:
        ratio = ms / prefill_ms
    elif prefill_tokens:
        ratio = tokens / prefill_tokens
    return ReprocessingCause(
        name, len(lost), tokens, ms, ratio, REMEDIES[name], _example_turn(lost[0])
    )


def _example_turn(turn: ReprocessedTurn) -> str:
    text = turn.conversation
    if turn.thread is not None:
        text += f" turn {turn.turn}"
    if turn.taker is not None:
        text += f", by {turn.taker}"
    if turn.cause == TEXT and turn.changed_in is not None:
        text += f", in {turn.changed_in}"
    if turn.kv_use is not None:
        text += f", KV cache {turn.kv_use:.0%} used"
    return text


def _has_no_cache(server: ServerDescription) -> bool:
    return is_without_cache(server.command)


def is_without_cache(command: str | None) -> bool:
    """Whether a server with this command line keeps no prompts."""
    words = (command or "").split()
    return any(word in words for word in _CACHE_OFF_FLAGS)


def _logs(folder: Path, hosts: Sequence[str]) -> Mapping[str, SlotLog]:
    """The logs that the run folder has, by the server's URL."""
    logs = {}
    for host, text in kept_logs(folder, hosts).items():
        log = read_slot_log(text.split("\n"), MIDDLE_LEFT_OUT)
        if log.tasks:
            logs[host] = log
    return logs
