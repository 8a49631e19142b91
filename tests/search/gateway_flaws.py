"""Flaws on the way: gateways and proxies that hold, merge, invent, repeat or lose."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from llama_load.run_folder.observed.server_counters import ServerCounters
from tests.search.answers import Answer
from tests.search.cache_flaws import GROUPS
from tests.search.case import LLAMA_SERVER, VLLM, Case, Change
from tests.search.count_flaws import OUTPUT_COUNTS
from tests.search.effect import Effect, Reads

MS = 1_000_000
BUFFERING = ("buffered_ratio", "merged_ratio", "first_merged_shift", "tokens_per_event")


class Buffered(Effect):
    """A proxy writes an answer in lumps of `size` events."""

    checks = BUFFERING
    sizes = (2.0, 5.0, 20.0, 1000.0)
    shares = (1.0, 0.3)

    def read(self, answer: Answer, reads: Reads) -> Reads:
        """See `Effect.read`."""
        if not self.hits(answer.ask):
            return reads
        lumps = []
        size = round(self.size)
        for begin in range(1, len(reads), size):
            lump = reads[begin : begin + size]
            lumps.append((lump[-1][0], b"".join(data for _, data in lump)))
        return [reads[0], *lumps]


class EarlyFirst(Effect):
    """The first token comes after `size` of the time that the server needs for it, from a gateway
    that guesses it."""

    checks = ("early_first_ratio", *GROUPS)
    sizes = (0.04, 0.25, 0.4)
    shares = (1.0, 0.4)

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        if self.hits(answer.ask):
            first = answer.pieces[0]
            first.at_ns = (
                answer.start_ns
                + MS
                + round(self.size * (first.at_ns - answer.start_ns))
            )


class HeldBack(Effect):
    """A guardrail reads the first `size` of an answer before it lets it go, all at once."""

    checks = (*BUFFERING, "held_back_ratio", *GROUPS)
    sizes = (0.2, 0.6)
    shares = (1.0, 0.3)

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        if self.hits(answer.ask):
            held = max(2, round(self.size * len(answer.pieces)))
            until_ns = answer.pieces[held - 1].at_ns
            for place, piece in enumerate(answer.pieces[:held]):
                piece.at_ns = until_ns + 20_000 * place


class Doubled(Effect):
    """Every event is sent twice."""

    is_form = True
    checks = OUTPUT_COUNTS
    shares = (1.0, 0.2)

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        if self.hits(answer.ask):
            pieces = []
            for piece in answer.pieces:
                pieces += [piece, replace(piece, at_ns=piece.at_ns + 3 * MS)]
            answer.pieces = pieces
            answer.tail_ns += 4 * MS


class Lost(Effect):
    """`size` of the events are lost; usage is the server's."""

    is_form = True
    checks = OUTPUT_COUNTS
    sizes = (0.08, 0.3)
    shares = (1.0, 0.3)

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        if self.hits(answer.ask):
            is_kept = self.rng(answer.ask).random(len(answer.pieces)) >= self.size
            is_kept[0] = is_kept[-1] = True
            answer.pieces = [
                piece
                for piece, kept in zip(answer.pieces, is_kept, strict=True)
                if kept
            ]


class FarAway(Effect):
    """A proxy keeps every event for `size` times the time that the server takes for the prompt."""

    checks = ("unexplained_ratio",)
    sizes = (1.0, 10.0)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Only llama-server reports its own times."""
        return case.server == LLAMA_SERVER

    def read(self, answer: Answer, reads: Reads) -> Reads:
        """See `Effect.read`."""
        later_ns = round(self.size * answer.server_prompt_ms * MS)
        return [reads[0], *((at_ns + later_ns, data) for at_ns, data in reads[1:])]


class Flushed(Effect):
    """A gateway writes what has come every `size` ms."""

    checks = (*BUFFERING, "early_first_ratio")
    sizes = (50.0, 300.0)

    def read(self, answer: Answer, reads: Reads) -> Reads:
        """See `Effect.read`."""
        step_ns = round(self.size * MS)
        lumps: dict[int, bytes] = {}
        for at_ns, data in reads:
            flushed_ns = -(-at_ns // step_ns) * step_ns
            lumps[flushed_ns] = lumps.get(flushed_ns, b"") + data
        return list(lumps.items())


class Paced(Effect):
    """A gateway sends at an even pace, `size` times as slow as the server."""

    checks = ("stretched_stream_ratio", "unexplained_ratio")
    sizes = (1.5, 3.0)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Only llama-server reports its own times."""
        return case.server == LLAMA_SERVER

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        first_ns = answer.pieces[0].at_ns
        pace_ns = self.size * self.case.gap_ms * MS
        for place, piece in enumerate(answer.pieces):
            piece.at_ns = max(piece.at_ns, first_ns + round(place * pace_ns))
        answer.tail_ns = answer.pieces[-1].at_ns + MS // 10


