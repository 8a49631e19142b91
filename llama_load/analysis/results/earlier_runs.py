"""Finds prompts of a run that earlier runs sent to the same server.

By the prompt hashes in neighbouring run folders.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from llama_load.analysis.figures.prompt_cache import MOST_NAMED
from llama_load.run_folder import TABLE
from llama_load.run_folder.foreign_tables import TableLimits, read_table, record_columns
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.observed.sent_before import SentBefore
from llama_load.servers.apis import NOT_CACHED

# At most so many newest runs among so many entries of the folder, and so many bytes and cells of
# their columns. A row takes 200 bytes.
MOST_RUNS = 20
MOST_ENTRIES = 5000
MOST_BYTES = 256 << 20
MOST_CELLS = 10_000_000
COLUMNS = ("prompt_sha256", "host", "endpoint", "model", "started_wall_ns")
# Names that are compared, not bound.
LOOPBACK = frozenset(("127.0.0.1", "::1", "localhost", "0.0.0.0"))  # noqa: S104
_NO_INDEX = -1

# What identifies a prompt for a cache: server, endpoint, model, and hash of the text.
_Key = tuple[str, str, str | None, str]


def sent_before(
    folder: Path, records: Records, started_s: Mapping[str, float] = {}
) -> SentBefore:
    """The measured prompts in `records` that a run next to it sent to the same server.

    `folder` is that of the run. Only first turns count, because later turns repeat them; embeddings
    and rerankings are not cached. `started_s`: when the server was started (Unix time), by host, if
    known; prompts sent before that are in no cache. Unreadable runs are skipped.
    """
    import pyarrow as pa

    measured = _cached_prompts(records)
    own = _places_by_key(measured)
    if not own:
        return SentBefore()

    first_ns = min(measured.strings("started_wall_ns"))
    server_began_ns = {}
    for host, at_s in started_s.items():
        server_began_ns[_server_url(host)] = int(at_s * 1e9)

    hashes = pa.array({key[-1] for key in own}, pa.string())
    repeated: set[_Key] = set()
    runs: list[str] = []
    for run, table in _tables_beside(folder):
        known = set()
        for key, at_ns in _sent_prompts(table, hashes):
            began_ns = server_began_ns.get(key[0], 0)
            if key in own and began_ns < at_ns < first_ns:
                known.add(key)

        if known:
            runs.append(run.name)
            repeated |= known

    indices = []
    for key in repeated:
        indices += own[key]

    indices.sort()
    total = sum(map(len, own.values()))
    named = [index for index in indices if index >= 0]

    return SentBefore(len(indices), total, runs, named[: MOST_NAMED + 1])


def _cached_prompts(records: Records) -> Records:
    """The measured requests whose prompts could be in a cache for the first time."""
    measured = records.measured()
    measured = measured.where(~(measured.numbers("turn") >= 2))
    for endpoint in NOT_CACHED:
        measured = measured.where(~measured.equals("endpoint", endpoint))
    return measured


def _places_by_key(measured: Records) -> dict[_Key, list[int]]:
    """The numbers of the prompts among their data, by their keys; `_NO_INDEX` where unknown."""
    places: dict[_Key, list[int]] = {}
    for batch in measured.batches(*COLUMNS, "prompt_index"):
        for digest, host, endpoint, model, _, index in _rows_of(batch.table):
            if digest is not None:
                key = _key(digest, host, endpoint, model)
                place = _NO_INDEX if index is None else index
                places.setdefault(key, []).append(place)

    return places


def _tables_beside(folder: Path) -> Iterator[tuple[Path, Any]]:
    """The other runs next to this one that can be read, with their tables."""
    left = MOST_BYTES
    columns = record_columns(*COLUMNS)
    for run in _newest(folder):
        try:
            table = read_table(run / TABLE, columns, TableLimits(MOST_CELLS, left))
        except (OSError, ValueError):  # another program's, or too large
            continue

        if table.column_names == columns.names:
            left -= table.nbytes
            yield run, table


def _sent_prompts(table: Any, hashes: Any) -> Iterator[tuple[_Key, int]]:
    """The prompts of another run that have one of these hashes, and when they were sent."""
    import pyarrow.compute as pc

    sent = table.filter(pc.is_in(table["prompt_sha256"], value_set=hashes))
    for digest, host, endpoint, model, at_ns in _rows_of(sent):
        yield _key(digest, host, endpoint, model), at_ns


def _newest(folder: Path) -> Iterator[Path]:
    """The other runs next to this one, the last written first."""
    ages: list[tuple[int, Path]] = []
    folder = folder.absolute()
    with os.scandir(folder.parent) as entries:
        for entry in islice(entries, MOST_ENTRIES):
            table = Path(entry.path) / TABLE
            if entry.name != folder.name and table.is_file():
                ages.append((table.stat().st_mtime_ns, Path(entry.path)))

    ages.sort(reverse=True)
    for _, path in ages[:MOST_RUNS]:
        yield path


def _rows_of(table: Any) -> Iterator[tuple[Any, ...]]:
    columns = [column.to_pylist() for column in table.columns]
    return zip(*columns, strict=True)


def _key(digest: str, host: str, endpoint: str, model: str | None) -> _Key:
    return _server_url(host), endpoint, model, digest


def _server_url(url: str | None) -> str:
    """A server's URL, with every loopback name replaced by localhost."""
    try:
        parts = urlsplit(url or "")
        host = parts.hostname
        if host in LOOPBACK:
            host = "localhost"

        return f"{parts.scheme}://{host}:{parts.port}{parts.path}"
    except ValueError:
        return str(url)
