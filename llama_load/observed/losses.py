"""What was lost: workers, and bytes of their files."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class LostWorker:
    """A worker that was lost. `possibly_sent`: measured requests without a record that it may have sent;
    `possibly_sent_warmup`: those of warm-ups; `handed_on`: how many unsent requests went to other workers."""

    worker: str
    possibly_sent: list[int] = field(default_factory=list)
    handed_on: int = 0
    possibly_sent_warmup: list[int] = field(default_factory=list)


@dataclass(slots=True)
class DamagedJournal:
    """A damaged file of records, which is kept: damaged places, unreadable bytes, and missing records (None: unknown). Without a
    damaged place: the disk did not take these records."""

    file: str
    places: int
    bytes: int
    records: int | None = None
