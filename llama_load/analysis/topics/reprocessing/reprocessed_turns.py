"""The later turns of conversations: tokens that could have been cached, and those that were."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.topics.reprocessing.causes import (
    BLOCKS,
    PREEMPTED,
    TAKEN,
    TurnEvidence,
    cause_of,
)
from llama_load.analysis.topics.reprocessing.kv_blocks import (
    NO_BLOCKS,
    KvBlocks,
    is_full,
)
from llama_load.analysis.topics.reprocessing.seen_slots import (
    Requests,
    SeenSlot,
    seen_slots,
)
from llama_load.ground.units import NS_PER_MS
from llama_load.run_folder.observed.records import ConversationKey, Records
from llama_load.run_folder.observed.telemetry_series import Series
from llama_load.run_folder.observed.window import Window
from llama_load.servers.kinds.slot_log import SlotLog, SlotTask

# The end of a prompt may have other tokens once more text follows, and a cache has blocks.
SLACK_TOKENS = 16
SLACK_RATIO = 0.02
# A share of a prompt's text is its share of the tokens within this error.
TEXT_RATIO = 0.25

# A conversation, of a recording its name, and the sub-agent in it.
Thread = tuple[ConversationKey | str, str | None]
Timing = tuple[int, str, str]


@dataclass(frozen=True, slots=True)
class ReprocessedTurn:
    """A later turn of a conversation, or a request that begins as an earlier one.

    Tokens; `lost`: those that could have been cached and were not, 0 below the error; `ms`: what
    they cost, None if unknown; `taker`: the conversation that had the slot in between;
    `same_text`: the share of the prompt before that this one begins with, by its text;
    `changed_in`: the first part in which it is another one. `row` and `before`: of the records, its
    own and that of the turn before; `thread`: its conversation or sub-agent, None of a request that
    is no later turn; `kv_use`: the largest used share of the KV cache since, where blocks were
    lost and it was seen full."""

    row: int
    before: int
    thread: Thread | None
    conversation: str
    turn: int
    prompt: int
    could: int
    cached: int
    lost: int
    ms: float | None
    cause: str | None
    taker: str | None
    same_text: float | None
    changed_in: str | None = None
    kv_use: float | None = None


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What is known of the run: whether its requests or its servers turned the cache off, the
    slots of each server, their logs and blocks, and what was sampled of their slots.
    `rows_without_cache`: single requests that turned it off."""

    cache_off: bool
    slots: Mapping[str, int | None]
    logs: Mapping[str, SlotLog]
    rows_without_cache: frozenset[int] = frozenset()
    blocks: Mapping[str, KvBlocks] = field(default_factory=dict)
    slot_series: Mapping[str, Sequence[Series]] = field(default_factory=dict)


def cacheable_tokens(before: int, prompt: int, block: int = 1) -> int:
    """Of a prompt's tokens, those that the prompt before had, in whole blocks of this size. At
    least one is always processed."""
    return min(before, prompt - 1) // block * block


def lost_tokens(could: int, cached: int, block: int = 1) -> int:
    """The tokens that could have been cached and were not; 0 below the error."""
    lost = could - cached
    return 0 if lost <= max(SLACK_TOKENS, block, SLACK_RATIO * could) else lost


def rounded_tokens(could: int, cached: int, block: int) -> int:
    """The tokens of a last block that was not whole, where all whole blocks were cached; 0 if they
    were not, and for blocks of 16 tokens or fewer.

    200 tokens, blocks of 128, 128 cached: 72.
    """
    whole = (could - SLACK_TOKENS) // block * block
    lost = could - cached
    if cached < whole or lost <= max(2 * SLACK_TOKENS, SLACK_RATIO * could):
        return 0
    return lost


