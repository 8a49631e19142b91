"""The requests of a process that were begun and whose records are not stored: those given up at the
end are named by it."""

from __future__ import annotations

from collections.abc import Iterable

from llama_load.loadgen.dispatch.leases import Key
from llama_load.run_folder.observed.record import RequestRecord


class OpenRequests:
    """Begun - given back - stored.

    A key is in it from `LeaseClient`'s word that a user begins to send, until its record is where
    the run keeps records."""

    def __init__(self) -> None:
        self._keys: set[Key] = set()

    def begun(self, key: Key) -> None:
        """A user begins to send this request."""
        self._keys.add(key)

    def given_back(self, keys: Iterable[Key]) -> None:
        """Nothing was sent for these leases."""
        self._keys.difference_update(keys)

    def stored(self, records: Iterable[RequestRecord]) -> None:
        """These records are in the run's folder, or on their way to the master in a numbered
        batch."""
        self._keys.difference_update(key_of(record) for record in records)

    def __len__(self) -> int:
        return len(self._keys)

    def keys(self) -> list[Key]:
        """All of them, in order."""
        return sorted(self._keys)


def key_of(record: RequestRecord) -> Key:
    """The key of the lease that this record is of."""
    index = -1 if record.prompt_index is None else record.prompt_index
    return record.warmup, index
