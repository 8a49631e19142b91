"""telemetry.parquet, and the file of samples that it is made of when a run ends.

    telemetry.jsonl     written by the sampler while the run goes on; lines of JSON, each an array
                        that begins with its kind:
                        ["series", number, source, metric, {label: value}]   before the first sample
                                                                             of a series
                        ["values", instant, [number, value, number, value, …]]
                        ["note", sentence]
    telemetry.parquet   source, metric, labels (a JSON object), t (ns, the master's monotonic
                        clock), value; the notes as JSON in the schema's metadata under "llama_load"

Both are bounded, and whatever is damaged in them is left out with a note: a run does not fail for
its telemetry.
"""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from llama_load.outside.foreign_files import open_foreign
from llama_load.outside.foreign_json import decode_foreign
from llama_load.outside.foreign_text import printable
from llama_load.run_folder.foreign_tables import TableLimits, open_table
from llama_load.run_folder.observed.telemetry_series import Series, Telemetry
from llama_load.run_folder.whole_file import whole_file

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLES = "telemetry.jsonl"
TELEMETRY = "telemetry.parquet"
METADATA = b"llama_load"
# The sampler stops writing far below these.
MOST_LINE_BYTES = 4 << 20
MOST_SAMPLES = 16_000_000
# A sample takes fewer than 30 bytes.
MOST_SAMPLES_BYTES = 1 << 30
LIMITS = TableLimits(cells=5 * MOST_SAMPLES, decoded_bytes=2 << 30)
MOST_SERIES = 20_000
MOST_NOTES = 200
MOST_LABELS = 64
MOST_CHARS = 300
MOST_INSTANT = 2**62
# What a line raises that is no sample of ours; msgspec's errors are ValueErrors.
_DAMAGES = (ValueError, TypeError, IndexError, KeyError, OverflowError, RecursionError)


@dataclass(slots=True)
class _Columns:
    source: str
    metric: str
    labels: dict[str, str]
    t_ns: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))


def load_telemetry(folder: Path) -> Telemetry:
    """The series of a run folder, finished or not; empty without telemetry. Raises nothing: faults
    of the file are notes."""
    try:
        if (folder / TELEMETRY).is_file():
            return _read_table(folder / TELEMETRY)
        if (folder / SAMPLES).is_file():
            return read_samples(folder / SAMPLES)
    except OSError as error:
        return Telemetry(
            notes=[f"the telemetry cannot be read: {error.strerror or error}"]
        )
    except ValueError as error:  # ArrowInvalid is one
        return Telemetry(
            notes=[f"the telemetry cannot be read: {printable(str(error))}"]
        )
    return Telemetry()


def write_telemetry(folder: Path) -> Telemetry:
    """Turn the samples into telemetry.parquet, and return its series. Raises OSError; the samples
    are kept then."""
    import pyarrow.parquet as pq

    telemetry = load_telemetry(folder)
    if (folder / SAMPLES).is_file():
        if not (folder / TELEMETRY).is_file():
            with whole_file(folder / TELEMETRY) as file:
                pq.write_table(
                    _table(telemetry),
                    file,
                    compression="zstd",
                    write_page_checksum=True,
                )
        (folder / SAMPLES).unlink(missing_ok=True)
    return telemetry


# ---------------------------------------------------------------------- samples


def read_samples(file: Path) -> Telemetry:
    """The series of a file of samples. Lines that are no samples of ours, such as the last one
    after a crash, are left out."""
    series: dict[int, _Columns] = {}
    notes: list[str] = []
    left = MOST_SAMPLES
    bad = 0
    with open_foreign(file, MOST_SAMPLES_BYTES, inside=file.parent) as lines:
        while line := lines.readline(MOST_LINE_BYTES):
            try:
                left -= _add_line(decode_foreign(line, list), series, notes)
            except _DAMAGES:
                bad += 1
            if left <= 0:
                notes.append(
                    f"the telemetry has more than {MOST_SAMPLES} samples; the rest was left out"
                )
                break
    if bad > 1:  # one is the line that was being written when the run was killed
        notes.append(f"{bad} damaged lines of telemetry were left out")

    known = []
    for own in series.values():
        t_ns = np.array(own.t_ns, np.int64)
        values = np.array(own.values, np.float64)
        whole = _series(own.source, own.metric, own.labels, t_ns, values)
        if whole is not None:
            known.append(whole)
    return Telemetry(known, notes[:MOST_NOTES])


def _add_line(line: list[Any], series: dict[int, _Columns], notes: list[str]) -> int:
    """Add what is in one line to the series or notes; return how many samples it has."""
    kind = line[0]
    if kind == "values":
        instant = line[1]
        pairs = line[2]
        if not isinstance(instant, int) or not abs(instant) < MOST_INSTANT:
            raise ValueError("an instant beyond all clocks")
        for number, value in zip(pairs[::2], pairs[1::2], strict=True):
            if (columns := series.get(number)) is not None:  # else its line was lost
                columns.values.append(value)
                columns.t_ns.append(instant)
        return len(pairs) // 2
    if kind == "series" and len(series) < MOST_SERIES:
        series[int(line[1])] = _Columns(
            _name(line[2]), _name(line[3]), _labels(line[4])
        )
    elif kind == "note" and len(notes) < MOST_NOTES:
        notes.append(_name(line[1]))
    return 0