class TurnTable:
    """The requests of a run by row, warm-ups included: they are in the slots, too."""

    def __init__(self, records: Records, facts: RunFacts) -> None:
        self._facts = facts
        self.hosts = records.strings("host")
        self.conversations = records.strings("conversation")
        self.adapters = records.strings("adapter")
        self.replicas = records.strings("replica")
        self.turns = records.numbers("turn")
        self.prompt = records.numbers("prompt_tokens")
        self.cached = records.numbers("cached_tokens")
        self.earlier_chars = records.numbers("earlier_chars")
        self.common_chars = records.numbers("common_chars")
        self.changed_in = records.strings("changed_in")
        self._indices = records.numbers("prompt_index")
        self.processed = records.numbers("server_prompt_tokens")
        self.processed_ms = records.numbers("server_prompt_ms")
        self._output = records.numbers("output_tokens")
        self._predict_ms = records.numbers("server_predict_ms")
        self.started_ns = records.instants("started_mono_ns")
        self.ended_ns = records.instants("ended_mono_ns")
        self.is_ok = records.equals("status", "ok")
        self.warmup = records.equals("warmup", True)
        self._processed_ns = self._ends_of_prefill(records.numbers("ttft_ms"))
        self._seen_slots = self._seen()
        self._threads = _threads(records)
        self._tasks = self._matched()
        self._rows_of_tasks = {
            (self.hosts[row], task.number): row for row, task in self._tasks.items()
        }

    def later_turns(self) -> Iterator[ReprocessedTurn]:
        """Those that were measured and whose cached tokens are known, in the order of their
        starts."""
        before: dict[Thread, int] = {}
        for row in np.argsort(self.started_ns, kind="stable").tolist():
            thread = self._threads[row]
            if thread is None:
                continue
            last = before.get(thread)
            if self.is_ok[row]:
                before[thread] = row
            else:  # what the server has of it is not known
                before.pop(thread, None)
            if last is None or self.warmup[row] or not self.is_ok[row]:
                continue
            turn = self._turn(row, last, thread)
            if turn is not None:
                yield turn

    def _turn(self, row: int, last: int, thread: Thread) -> ReprocessedTurn | None:
        known = (self.turns[row], self.prompt[row], self.cached[row], self.prompt[last])
        if np.isnan(known).any():
            return None
        block = self.blocks(row).block
        could = cacheable_tokens(int(self.prompt[last]), int(self.prompt[row]))
        cached = int(self.cached[row])
        lost = lost_tokens(could // block * block, cached, block)
        if lost:
            return self.explained(row, last, thread, could, lost)
        lost = rounded_tokens(could, cached, block)
        return self.explained(row, last, thread, could, lost, is_rounded=True)

    def explained(
        self,
        row: int,
        before: int,
        thread: Thread | None,
        could: int,
        lost: int,
        *,
        is_rounded: bool = False,
    ) -> ReprocessedTurn:
        """A request whose prompt begins as that of the row `before`, with what its loss cost and
        why. `is_rounded`: it lost no whole block."""
        same_text = None
        if thread is not None:
            same_text = self._same_text(row)
        cause = None
        taker = None
        kv_use = None
        if lost:
            kv_use = self.blocks(row).peak_in(self._since(before, row))
            evidence = self._evidence(row, before, thread, same_text, kv_use)
            evidence = replace(evidence, rounded=is_rounded)
            found = cause_of(evidence, self._facts.logs.get(self.hosts[row]))
            cause = found.name
            at = None
            if found.taker is not None:
                at = self._rows_of_tasks.get((self.hosts[row], found.taker))
            elif cause == TAKEN:
                at = self._seen_taker(row, before)
            taker = None if at is None else self.conversations[at]
        turn = 1
        if thread is not None:
            turn = int(self.turns[row])
        return ReprocessedTurn(
            row,
            before,
            thread,
            self._name(row),
            turn,
            int(self.prompt[row]),
            could,
            int(self.cached[row]),
            lost,
            self._cost_ms(row, lost),
            cause,
            taker,
            same_text,
            self.changed_in[row],
            kv_use if cause in (PREEMPTED, BLOCKS) and is_full(kv_use) else None,
        )

    def blocks(self, row: int) -> KvBlocks:
        """Those of the server of a request."""
        return self._facts.blocks.get(self.hosts[row], NO_BLOCKS)

    def _since(self, before: int, row: int) -> Window:
        """From the end of a request to that of a later one, whose prompt was processed by then."""
        return Window(int(self.ended_ns[before]), int(self.ended_ns[row]))

    def _name(self, row: int) -> str:
        if self.conversations[row] is not None:
            return str(self.conversations[row])
        index = self._indices[row]
        return "a prompt" if np.isnan(index) else f"prompt {index:.0f}"

    def _same_text(self, row: int) -> float | None:
        earlier = self.earlier_chars[row]
        if np.isnan(earlier) or not earlier:
            return None
        return float(self.common_chars[row] / earlier)

    def _cost_ms(self, row: int, lost: int) -> float | None:
        """The server's time for the tokens of this prompt that it processed, by their share."""
        processed = self.processed[row]
        if np.isnan(processed) or not processed or np.isnan(self.processed_ms[row]):
            return None
        return float(self.processed_ms[row] * lost / processed)

    def _evidence(
        self,
        row: int,
        last: int,
        thread: Thread | None,
        same_text: float | None,
        kv_use: float | None,
    ) -> TurnEvidence:
        blocks = self.blocks(row)
        taken = 0.0
        if blocks.capacity is not None:
            taken = self._room_taken(row, last)
        could_by_text = self.prompt[last] * (1.0 if same_text is None else same_text)
        missing = could_by_text - self.cached[row]
        changed = same_text is not None and same_text < 1
        # What another cause took besides is not the text's.
        tolerance = max(SLACK_TOKENS, TEXT_RATIO * self.prompt[last])
        return TurnEvidence(
            is_turn=thread is not None,
            text_changed=changed and missing <= tolerance,
            other_server=self.hosts[row] != self.hosts[last]
            or self.replicas[row] != self.replicas[last],
            other_adapter=self.adapters[row] != self.adapters[last],
            cache_off=self.cached[row] == 0
            and (
                self._facts.cache_off
                or blocks.is_off
                or row in self._facts.rows_without_cache
            ),
            seen_taken=self._seen_taker(row, last) is not None,
            seen_elsewhere=self._seen_elsewhere(row, last),
            preempted=blocks.preempted_in(self._since(last, row)),
            evicted=blocks.evicts(int(self.prompt[last]), taken, kv_use),
            lone_slot_taken=self._lone_slot_taken(row, last, thread),
            before=self._tasks.get(last),
            now=self._tasks.get(row),
        )

    def _room_taken(self, row: int, last: int) -> float:
        """Of the cache of its server, the tokens in whole blocks of other requests: of those that
        had them when the turn before ended, and of those whose prompts were processed between it
        and this one. What these had cached was there before."""
        ended_ns = self.ended_ns[last]
        is_later = self._processed_ns > ended_ns
        is_between = is_later & (self._processed_ns < self._processed_ns[row])
        is_held = ~is_later & (self.ended_ns > ended_ns)
        block = self.blocks(row).block
        host = self.hosts[row]
        taken = 0.0
        for place in np.flatnonzero((is_between | is_held) & self.is_ok).tolist():
            if self.hosts[place] != host:
                continue
            tokens = np.nan_to_num(self.prompt[place])
            tokens += np.nan_to_num(self._output[place])
            if is_between[place]:
                tokens -= np.nan_to_num(self.cached[place])
            taken += np.ceil(tokens / block) * block
        return float(taken)

    def _seen_taker(self, row: int, last: int) -> int | None:
        """The last request that was seen in the slot of the turn before since, and is not of this
        conversation."""
        slot = self._seen_slots.get(last)
        if slot is None:
            return None
        takers = []
        for other, seen in self._seen_slots.items():
            if seen.slot != slot.slot or self.hosts[other] != self.hosts[row]:
                continue
            is_since = self.ended_ns[other] > self.ended_ns[last]
            if is_since and self.started_ns[other] < self.started_ns[row]:
                takers.append(other)
        if not takers:
            return None
        taker = max(takers, key=self.started_ns.__getitem__)
        own = self._threads[row]
        is_own = own is not None and self._threads[taker] == own
        return None if is_own else taker

    def _seen_elsewhere(self, row: int, last: int) -> bool:
        """Whether the slot of the turn before still showed it while this turn had another one."""
        before = self._seen_slots.get(last)
        now = self._seen_slots.get(row)
        if before is None or now is None:
            return False
        still_shown = before.until_ns >= self.started_ns[row]
        return before.slot != now.slot and still_shown

    def _ends_of_prefill(self, ttft_ms: NDArray[np.float64]) -> NDArray[np.float64]:
        """When each prompt was processed: at its first token, else at the end of its answer."""
        first_token_ns = self.started_ns + ttft_ms * NS_PER_MS
        return np.where(np.isnan(ttft_ms), self.ended_ns, first_token_ns)

    def _seen(self) -> dict[int, SeenSlot]:
        rows_of = defaultdict(list)
        if self._facts.slot_series:
            for row in range(len(self.hosts)):
                rows_of[self.hosts[row]].append(row)
        found: dict[int, SeenSlot] = {}
        requests = Requests(self.prompt, self._output, self.started_ns, self.ended_ns)
        for host, series in self._facts.slot_series.items():
            found |= seen_slots(series, rows_of[host], requests)
        return found

    def _lone_slot_taken(self, row: int, last: int, thread: Thread | None) -> bool:
        if self._facts.slots.get(self.hosts[row]) != 1:
            return False
        is_between = (self.ended_ns > self.ended_ns[last]) & (
            self.started_ns < self.started_ns[row]
        )
        at = np.flatnonzero(is_between & self.is_ok)
        host = self.hosts[row]
        return any(
            self.hosts[place] == host
            and (thread is None or self._threads[place] != thread)
            for place in at
        )

    def _matched(self) -> dict[int, SlotTask]:
        """The request in the log of each row: the same tokens and the same times, to 0.01 ms."""
        rows: dict[tuple[str | None, Timing], list[int]] = defaultdict(list)
        for row in np.argsort(self.started_ns, kind="stable").tolist():
            if np.isnan(self.processed[row]) or np.isnan(self.processed_ms[row]):
                continue
            timing = (
                int(self.processed[row]),
                f"{self.processed_ms[row]:.2f}",
                f"{self._predict_ms[row]:.2f}",
            )
            rows[self.hosts[row], timing].append(row)
        found = {}
        for host, log in self._facts.logs.items():
            for task in log.tasks:
                if task.prompt_tokens is None:
                    continue
                key = (host, (task.prompt_tokens, task.prompt_ms, task.answer_ms))
                if rows.get(key):
                    found[rows[key].pop(0)] = task
        return found


def _threads(records: Records) -> list[Thread | None]:
    """The history that each request belongs to: a conversation's, or a sub-agent's in it; None
    outside of conversations."""
    threads: list[Thread | None] = []
    names = zip(records.conversations(), records.strings("agent"), strict=True)
    for conversation, agent in names:
        thread = None if conversation is None else (conversation, agent)
        threads.append(thread)
    return threads
