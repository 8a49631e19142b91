"""A recording: understands exchanges one by one, prints a line for each, and writes the files."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from llama_load.ground.errors import UsageError
from llama_load.ground.units import quantity
from llama_load.outside.foreign_text import printable
from llama_load.record.conversation_lines import conversation_line, request_line
from llama_load.record.digest_lines import DigestLines, PromptBlocks
from llama_load.record.earlier_prompts import EarlierPrompts, PlacedPrompt, again_tokens
from llama_load.record.exchange_keys import mask_keys
from llama_load.record.joined_conversations import Conversation, Conversations, Turn
from llama_load.record.named_lines import NamedLines
from llama_load.record.passed_exchange import PassedExchange, RelayFigures
from llama_load.record.read_exchange import (
    NotUnderstoodError,
    SeenRequest,
    read_exchange,
)
from llama_load.record.recorded_server import RecordedServer
from llama_load.record.recorded_turns import TURNS, FoundTurns, RecordedTurns
from llama_load.servers.token_blocks import PromptTokens, ServerTokens

_REQUESTS = ".requests"
_REFUSED = ".refused"
# Clients can make up any number.
MOST_REASONS = 1000
# A conversation is written when its last answer is so old, and again when it has gone on; one that
# never rests after the longer time.
REST_S = 5.0
MOST_UNSAVED_S = 60.0


@dataclass(slots=True)
class _Unsaved:
    """A conversation that has changed since it was written, from `since_s` to `last_s`."""

    conversation: Conversation
    since_s: float
    last_s: float = 0.0


def _beside(out: Path, ending: str) -> Path:
    """talk.requests.jsonl beside talk.jsonl."""
    return out.with_name(f"{out.stem}{ending}{out.suffix}")


class Recording:
    """All that is recorded, until `finish`. With `tokens` it is a trace without texts. `counter`:
    is asked where prompts differ."""

    def __init__(
        self,
        out: Path,
        say: Callable[[str], None],
        tokens: PromptTokens | None,
        server: RecordedServer | None = None,
        counter: ServerTokens | None = None,
    ) -> None:
        """UsageError: the file, or one that belongs beside it, exists or cannot be made."""
        for ending in (_REQUESTS, _REFUSED, TURNS):
            path = _beside(out, ending)
            if os.path.lexists(path):
                raise UsageError(
                    f"{path} exists; choose another --out, or move it away"
                )
        self._say = say
        self._out = out
        self._lines = NamedLines(out)
        self._others: dict[str, NamedLines] = {}
        self._unsaved: dict[int, _Unsaved] = {}
        # Of conversations in memory: why their lines are not in the file.
        self._refused: dict[int, str] = {}
        self._digest = None if tokens is None else DigestLines(tokens, 0)
        self._conversations = Conversations(keeps_texts=tokens is None)
        self._earlier = EarlierPrompts(keeps_texts=tokens is None, server=counter)
        self._server = server
        self._turns = RecordedTurns()
        self._found: FoundTurns | None = None
        self._origin_ns: int | None = None
        self._counts: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._prompt_tokens = 0
        self._cached_tokens = 0
        self._disk_is_full = False

    # ------------------------------------------------------------------ one by one

    def take(self, passed: PassedExchange) -> None:
        """Record an exchange, if it is a request to an LLM.

        What is wrong with one costs that one: the conversations of all others are in memory.
        """
        try:
            self._take(passed)
        except Exception as error:  # what a client or a server sent can be anything
            self._leave_out(passed.number, f"{type(error).__name__} as it was read")

    def _take(self, passed: PassedExchange) -> None:
        if self._origin_ns is None:
            self._origin_ns = passed.started_ns
            if self._server is not None:
                self._server.look()
            if self._digest is not None:
                self._digest.origin_ns = passed.started_ns
        if self._server is not None:
            self._server.look_at_cache()
        try:
            seen = read_exchange(passed)
        except NotUnderstoodError as error:
            self._leave_out(passed.number, str(error))
            return
        if seen is None:
            self._counts["other"] += 1
            return
        if self._digest is None:  # else nothing that could hold a key is written
            mask_keys(seen, passed.secrets)
        self._counts["requests"] += 1
        self._count_tokens(seen)
        if seen.failure:
            self._counts["failed"] += 1
            self._turns.add(seen, None)
            self._say(_request_line(seen, None, None))
            return
        self._record(seen)
        self._report_disk()

    def leave_unread(self) -> None:
        """An exchange that came too late to be read."""
        self._counts["requests"] += 1
        self._count_reason("the recording was ended before it was read")

    def _leave_out(self, number: int, why: str) -> None:
        self._counts["requests"] += 1
        self._count_reason(why)
        self._say(f"#{number}  passed on, not recorded: {why}")

    def _count_reason(self, why: str) -> None:
        """Why something is not in the file; of very many reasons the later ones have one line."""
        reason = printable(why, 200)
        if reason not in self._reasons and len(self._reasons) >= MOST_REASONS:
            reason = "other reasons"
        self._reasons[reason] += 1

    def _count_tokens(self, seen: SeenRequest) -> None:
        if seen.prompt_tokens is not None and seen.cached_tokens is not None:
            self._prompt_tokens += seen.prompt_tokens
            self._cached_tokens += seen.cached_tokens

    def _record(self, seen: SeenRequest) -> None:
        parts = self._earlier.parts(seen)
        blocks = None
        if self._digest is not None:
            blocks = self._digest.blocks(seen)
        turn = self._recorded(seen, blocks)
        place = None
        if turn is not None:
            place = self._earlier.placed(seen, parts, turn, blocks)
        self._turns.add(seen, place)
        self._say(_request_line(seen, turn, place))

    def _recorded(self, seen: SeenRequest, blocks: PromptBlocks | None) -> Turn | None:
        origin_ns = self._origin_ns or 0
        if self._digest is not None and blocks is not None:
            return self._digested(seen, self._digest, blocks)
        if seen.messages is None:
            self._add_beside(_REQUESTS, request_line(seen, origin_ns), seen.number)
            return None
        turn = self._conversations.add(seen)
        conversation = turn.conversation
        unsaved = self._unsaved.setdefault(
            conversation.number, _Unsaved(conversation, time.monotonic())
        )
        unsaved.last_s = time.monotonic()
        for each in self._conversations.too_large():
            self._forget(each)
            self._counts["early"] += 1
        return turn

    def _digested(
        self, seen: SeenRequest, digest: DigestLines, blocks: PromptBlocks
    ) -> Turn | None:
        if seen.messages is None and seen.prompt is None:
            self._count_reason(f"{seen.api}: a trace has no such requests")
            return None
        # This forgets the texts.
        turn = None if seen.messages is None else self._conversations.add(seen)
        self._lines.put(seen.number, digest.line(seen, turn, blocks))
        return turn

    def save_rested(self) -> None:
        """Write conversations that rest, or were not written for long: what comes to its end now,
        however, costs no more than what is under way."""
        now_s = time.monotonic()
        for unsaved in list(self._unsaved.values()):
            rests = now_s - unsaved.last_s >= REST_S
            if rests or now_s - unsaved.since_s >= MOST_UNSAVED_S:
                self._save(unsaved.conversation)

    def save(self) -> None:
        """Write all conversations as they are now."""
        for unsaved in list(self._unsaved.values()):
            self._save(unsaved.conversation)

    def _save(self, conversation: Conversation) -> None:
        number = conversation.number
        del self._unsaved[number]
        try:
            line, why = conversation_line(conversation, self._origin_ns or 0)
        except Exception as error:  # what a client or a server sent can be anything
            self._count_reason(f"{type(error).__name__} as it was written")
            return
        if why:
            self._refused[number] = why
            self._lines.drop(number)
            self._add_beside(_REFUSED, line, number)
            return
        if self._refused.pop(number, "") and _REFUSED in self._others:
            self._others[_REFUSED].drop(number)
        self._lines.put(number, line)

    def _forget(self, conversation: Conversation) -> None:
        """One that is not in memory any more."""
        if conversation.number in self._unsaved:
            self._save(conversation)
        why = self._refused.pop(conversation.number, "")
        if why:
            self._count_reason(why)

    def _add_beside(self, ending: str, line: dict[str, object], number: int) -> None:
        """Add a line to a file beside the recording, which is made when it is needed.

        Where it cannot be made, the line is left out, and the recording goes on.
        """
        if ending not in self._others:
            try:
                self._others[ending] = NamedLines(_beside(self._out, ending))
            except UsageError as error:
                self._count_reason(str(error))
                return
        self._others[ending].put(number, line)

    # ------------------------------------------------------------------ files

    @property
    def files(self) -> list[NamedLines]:
        """All files of this recording."""
        return [self._lines, *self._others.values()]

    def _report_disk(self) -> None:
        fault = next((file.fault for file in self.files if file.fault), "")
        if fault and not self._disk_is_full:
            self._say(
                f"{self._out}: {fault}; what is not written stays in memory and is written once "
                "there is room"
            )
        self._disk_is_full = bool(fault)

    def write_conversations(self) -> None:
        """At the end: put all conversations into the file's queue, in the order in which they
        began."""
        if self._digest is not None:
            return
        for conversation in self._conversations.all():
            self._counts["other sampling"] += conversation.other_sampling
            self._forget(conversation)
        for file in self.files:
            file.put_in_order()

    def write_turns(self) -> None:
        """At the end: find out why prompts were processed again, and put the turns into their
        file's queue."""
        self._found = self._turns.found(self._server)
        for number, line in enumerate(self._found.lines()):
            self._add_beside(TURNS, line, number)

    def write(self) -> str:
        """Write what is unwritten. Why it cannot be written, "" if it is."""
        for file in self.files:
            if not file.write():
                return f"{file.path}: {file.fault}"
        return ""

    def unwritten(self) -> int:
        """Lines that are in memory alone."""
        return sum(file.unwritten for file in self.files)

    def close(self) -> None:
        """Close the files."""
        for file in self.files:
            file.close()

    # ------------------------------------------------------------------ the summary

    def summary(self, figures: RelayFigures | None) -> list[str]:
        """What was recorded, a sentence each."""
        counts = self._counts
        requests = counts["requests"]
        conversations = self._conversations.count
        lines = [
            f"{quantity(requests, 'request')}, {counts['failed']} without a complete answer; "
            f"{quantity(conversations, 'conversation')}, {self._conversations.branches} of them "
            "begin like an earlier one and go on differently"
        ]
        if self._prompt_tokens:
            share = self._cached_tokens / self._prompt_tokens
            lines.append(
                f"Cached prompt tokens: {self._cached_tokens:,} of {self._prompt_tokens:,} "
                f"({share:.1%})"
            )
        if self._digest is not None:
            lines.append(f"Tokens of prompts come from {self._digest.source}")
        for why, count in self._reasons.most_common(5):
            lines.append(f"Not in the file, {quantity(count, 'time')}: {why}")
        if counts["other sampling"]:
            lines.append(
                f"{quantity(counts['other sampling'], 'conversation')} changed the sampling; the "
                "file has that of the first request"
            )
        if counts["early"]:
            lines.append(
                f"{quantity(counts['early'], 'conversation')} had to be written early; what came "
                "after that is a new one"
            )
        if self._found is not None:
            lines += self._found.summary()
        if figures is not None:
            lines += _of_relay(figures)
        for file in self.files:
            if file.lines:
                lines.append(f"{quantity(file.lines, 'line')} in {file.path}")
        return lines


