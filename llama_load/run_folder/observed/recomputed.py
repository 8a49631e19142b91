"""The latencies of records, computed again from their instants: what a file says of them is not
trusted."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from llama_load.ground.units import NS_PER_MS, quantity
from llama_load.run_folder.observed.record import OK
from llama_load.run_folder.observed.records import Records

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

# Instants are whole ns and latencies floats of them: only a rounding of the last digits can differ.
RELATIVE = 1e-9
ABSOLUTE_MS = 1e-6
# Gaps are stored as float32: their sum is exact to this share, and to a µs.
GAP_SHARE = 1e-5
GAP_MS = 1e-3


def recomputed(records: Records) -> tuple[Records, list[str]]:
    """The records with the latencies that their instants give, and a sentence for each column that
    had other values."""
    import pyarrow as pa

    columns: dict[str, pa.Array] = {}
    differences = []
    for name, values in _latencies(records):
        stored = records.numbers(name)
        rows = _differ(stored, values)
        if rows.any():
            right = np.where(rows, values, stored)
            columns[name] = pa.array(right, from_pandas=True)
            requests = quantity(int(rows.sum()), "request")
            differences.append(f"{name} of {requests} is not what the timestamps give")
    wrong_gaps = _wrong_gaps(records)
    if wrong_gaps:
        differences.append(
            f"the gaps of {quantity(wrong_gaps, 'request')} do not fill the time between the "
            "first and the last token"
        )
    if columns:
        records = records.with_columns(columns)
    return records, differences


def _latencies(records: Records) -> Iterator[tuple[str, Floats]]:
    """Each latency that two instants give, ms, for the records that have it; NaN elsewhere. The
    formulas are those of `run_folder.arithmetic.latencies`."""
    is_ok = records.equals("status", OK)
    is_streamed = records.has("first_token_mono_ns")
    last = np.where(
        is_streamed,
        records.optional_instants("last_token_mono_ns"),
        records.optional_instants("ended_mono_ns"),
    )
    e2el = (last - records.optional_instants("started_mono_ns")) / NS_PER_MS
    yield "ttft_ms", _between(records, "started_mono_ns", "first_token_mono_ns", is_ok)
    yield (
        "answer_ttft_ms",
        _between(records, "started_mono_ns", "first_answer_mono_ns", is_ok),
    )
    has_e2el = is_ok & records.has("e2el_ms")
    yield "e2el_ms", np.where(has_e2el, e2el, np.nan)
    every = np.ones(len(records), dtype=np.bool_)
    yield (
        "client_queue_ms",
        _between(records, "scheduled_mono_ns", "started_mono_ns", every),
    )


def _between(records: Records, start: str, end: str, rows: Bools) -> Floats:
    """The time between two instants, ms; NaN where one is missing, and in other rows."""
    has_both = records.has(start) & records.has(end)
    known = rows & has_both
    took_ms = (
        records.optional_instants(end) - records.optional_instants(start)
    ) / NS_PER_MS
    return np.where(known, took_ms, np.nan)


def _differ(stored: Floats, values: Floats) -> Bools:
    """Where two columns differ by more than rounding, or only one of them has a value."""
    is_close = np.isclose(
        stored, values, rtol=RELATIVE, atol=ABSOLUTE_MS, equal_nan=True
    )
    return np.asarray(~is_close, dtype=np.bool_)


def _wrong_gaps(records: Records) -> int:
    """How many streamed answers have gaps whose sum is not the time from the first to the last
    token event."""
    wrong = 0
    for batch in records.batches(
        "itl_ms", "status", "first_token_mono_ns", "last_token_mono_ns"
    ):
        sizes, gaps = batch.lists("itl_ms")
        rows = (
            batch.equals("status", OK)
            & batch.has("first_token_mono_ns")
            & batch.has("last_token_mono_ns")
        )
        ends = np.cumsum(sizes)
        sums = np.cumsum(gaps, dtype=np.float64)
        summed = np.concatenate(([0.0], sums))
        of_each = summed[ends] - summed[ends - sizes]
        took_ms = (
            batch.optional_instants("last_token_mono_ns")
            - batch.optional_instants("first_token_mono_ns")
        ) / NS_PER_MS
        allowed_ms = GAP_MS + GAP_SHARE * np.abs(took_ms)
        is_off = np.abs(of_each - took_ms) > allowed_ms
        wrong += int((rows & is_off).sum())
    return wrong