def _name(text: Any) -> str:
    if not isinstance(text, str):
        raise TypeError("not a text")
    return printable(text, MOST_CHARS)


def _labels(labels: Any) -> dict[str, str]:
    return {
        _name(name): _name(value)
        for name, value in list(dict(labels).items())[:MOST_LABELS]
    }


def _series(
    source: str, metric: str, labels: dict[str, str], t_ns: Any, values: Any
) -> Series | None:
    """The series of finite values, in the order of their instants; None without any."""
    good = np.isfinite(values)
    t_ns = t_ns[good]
    values = values[good]
    if not len(t_ns):
        return None
    if (np.diff(t_ns) < 0).any():
        order = np.argsort(t_ns, kind="stable")
        t_ns = t_ns[order]
        values = values[order]
    return Series(source, metric, labels, t_ns, values)


# ---------------------------------------------------------------------- the table


def _table(telemetry: Telemetry) -> pa.Table:
    import pyarrow as pa

    lengths = [len(series.t_ns) for series in telemetry.series]
    index = pa.array(np.repeat(np.arange(len(lengths), dtype=np.int32), lengths))

    def names(texts: list[str]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(index, pa.array(texts, pa.string()))

    sources = []
    metrics = []
    labels = []
    # np.concatenate needs at least one, and takes its type from it.
    t_ns = [np.empty(0, np.int64)]
    values = [np.empty(0, np.float64)]
    for series in telemetry.series:
        sources.append(series.source)
        metrics.append(series.metric)
        labels.append(json.dumps(dict(series.labels), sort_keys=True))
        t_ns.append(series.t_ns)
        values.append(series.values)

    columns = {
        "source": names(sources),
        "metric": names(metrics),
        "labels": names(labels),
        "t": pa.array(np.concatenate(t_ns)),
        "value": pa.array(np.concatenate(values)),
    }
    about = json.dumps({"notes": list(telemetry.notes)})
    return pa.table(columns).replace_schema_metadata({METADATA: about})


def _read_table(file: Path) -> Telemetry:
    """Raises OSError and ValueError (pyarrow's too) for a file that is not ours, or too large."""
    import pyarrow as pa

    text = pa.string()
    columns = pa.schema(
        [
            ("source", text),
            ("metric", text),
            ("labels", text),
            ("t", pa.int64()),
            ("value", pa.float64()),
        ]
    )
    with open_table(file, columns, LIMITS) as opened:
        if opened.columns.names != columns.names:
            raise ValueError(f"{file.name} has other columns")
        table = pa.Table.from_batches(opened.batches, columns)
        notes = (opened.metadata or {}).get(METADATA, b"{}")
    names = [table[name].combine_chunks() for name in ("source", "metric", "labels")]
    t_ns = table["t"].to_numpy()
    values = table["value"].to_numpy()
    if t_ns.dtype != np.int64 or (np.abs(t_ns) >= MOST_INSTANT).any():
        raise ValueError(f"{file.name} has instants beyond all clocks")
    return Telemetry(_grouped(names, t_ns, values), _notes(notes))


def _notes(text: bytes) -> list[str]:
    try:
        notes = decode_foreign(text[:MOST_LINE_BYTES], dict[str, list[str]]).get(
            "notes", []
        )
    except (ValueError, RecursionError):
        return ["the notes of the telemetry are damaged"]
    return [_name(note) for note in notes[:MOST_NOTES]]


def _grouped(columns: list[Any], t_ns: Any, values: Any) -> list[Series]:
    """One series for each source, metric and labels, in the order of their first rows."""
    if not len(t_ns):
        return []
    encoded = [column.dictionary_encode() for column in columns]
    if any(column.null_count for column in encoded):
        raise ValueError("a series without a name")
    key = np.zeros(len(t_ns), dtype=np.int64)
    for column in encoded:
        key = key * len(column.dictionary) + column.indices.to_numpy().astype(np.int64)
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    if len(starts) > MOST_SERIES:
        raise ValueError(f"more than {MOST_SERIES} series")
    series = []
    for rows in sorted(np.split(order, starts[1:]), key=lambda rows: int(rows[0])):
        first = int(rows[0])
        source = _name(_text_at(encoded[0], first))
        metric = _name(_text_at(encoded[1], first))
        labels = _labels(decode_foreign(_text_at(encoded[2], first).encode(), dict))
        known = _series(source, metric, labels, t_ns[rows], values[rows])
        if known is not None:
            series.append(known)
    return series


def _text_at(column: Any, row: int) -> str:
    """The text in a row of a column of texts that is encoded as a dictionary."""
    place = int(column.indices[row].as_py())
    text: str = column.dictionary[place].as_py()
    return text