def _of_relay(figures: RelayFigures) -> list[str]:
    lines = []
    if figures.p99_delay_ms is not None:
        lines.append(
            f"Own delay: median {figures.median_delay_ms:.3f} ms, p99 "
            f"{figures.p99_delay_ms:.3f} ms, most {figures.most_delay_ms:.3f} ms (of "
            f"{figures.pieces:,} pieces passed on)"
        )
    if figures.refused:
        lines.append(f"{quantity(figures.refused, 'request')} answered by the recorder")
    if figures.lost_cookies:
        lines.append(
            f"{quantity(figures.lost_cookies, 'cookie')} left out, which the server had not set "
            "through the recorder"
        )
    if figures.not_recorded:
        lines.append(f"{quantity(figures.not_recorded, 'exchange')} passed unrecorded")
    return lines


def _request_line(
    seen: SeenRequest, turn: Turn | None, place: PlacedPrompt | None
) -> str:
    """The line of a request."""
    parts = [f"#{seen.number}", seen.api, str(seen.status or "no answer")]
    if turn is not None:
        parts.append(f"c{turn.conversation.number} turn {turn.number}")
    if seen.prompt_tokens is not None:
        cached = "" if seen.cached_tokens is None else f" ({seen.cached_tokens} cached)"
        parts.append(f"prompt {seen.prompt_tokens}{cached}")
    if place is not None:
        parts += _again(seen, place)
    if seen.output_tokens is not None:
        parts.append(f"answer {seen.output_tokens}")
    if seen.ttft_ms is not None:
        parts.append(f"TTFT {seen.ttft_ms:.1f} ms")
    if seen.tpot_ms is not None:
        parts.append(f"TPOT {seen.tpot_ms:.2f} ms")
    parts.append(f"own delay {seen.delay_ms:.2f} ms")
    if seen.failure:
        parts.append(seen.failure)
    return "  ".join(parts)


def _again(seen: SeenRequest, place: PlacedPrompt) -> list[str]:
    """How many tokens were processed again, and where the text had changed."""
    lost = again_tokens(seen, place)
    if not lost:
        return []
    if place.changed_in is None:
        return [f"{lost} processed again"]
    at = "" if place.token is None else f", {place.token}"
    return [f"{lost} processed again: changed in {place.changed_in}{at}"]