class Deadline(Effect):
    """A gateway ends answers after `size` times the usual time, with finish_reason "stop"."""

    checks = ("clipped_answer_ratio", "short_answer_ratio")
    sizes = (0.5, 1.0)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Answers of different lengths, in a load without queue."""
        return case.output_law in ("lognormal", "uniform") and case.output_tokens >= 30

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        limit_ns = self.size * self.case.gap_ms * MS * self.case.output_tokens
        ends_ns = np.cumsum(answer.gaps_ns)
        kept = 1 + int(np.searchsorted(ends_ns, limit_ns))
        answer.words = answer.words[: max(2, kept)]


class Retried(Effect):
    """A gateway waits `size` s for a server that does not answer, and sends some requests again."""

    checks = ("other_client_ratio", "changed_ratio", *GROUPS)
    sizes = (1.0, 5.0)
    shares = (0.05, 0.2)

    def __init__(self, change: Change, case: Case) -> None:
        super().__init__(change, case)
        self.retried = 0

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Where vLLM's counters show it."""
        return case.server == VLLM

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if self.hits(answer.ask):
            answer.unseen_ns += round(self.size * 1000 * MS)
            answer.begin_ns += round(self.size * 1000 * MS)
            self.retried += 1

    def count(self, counters: ServerCounters) -> ServerCounters:
        """See `Effect.count`."""
        return replace(counters, requests=(counters.requests or 0) + self.retried)


class Busy(Effect):
    """Some requests are refused at once, with status 503."""

    checks = ("failure_ratio", "failed_shift", "failure_burst_ratio")
    shares = (0.02, 0.1)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if self.hits(answer.ask):
            answer.status = 503
            answer.prefill_ns = MS
            answer.words, answer.gaps_ns = answer.words[:1], answer.gaps_ns[:0]


class CutOff(Effect):
    """Some answers end in the middle, without finish_reason: their connections are closed."""

    checks = ("failure_ratio", "failed_shift", "failure_burst_ratio")
    shares = (0.02, 0.1)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if self.hits(answer.ask):
            answer.words = answer.words[: max(2, len(answer.words) // 2)]
            answer.is_cut_off = True


class Clipped(Effect):
    """Answers are clipped to `size` of max_tokens, with finish_reason "length"."""

    checks = ("short_answer_ratio", "clipped_answer_ratio")
    sizes = (0.3, 0.7)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Where all answers end by length."""
        return case.output_law == "fixed" and case.output_tokens >= 30

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        answer.words = answer.words[: round(self.size * self.case.output_tokens)]


class LimitIgnored(Effect):
    """Answers are longer than max_tokens, by `size`."""

    checks = ("long_answer_ratio", "unbelievable_counts", "count_gap_ratio")
    sizes = (1.3, 2.0)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Where all answers end by length."""
        return case.output_law == "fixed"

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        more = round((self.size - 1) * len(answer.words))
        answer.words = answer.words + answer.words[:more]
        rest = self.rng(answer.ask).choice(answer.gaps_ns, more)
        answer.gaps_ns = np.concatenate([answer.gaps_ns, rest])


class PromptsCut(Effect):
    """Prompts are cut to `size` of their mean length, and counted so."""

    checks = ("shortened_prompt_ratio",)
    sizes = (0.2, 0.6)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Prompts of enough tokens."""
        return case.prompt_tokens >= 100

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        kept = round(self.size * self.case.prompt_tokens)
        if answer.prompt_tokens > kept:
            saved_ms = (
                (answer.prompt_tokens - kept)
                * self.case.prefill_token_ms
                * answer.ask.prefill_factor
            )
            answer.prefill_ns -= round(saved_ms * MS)
            answer.prompt_tokens = kept


GATEWAY_FLAWS: dict[str, type[Effect]] = {
    "buffered": Buffered,
    "early first token": EarlyFirst,
    "beginning held back": HeldBack,
    "events doubled": Doubled,
    "events lost": Lost,
    "far away": FarAway,
    "flushed": Flushed,
    "paced": Paced,
    "deadline": Deadline,
    "retried": Retried,
    "busy": Busy,
    "cut off": CutOff,
    "clipped": Clipped,
    "limit ignored": LimitIgnored,
    "prompts cut": PromptsCut,
}
