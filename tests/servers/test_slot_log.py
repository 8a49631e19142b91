"""What llama-server's log says of its slots."""

from __future__ import annotations

import json

from llama_load.analysis.topics.reprocessing.causes import (
    CLEARED,
    EVICTED,
    OTHER_SLOT,
    SLEPT,
    TAKEN,
    TEMPLATE,
    UNKNOWN,
    TurnEvidence,
    cause_of,
)
from llama_load.servers.kinds.slot_log import read_slot_log

LRU = (
    "0.01 I slot get_availabl: id  {slot} | task -1 | selected slot by LRU, t_last = 5"
)
SIMILAR = (
    "0.01 I slot get_availabl: id  {slot} | task -1 | selected slot by LCP similarity, "
    "f_sim_best = 0.916 (> 0.100 thold), f_keep = {kept}"
)
BEGIN = (
    "0.02 I slot launch_slot_: id  {slot} | task {task} | processing task, is_child = 0"
)
TIMES = (
    "0.03 I slot print_timing: id  {slot} | task {task} | prompt eval time =     441.20 ms /  1009 "
    "tokens (    0.44 ms per token,  2286.97 tokens per second)",
    "0.03 I slot print_timing: id  {slot} | task {task} |        eval time =      31.83 ms /     8 "
    "tokens (    4.55 ms per token,   219.94 tokens per second)",
)
REMOVED = "0.03 W srv         alloc:  - making room for prompt cache entry, removing oldest entry (size = 0.312 MiB)"
CLEARING = (
    "0.03 I slot prompt_clear: id  {slot} | task -1 | clearing prompt with 900 tokens"
)
WOKE = "0.03 I srv  handle_sleep: server is exiting sleeping state"
GAP = "… (the middle of the log is left out)"


def task(number: int, slot: int, kept: str | None = None) -> list[str]:
    chosen = LRU if kept is None else SIMILAR
    lines = [chosen, BEGIN, *TIMES]
    return [line.format(slot=slot, task=number * 10, kept=kept) for line in lines]


def cause(*lines: str) -> str:
    """Of the last request, whose turn before is the first one."""
    log = read_slot_log(lines, GAP)
    evidence = TurnEvidence(before=log.tasks[0], now=log.tasks[-1])
    return cause_of(evidence, log).name


def test_requests_have_their_slots_and_times() -> None:
    lines = [*task(0, 1), *task(1, 0, "0.987")]
    for given in (lines, [json.dumps({"type": "log", "msg": line}) for line in lines]):
        wrapped = [line.replace('{"type": "log"', '{"type":"log"') for line in given]
        one, two = read_slot_log(wrapped).tasks
        assert (one.slot, one.kept, two.slot, two.kept) == (1, None, 0, 0.987)
        assert (one.prompt_tokens, one.prompt_ms, one.answer_ms) == (1009, "441.20", "31.83")  # fmt: skip


def test_a_server_that_starts_again_has_a_new_log() -> None:
    lines = [*task(0, 0), "0.00 I system_info: n_threads = 4", *task(1, 1)]
    (only,) = read_slot_log(lines).tasks
    assert (only.number, only.slot) == (0, 1)


def test_the_slot_tells_the_cause() -> None:
    first = task(0, 0)
    again = task(2, 0)
    other = task(1, 0)
    beside = task(1, 1)
    off = "srv load_model: prompt cache is disabled - use `--cache-ram N` to enable it"
    assert cause(*first, *other, *again) == TAKEN
    assert cause(*first, *other, REMOVED, *again) == EVICTED
    assert cause(off, *first, *other, REMOVED, *again) == TAKEN
    assert cause(*first, *beside, *task(2, 1)) == OTHER_SLOT
    assert cause(*first, CLEARING.format(slot=0), *beside, *again) == CLEARED
    assert cause(*first, CLEARING.format(slot=0), REMOVED, *again) == EVICTED
    assert cause(*first, CLEARING.format(slot=1), *again) == TEMPLATE
    assert cause(*first, *beside, *task(2, 0, "0.402")) == TEMPLATE
    assert cause(*first, *task(2, 0, "1.000")) == UNKNOWN
    assert cause(*first, GAP, *again) == UNKNOWN


def test_a_sleep_empties_all_slots_whatever_else_there_was() -> None:
    first = task(0, 0)
    again = task(2, 0)
    assert cause(*first, WOKE, *again) == SLEPT
    assert cause(*first, WOKE, *task(2, 1)) == SLEPT
    assert cause(*first, *task(1, 0), WOKE, *again) == SLEPT
    assert cause(*first, GAP, WOKE, *again) == SLEPT
    # Neither before the turn before nor after this one.
    assert cause(WOKE, *first, *again, WOKE) == TEMPLATE


def test_without_a_log_a_lone_slot_tells_the_cause() -> None:
    assert cause_of(TurnEvidence(), None).name == UNKNOWN
    assert cause_of(TurnEvidence(lone_slot_taken=True), None).name == TAKEN
