"""Flaws of time: a server that is not the same all the time."""

from __future__ import annotations

from benchmarks.flaw_search.answers import Answer
from benchmarks.flaw_search.effect import Effect


class Slower(Effect):
    """All work takes `size` times as long in a part of the run."""

    checks = ("changed_ratio", "cold_start_ratio", "backlog_ratio")
    sizes = (1.3, 2.0, 4.0)
    in_part = True

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if self.hits(answer.ask):
            answer.prefill_ns = round(answer.prefill_ns * self.size)
            answer.gaps_ns = answer.gaps_ns * self.size


TIME_FLAWS: dict[str, type[Effect]] = {
    "slower": Slower,
}
