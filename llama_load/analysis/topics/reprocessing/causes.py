"""Why a turn's prompt was processed again: the causes, and which one a turn's evidence shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llama_load.servers.kinds.slot_log import SlotLog, SlotTask

CACHE_OFF = "the cache is off"
OTHER_SERVER = "another server answered"
ADAPTER = "another LoRA adapter"
TEXT = "the text changed"
TEMPLATE = "the chat template changed earlier text"
WINDOW = "sliding window or recurrent memory"
SHIFT = "context shift"
TAKEN = "another conversation took the slot"
EVICTED = "evicted from --cache-ram"
PREEMPTED = "a preemption freed its blocks"
BLOCKS = "evicted from the KV cache's blocks"
ROUNDED = "block size rounding"
CLEARED = "the slot was cleared"
SLEPT = "the server slept"
OTHER_SLOT = "another slot was chosen"
UNKNOWN = "unknown"

REMEDIES = {
    CACHE_OFF: "drop --cache-prompt off, --no-cache-prompt",
    OTHER_SERVER: "session affinity in the balancer (--session-header)",
    ADAPTER: "one adapter per conversation",
    TEXT: (
        "send the same beginning: no dates, the same tools in the same order; else llama-server's "
        "--cache-reuse"
    ),
    TEMPLATE: "a template that leaves earlier messages as they were",
    WINDOW: "--swa-full, or more --ctx-checkpoints",
    SHIFT: "a larger -c, without --context-shift",
    TAKEN: "a larger -np, or --cache-ram",
    EVICTED: "a larger --cache-ram or -np",
    PREEMPTED: "more memory for the KV cache, or fewer requests at a time",
    BLOCKS: "more memory for the KV cache, or a KV connector such as LMCache",
    ROUNDED: "a smaller --block-size: only whole blocks are cached",
    CLEARED: "a larger -c: slots share one KV cache, which was full",
    SLEPT: "a --sleep-idle-seconds above the longest pause of the load",
    OTHER_SLOT: "a lower --slot-prompt-similarity",
    UNKNOWN: "start the server with llama-load serve, so that its log is known",
}
# A slot whose tokens all begin the prompt has f_keep = 1; three digits are printed.
_ALL_KEPT = 0.995


@dataclass(frozen=True, slots=True)
class TurnEvidence:
    """What is known of a turn that was processed again, beside the turn before it.

    `is_turn`: both are of one conversation; else their prompts begin alike. `text_changed`,
    `other_server`, `other_adapter`: as the client saw; `cache_off`: the client or the server turned
    it off; `rounded`: all whole blocks were cached. `before` and `now`: the two requests in the
    server's log, None where it has them not.
    `lone_slot_taken`: the server has one slot, and a request of another conversation ended in
    between, by the records. `preempted`, `evicted`: what the metrics of a server with blocks show.
    `seen_taken`, `seen_elsewhere`: what /slots showed: another request had the slot of the turn
    before since, or that slot still had the turn before while this one was in another.
    """

    is_turn: bool = True
    text_changed: bool = False
    other_server: bool = False
    other_adapter: bool = False
    cache_off: bool = False
    rounded: bool = False
    lone_slot_taken: bool = False
    seen_taken: bool = False
    seen_elsewhere: bool = False
    preempted: bool = False
    evicted: bool = False
    before: SlotTask | None = None
    now: SlotTask | None = None


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause; `taker`: the request, by its place in the log, that had the slot in between."""

    name: str
    taker: int | None = None


def cause_of(evidence: TurnEvidence, log: SlotLog | None) -> Cause:
    """The first cause that the evidence shows; those that the client knows come first."""
    seen = (
        (evidence.cache_off, CACHE_OFF),
        (evidence.other_server, OTHER_SERVER),
        (evidence.other_adapter, ADAPTER),
        (evidence.text_changed, TEXT),
        (evidence.rounded, ROUNDED),
        (evidence.preempted, PREEMPTED),
        (evidence.evicted, BLOCKS),
    )
    for is_so, name in seen:
        if is_so:
            return Cause(name)
    before = evidence.before
    now = evidence.now
    if log is None or before is None or now is None:
        return Cause(_by_slots(evidence))
    return _by_log(before, now, log, is_turn=evidence.is_turn)


def _by_slots(evidence: TurnEvidence) -> str:
    if evidence.lone_slot_taken or evidence.seen_taken:
        return TAKEN
    if evidence.seen_elsewhere:
        return OTHER_SLOT
    return UNKNOWN


def _by_log(before: SlotTask, now: SlotTask, log: SlotLog, *, is_turn: bool) -> Cause:
    """What a line says comes before what follows from the lines that there are not."""
    since = range(before.number + 1, now.number + 1)
    if any(at in since for at in log.wakes):
        return Cause(SLEPT)
    if any(at in since for at in log.gaps):
        return Cause(UNKNOWN)
    if now.forced:
        return Cause(WINDOW)
    between = _requests_between(log.tasks, before, now)
    evicted = log.has_prompt_cache and any(at in since for at in log.removals)
    if before.shifts or any(task.shifts for task in between):
        return Cause(SHIFT)
    if between:
        return Cause(EVICTED if evicted else TAKEN, between[-1].number)
    if any(at in since and slot == before.slot for at, slot in log.clearings):
        return Cause(EVICTED if evicted else CLEARED)
    if now.slot != before.slot:
        return Cause(OTHER_SLOT)
    # Nobody else had the slot: its tokens are those of the turn before.
    if is_turn and (now.kept is None or now.kept < _ALL_KEPT):
        return Cause(TEMPLATE)
    return Cause(UNKNOWN)


def _requests_between(
    tasks: Sequence[SlotTask], before: SlotTask, now: SlotTask
) -> list[SlotTask]:
    """The requests that had the slot of the turn before after it."""
    later = tasks[before.number + 1 : now.number]
    return [task for task in later if task.slot == before.slot]
