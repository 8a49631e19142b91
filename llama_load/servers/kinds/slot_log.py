"""What llama-server's log says of its slots: which request each had, and why its prompt was not
found in the cache. Pure.

Lines of its default log level, 2025 and 2026 (tools/server/server-context.cpp, server-task.cpp):

    slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = 123
    slot launch_slot_: id  0 | task 9 | processing task, is_child = 0
    slot   operator(): id  0 | task 9 | forcing full prompt re-processing due to lack of cache data
    slot print_timing: id  0 | task 9 | prompt eval time =     441.20 ms /  1009 tokens (…
    slot print_timing: id  0 | task 9 |        eval time =      31.83 ms /     8 tokens (…
    srv         alloc:  - making room for prompt cache entry, removing oldest entry (…
    srv  handle_sleep: server is exiting sleeping state
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

_OF_SLOT = re.compile(r"slot \s*\S{1,40}: id +(\d{1,6}) \| task (-?\d{1,12}) \| (.*)")
_SIMILAR = re.compile(
    r"selected slot by LCP similarity, .{0,200}f_keep = (\d\.\d{1,9})"
)
_PROMPT = re.compile(r"prompt eval time = +(\d{1,12}\.\d\d) ms / +(\d{1,12}) tokens")
_ANSWER = re.compile(r"^ *eval time = +(\d{1,12}\.\d\d) ms / ")
_LAUNCHED = "processing task"
_CHOSEN = "selected slot by"
_FORCED = "forcing full prompt re-processing"
_SHIFT = "slot context shift, n_keep"
_NO_CACHE = "prompt cache is disabled"
_REMOVED = "removing oldest entry"
_CLEARED = "clearing prompt with"
_STARTS = "system_info: n_threads"
WOKE = "server is exiting sleeping state"  # --sleep-idle-seconds


@dataclass(slots=True)
class SlotTask:
    """A request in a slot.

    `number`: its place among all requests of the log, from 0; `prompt_ms` and `answer_ms` are the
    log's, with two digits; `kept`: the share of the slot's tokens that its prompt begins with,
    None if that is below the threshold (the slot was the one least recently used); `forced`: the
    server had to process all of the prompt, because of a sliding window or recurrent memory;
    `shifts`: context shifts.
    """

    number: int
    slot: int
    kept: float | None = None
    prompt_tokens: int | None = None
    prompt_ms: str = ""
    answer_ms: str = ""
    forced: bool = False
    shifts: int = 0


@dataclass(slots=True)
class SlotLog:
    """The requests in the order in which they began; `has_prompt_cache`: the one in memory
    (--cache-ram); `removals`: for each entry removed from it for lack of room, the number of
    requests that had begun; `clearings`: the same for each slot that was cleared, with the slot;
    `wakes`: the same for each time that the server loaded its model again after a sleep, with empty
    slots and caches; `gaps`: the same for each place where lines are missing."""

    tasks: list[SlotTask] = field(default_factory=list)
    has_prompt_cache: bool = True
    removals: list[int] = field(default_factory=list)
    clearings: list[tuple[int, int]] = field(default_factory=list)
    wakes: list[int] = field(default_factory=list)
    gaps: list[int] = field(default_factory=list)


def read_slot_log(lines: Iterable[str], gap: str = "") -> SlotLog:
    """What these lines say; `gap` is a line that stands for others which are left out. Any text is
    accepted."""
    log = SlotLog()
    open_tasks: dict[str, SlotTask] = {}
    kept: dict[str, float] = {}
    for line in lines:
        text = _plain(line)
        if _STARTS in text:  # a server starts; what was before is another one's
            log = SlotLog()
            open_tasks.clear()
        elif gap and text == gap:
            log.gaps.append(len(log.tasks))
        elif _NO_CACHE in text:
            log.has_prompt_cache = False
        elif _REMOVED in text:
            log.removals.append(len(log.tasks))
        elif WOKE in text:
            log.wakes.append(len(log.tasks))
        match = _OF_SLOT.search(text)
        if match is None:
            continue

        slot, task_id, said = match.groups()
        if said.startswith(_CLEARED):
            log.clearings.append((len(log.tasks), int(slot)))
        elif said.startswith(_CHOSEN):
            kept.pop(slot, None)
            similar = _SIMILAR.match(said)
            if similar:
                kept[slot] = float(similar[1])
        elif said.startswith(_LAUNCHED):
            task = SlotTask(len(log.tasks), int(slot), kept.pop(slot, None))
            log.tasks.append(task)
            open_tasks[slot + " " + task_id] = task
        else:
            _add(open_tasks.get(slot + " " + task_id), said)
    return log


def _add(task: SlotTask | None, said: str) -> None:
    if task is None:
        return
    if said.startswith(_FORCED):
        task.forced = True
    elif said.startswith(_SHIFT):
        task.shifts += 1
    elif prompt := _PROMPT.match(said):
        task.prompt_ms = prompt[1]
        task.prompt_tokens = int(prompt[2])
    elif answer := _ANSWER.match(said):
        task.answer_ms = answer[1]


def _plain(line: str) -> str:
    """A line without the wrapping of --log-jsonl."""
    if line.startswith('{"type":"log"'):
        with suppress(ValueError, RecursionError):
            return str(json.loads(line).get("msg", ""))
    return line
