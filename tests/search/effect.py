"""What a change does to a run: the base of all effects."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar
from zlib import crc32

import numpy as np

from llama_load.run_folder import Manifest
from llama_load.run_folder.observed.server_counters import ServerCounters
from tests.search.answers import Answer
from tests.search.asks import DRAWS, Ask
from tests.search.case import Case, Change

# When a run begins, virtual ns.
BEGIN_NS = 10**12
Reads = list[tuple[int, bytes]]


class Effect:
    """One change in one simulated run. Subclasses say what it does at the server (`serve`), on the
    way (`send`), at the client (`read`, `start_delay_ns`), to the server's counters and to what the
    run notes of itself.

    `checks` name it rightly; those of an oddity (`is_flaw` False) are tolerated. `sizes` and
    `shares` are what a seed draws from; `in_part`: it may begin or end within the run.
    """

    is_flaw: ClassVar[bool] = True
    checks: ClassVar[tuple[str, ...]] = ()
    sizes: ClassVar[tuple[float, ...]] = (1.0,)
    shares: ClassVar[tuple[float, ...]] = (1.0,)
    in_part: ClassVar[bool] = False
    # it changes which tokens have which events; one of these to a case
    is_form: ClassVar[bool] = False
    # of a flaw: the API works like that, and the truth with it
    in_truth: ClassVar[bool] = False
    # reads no longer hold whole events after it, so it comes after all other changes of reads
    cuts_reads: ClassVar[bool] = False

    def __init__(self, change: Change, case: Case) -> None:
        self.change = change
        self.case = case
        self.size = change.size
        self.number = crc32(change.name.encode()) % DRAWS

    @classmethod
    def is_in_truth(cls) -> bool:
        """Whether it is also made to the run that is the truth."""
        return cls.in_truth or not cls.is_flaw

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Whether this change can be made to such a case."""
        return True

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """The case with what this change wants of the workload or of the server."""
        return case

    def hits(self, ask: Ask) -> bool:
        """Whether this request is one of those that it changes."""
        is_then = self.change.begins <= ask.place < self.change.ends
        return bool(is_then and ask.draws[self.number] < self.change.share)

    def rng(self, ask: Ask) -> np.random.Generator:
        """Random numbers for this request."""
        return np.random.default_rng((self.case.seed, ask.index, self.number))

    def serve(self, answer: Answer) -> None:
        """Change what the server does, before its instants are known."""

    def send(self, answer: Answer) -> None:
        """Change what is sent of the answer."""

    def read(self, answer: Answer, reads: Reads) -> Reads:
        """Change what the client reads, and when."""
        return reads

    def start_delay_ns(self, ask: Ask, ready_ns: int) -> int:
        """How late the client sends a request that is ready."""
        return 0

    def pause_ns(self, ask: Ask) -> int:
        """How long a user of a closed loop waits after the answer to this request."""
        return 0

    def count(self, counters: ServerCounters) -> ServerCounters:
        """Change the server's counters."""
        return counters

    def keeps(self, answer: Answer) -> bool:
        """Whether the answer's record is kept."""
        return True

    def note(self, manifest: Manifest) -> None:
        """Change what the run notes of itself."""


def with_case(case: Case, **changed: object) -> Case:
    """The case with other fields."""
    return replace(case, **changed)  # type: ignore[arg-type]
