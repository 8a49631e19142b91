"""Finds prompts of a run that earlier runs sent to the same server, by the prompt hashes in neighbouring run folders."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from llama_load.metrics.prompt_cache import MOST_NAMED
from llama_load.observed.records import Records
from llama_load.observed.sent_before import SentBefore
from llama_load.run_folder import TABLE
from llama_load.run_folder.foreign_tables import TableLimits, read_table, record_columns
from llama_load.targets.apis import NOT_CACHED

# At most MOST_RUNS newest runs among MOST_ENTRIES entries of the folder, and MOST_BYTES of their columns. A row takes 200 bytes.
MOST_RUNS, MOST_ENTRIES, MOST_BYTES, MOST_CELLS = 20, 5000, 256 << 20, 10_000_000
COLUMNS = ("prompt_sha256", "host", "endpoint", "model", "started_wall_ns")
LOOPBACK = frozenset(("127.0.0.1", "::1", "localhost", "0.0.0.0"))  # noqa: S104  (a name that is compared, not bound)

# What identifies a prompt for a cache: server, endpoint, model, and hash of the text.
_Key = tuple[str, str, str | None, str]


def sent_before(folder: Path, records: Records, started_s: Mapping[str, float] = {}) -> SentBefore:
    """The measured prompts in `records` (of the run in `folder`) that a run next to it sent to the same server.

    Only first turns count, because later turns repeat them; embeddings and rerankings are not cached. `started_s`: when the
    server was started (Unix time), by host, if known; prompts sent before that are in no cache. Unreadable runs are skipped.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    measured = records.measured()
    turns = measured.numbers("turn")
    measured = measured.where(~(turns >= 2))
    for endpoint in NOT_CACHED:
        measured = measured.where(~measured.equals("endpoint", endpoint))
    own: dict[_Key, list[int]] = {}
    for batch in measured.batches(*COLUMNS, "prompt_index"):
        for *row, _, index in _rows(batch.table):
            if row[0] is not None:
                own.setdefault(_key(*row), []).append(-1 if index is None else index)
    if not own:
        return SentBefore()
    first_ns = min(measured.strings("started_wall_ns"))
    began_ns = {_server(host): int(at_s * 1e9) for host, at_s in started_s.items()}
    own_hashes = pa.array({key[-1] for key in own}, pa.string())
    repeated: set[_Key] = set()
    runs: list[str] = []
    left = MOST_BYTES
    columns = record_columns(*COLUMNS)
    for run in _newest(folder):
        try:
            table = read_table(run / TABLE, columns, TableLimits(MOST_CELLS, left))
        except (OSError, ValueError):  # another program's, or too large
            continue
        if table.column_names != columns.names:
            continue
        left -= table.nbytes
        sent = _rows(table.filter(pc.is_in(table["prompt_sha256"], value_set=own_hashes)))
        keys = ((_key(*row), at_ns) for *row, at_ns in sent)
        known = {key for key, at_ns in keys if key in own and began_ns.get(key[0], 0) < at_ns < first_ns}
        if known:
            runs.append(run.name)
            repeated |= known
    indices = sorted(index for key in repeated for index in own[key])
    total = sum(map(len, own.values()))
    return SentBefore(len(indices), total, runs, [index for index in indices if index >= 0][: MOST_NAMED + 1])


def _newest(folder: Path) -> Iterator[Path]:
    """The other runs next to this one, the last written first."""
    ages: list[tuple[int, Path]] = []
    folder = folder.absolute()
    with os.scandir(folder.parent) as entries:
        for entry in islice(entries, MOST_ENTRIES):
            table = Path(entry.path) / TABLE
            if entry.name != folder.name and table.is_file():
                ages.append((table.stat().st_mtime_ns, Path(entry.path)))
    yield from (path for _, path in sorted(ages, reverse=True)[:MOST_RUNS])


def _rows(table: Any) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _key(digest: str, host: str, endpoint: str, model: str | None) -> _Key:
    return _server(host), endpoint, model, digest


def _server(url: str | None) -> str:
    """A server's URL, with every loopback name replaced by localhost."""
    try:
        parts = urlsplit(url or "")
        host = "localhost" if parts.hostname in LOOPBACK else parts.hostname
        return f"{parts.scheme}://{host}:{parts.port}{parts.path}"
    except ValueError:
        return str(url)
