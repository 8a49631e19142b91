"""Flaws on the way: gateways and proxies that hold, merge, invent or lose events."""

from __future__ import annotations

from benchmarks.flaw_search.answers import Answer
from benchmarks.flaw_search.effect import Effect, Reads

MS = 1_000_000


class Buffered(Effect):
    """A proxy writes an answer in lumps of `size` events."""

    checks = ("buffered_ratio", "merged_ratio", "first_merged_shift")
    sizes = (5.0, 20.0, 1000.0)
    shares = (1.0, 0.5)

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
    """The first token comes after `size` of the time that the server needs for it, from a gateway that guesses it."""

    checks = ("early_first_ratio", "two_groups")
    sizes = (0.04, 0.4, 0.7)
    shares = (1.0, 0.4)

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        if self.hits(answer.ask):
            first = answer.pieces[0]
            first.at_ns = answer.start_ns + MS + round(self.size * (first.at_ns - answer.start_ns))


GATEWAY_FLAWS: dict[str, type[Effect]] = {
    "buffered": Buffered,
    "early_first": EarlyFirst,
}
