"""Records as columns, for metrics over many requests."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from llama_load.run_folder.observed.record import ABORTED, CANCELLED, OK

if TYPE_CHECKING:
    import pyarrow as pa

Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]

BATCH = 1000
# Of so many rows, what was read is kept: an analysis reads each column six times. Of more, the
# columns would take as much memory as the table.
MOST_KEPT_ROWS = 5000

Method = TypeVar("Method", bound=Callable[..., Any])

# Which conversation of a run: its workload, whether the warm-up sent it (whose prompts are counted
# on their own), and the number of its first prompt.
ConversationKey = tuple[str, bool, int]


def _kept(read: Method) -> Method:
    """A method of few records that reads the table once for the same arguments. Each caller gets
    its own copy."""

    @functools.wraps(read)
    def kept(records: Records, *asked: Hashable, **named: Hashable) -> Any:
        if len(records) > MOST_KEPT_ROWS:
            return read(records, *asked, **named)
        key = (read.__name__, *asked, *named.items())
        if key not in records._kept:
            records._kept[key] = read(records, *asked, **named)
        return copy.copy(records._kept[key])

    return cast(Method, kept)


class Records:
    """A table of request records (the columns of requests.parquet), read column by column as numpy
    arrays.

    A choice of rows is a mask over the whole table, applied to a column when it is read: a copy of
    the chosen rows would hold all inter-token latencies once more.
    """

    def __init__(self, table: pa.Table, chosen: Bools | None = None) -> None:
        self._whole = table
        self._chosen = chosen
        self._rows = int(table.num_rows)
        if chosen is not None:
            self._rows = int(chosen.sum())
        self._kept: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        return self._rows

    @property
    def table(self) -> pa.Table:
        """All columns, copied if these are not all rows: for few rows only."""
        return self.select(self._whole.column_names)

    def select(self, names: Sequence[str]) -> pa.Table:
        """Some columns."""
        import pyarrow as pa

        table = self._whole.select(names)
        if self._chosen is None:
            return table
        return table.filter(pa.array(self._chosen))

    def column(self, name: str) -> pa.ChunkedArray:
        """One column."""
        import pyarrow as pa

        column = self._whole[name]
        if self._chosen is None:
            return column
        return column.filter(pa.array(self._chosen))

    def with_columns(self, columns: Mapping[str, pa.Array]) -> Records:
        """All rows with other values in some columns, which keep their types. For all rows only."""
        table = self.table
        for name, values in columns.items():
            place = table.schema.get_field_index(name)
            field = table.schema.field(place)
            table = table.set_column(place, field, values.cast(field.type))
        return Records(table)

    def take(self, rows: Integers, columns: Sequence[str] | None = None) -> Records:
        """These rows, in this order: a few thousand at most, with all columns or with these, which
        takes less time. (Arrow's own `take` first copies all gaps into one piece.)"""
        import pyarrow as pa

        places = rows
        if self._chosen is not None:
            places = np.flatnonzero(self._chosen)[rows]

        whole = self._whole if columns is None else self._whole.select(columns)
        pieces = [whole.slice(0, 0)]
        for place in places:
            pieces.append(whole.slice(int(place), 1))
        return Records(pa.concat_tables(pieces))

    @_kept
    def numbers(self, name: str) -> NDArray[np.float64]:
        """A numeric column as float64, NaN where it was not measured.

        Integers over 2^53 are rounded. Instants are that large on a machine that has been up for
        104 days: use `instants` and `has` for them.
        """
        column = self.column(name).cast("float64", safe=False)
        return np.asarray(column.to_numpy(), dtype=np.float64)

    def total(self, name: str) -> int | None:
        """The sum of a column of whole numbers; None where one is unknown, because a partial sum is
        no total."""
        values = self.numbers(name)
        if np.isnan(values).any():
            return None
        return int(values.sum())

    @_kept
    def has(self, name: str) -> Bools:
        """One bool per row: whether the column has a value."""
        has_value = self.column(name).is_valid()
        return np.asarray(has_value.to_numpy(), dtype=np.bool_)

    @_kept
    def instants(self, name: str) -> Integers:
        """A column of instants in ns, without empty rows."""
        known = self.column(name).drop_null()
        return np.asarray(known.to_numpy(), dtype=np.int64)

    @_kept
    def optional_instants(self, name: str) -> Integers:
        """A column of instants in ns, one per row, -1 where there is none."""
        import pyarrow.compute as pc

        column = pc.fill_null(self.column(name), -1)
        return np.asarray(column.to_numpy(), dtype=np.int64)

    @_kept
    def strings(self, name: str) -> list[Any]:
        """A text column as a list, None where there is none. Equal texts are one object: a host
        takes 8 bytes a row, not 80."""
        import pyarrow.compute as pc

        column = self.column(name).combine_chunks().dictionary_encode()
        texts = column.dictionary.to_pylist()
        values = np.array([*texts, None], dtype=object)
        none = len(values) - 1
        places = pc.fill_null(column.indices, none).to_numpy(zero_copy_only=False)
        return list(values[places])

    def conversations(self) -> list[ConversationKey | None]:
        """The conversation of each row; None where the request is of none."""
        warmup = self.equals("warmup", True).tolist()
        keys: list[ConversationKey | None] = []
        for workload, is_warmup, start in zip(
            self.strings("workload"),
            warmup,
            self.strings("conversation_start"),
            strict=True,
        ):
            key = None if start is None else (workload, is_warmup, start)
            keys.append(key)
        return keys

    def lists(self, name: str) -> tuple[Integers, NDArray[Any]]:
        """A list column: how many values each row has (0 where it has no list), and all values, row
        after row."""
        column = self.column(name).combine_chunks()
        lengths = column.value_lengths().to_numpy(zero_copy_only=False)
        sizes = np.asarray(lengths, dtype=np.float64)  # NaN where there is no list
        values = column.flatten().to_numpy(zero_copy_only=False)
        return np.nan_to_num(sizes).astype(np.int64), np.asarray(values)

    def where(self, mask: Bools) -> Records:
        """The rows where `mask` (one bool per row) is true."""
        if mask.all():
            return self
        chosen = mask
        if self._chosen is not None:
            chosen = self._chosen.copy()
            chosen[self._chosen] = mask
        return Records(self._whole, chosen)

    @_kept
    def equals(self, name: str, value: object) -> Bools:
        """One bool per row: whether the column has this value."""
        import pyarrow.compute as pc

        is_equal = pc.equal(self.column(name), value)
        is_equal = pc.fill_null(is_equal, False)
        return np.asarray(is_equal.to_numpy(), dtype=np.bool_)

    @_kept
    def measured(self) -> Records:
        """Without the warm-up."""
        return self.where(~self.equals("warmup", True))

    @_kept
    def ok(self) -> Records:
        """The requests with a valid, complete answer."""
        return self.where(self.equals("status", OK))

    def cancelled(self) -> Records:
        """The requests that were in flight when the run was cut."""
        return self.where(self.equals("status", CANCELLED))

    def aborted(self) -> Records:
        """The requests whose users hung up."""
        return self.where(self.equals("status", ABORTED))

    def failed(self) -> Records:
        """The requests that neither succeeded nor were cancelled or aborted."""
        return self.where(self.is_failed())

    def is_failed(self) -> Bools:
        """One bool per row: whether the request neither succeeded nor was cancelled or aborted."""
        return ~(
            self.equals("status", OK)
            | self.equals("status", CANCELLED)
            | self.equals("status", ABORTED)
        )

    def gap_pieces(self) -> Iterator[NDArray[np.float32]]:
        """All inter-token latencies, pooled over the rows, ms, in pieces."""
        for batch in self.batches("itl_ms"):
            for chunk in batch.column("itl_ms").chunks:
                yield chunk.flatten().to_numpy(zero_copy_only=False)

    def batches(self, *names: str) -> Iterator[Records]:
        """The rows in order, in batches: for computations that need much memory per token. `names`:
        the columns that are needed (none: all; then a batch takes 0.2 ms where the table consists
        of 200 pieces)."""
        table = self._whole.select(names) if names else self._whole
        for start in range(0, table.num_rows, BATCH):
            part = table.slice(start, BATCH)
            if self._chosen is None:
                yield Records(part)
                continue

            chosen = self._chosen[start : start + BATCH]
            if chosen.all():
                yield Records(part)
            elif chosen.any():
                yield Records(part, chosen)

    def values_of(self, name: str) -> list[Any]:
        """The distinct values of a column, in order of appearance."""
        distinct = []
        for value in self.column(name).unique().to_pylist():
            if value is not None:
                distinct.append(value)
        return distinct
