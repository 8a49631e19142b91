"""What was lost: workers, and bytes of their files."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class LostWorker:
    """A worker that was lost, or one that came to its end but `gave_up` records of requests that it
    had begun."""

    worker: str
    # measured requests without a record that it may have sent
    possibly_sent: list[int] = field(default_factory=list)
    handed_on: int = 0  # unsent requests that went to other workers
    possibly_sent_warmup: list[int] = field(
        default_factory=list
    )  # as `possibly_sent`, of warm-ups
    gave_up: bool = False


@dataclass(slots=True)
class DamagedJournal:
    """A damaged file of records, which is kept."""

    file: str
    places: int  # damaged ones; 0: the disk did not take these records
    bytes: int  # unreadable
    records: int | None = None  # missing; None: unknown
