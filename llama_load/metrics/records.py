"""Records as columns, for metrics over many requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from llama_load.record import CANCELLED, OK

if TYPE_CHECKING:
    import pyarrow as pa


BATCH = 1000


class Records:
    """A table of request records (the columns of requests.parquet), read column by column as numpy arrays."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def numbers(self, name: str) -> NDArray[np.float64]:
        """A numeric column as float64, NaN where it was not measured.

        Integers over 2^53 are rounded. Instants are that large on a machine that has been up for 104 days: use `instants` and
        `has` for them.
        """
        return np.asarray(self.table[name].cast("float64", safe=False).to_numpy(), dtype=np.float64)

    def has(self, name: str) -> NDArray[np.bool_]:
        """One bool per row: whether the column has a value."""
        return np.asarray(self.table[name].is_valid().to_numpy(), dtype=np.bool_)

    def instants(self, name: str) -> NDArray[np.int64]:
        """A column of instants in ns, without empty rows."""
        return np.asarray(self.table[name].drop_null().to_numpy(), dtype=np.int64)

    def optional_instants(self, name: str) -> NDArray[np.int64]:
        """A column of instants in ns, one per row, -1 where there is none."""
        import pyarrow.compute as pc

        return np.asarray(pc.fill_null(self.table[name], -1).to_numpy(), dtype=np.int64)

    def strings(self, name: str) -> list[Any]:
        """A text column as a list, None where there is none."""
        return list(self.table[name].to_pylist())

    def where(self, mask: NDArray[np.bool_]) -> Records:
        """The rows where `mask` (one bool per row) is true."""
        import pyarrow as pa

        return self if mask.all() else Records(self.table.filter(pa.array(mask)))

    def equals(self, name: str, value: object) -> NDArray[np.bool_]:
        """One bool per row: whether the column has this value."""
        import pyarrow.compute as pc

        return np.asarray(pc.fill_null(pc.equal(self.table[name], value), False).to_numpy(), dtype=np.bool_)

    def measured(self) -> Records:
        """Without the warm-up."""
        return self.where(~self.equals("warmup", True))

    def ok(self) -> Records:
        """The requests with a valid, complete answer."""
        return self.where(self.equals("status", OK))

    def cancelled(self) -> Records:
        """The requests that were in flight when the run was cut."""
        return self.where(self.equals("status", CANCELLED))

    def failed(self) -> Records:
        """The requests that neither succeeded nor were cancelled."""
        return self.where(self.is_failed())

    def is_failed(self) -> NDArray[np.bool_]:
        """One bool per row: whether the request neither succeeded nor was cancelled."""
        return ~self.equals("status", OK) & ~self.equals("status", CANCELLED)

    def gaps_ms(self) -> NDArray[np.float64]:
        """All inter-token latencies, pooled over the rows, ms."""
        pieces = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in self.table["itl_ms"].chunks]
        return np.concatenate(pieces, dtype=np.float64) if pieces else np.zeros(0)

    def batches(self) -> Iterator[Records]:
        """The rows in order, in batches: for computations that need much memory per token."""
        for start in range(0, len(self), BATCH):
            yield Records(self.table.slice(start, BATCH))

    def values_of(self, name: str) -> list[Any]:
        """The distinct values of a column, in order of appearance."""
        return [value for value in self.table[name].unique().to_pylist() if value is not None]
