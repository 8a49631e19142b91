"""What the runs of a sweep or a search measured: servers with their models, and when."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from llama_load.foreign_files import read_foreign_json
from llama_load.foreign_text import printable
from llama_load.languages import ENGLISH, Translate
from llama_load.reports.about_run import server_parts, server_urls
from llama_load.reports.titles import when
from llama_load.reports.translations import translator
from llama_load.run_folder import MANIFEST
from llama_load.run_folder.manifest import check_targets

# Runs that are read, and servers that are named.
MOST_RUNS = 200
MOST_SERVERS = 4


def subject_of(runs: Path, language: str = ENGLISH) -> list[tuple[str, str]]:
    """Names and texts for the head of a page; what is not known is left out.

    `runs`: the folder of their folders.
    """
    servers: dict[str, None] = {}
    dates = set()
    for file in islice(sorted(runs.glob(f"*/{MANIFEST}")), MOST_RUNS):
        try:
            manifest = read_foreign_json(file, inside=file.parent)
            targets = manifest.get("targets") or []
            check_targets(targets)
        except (OSError, ValueError):
            continue

        parts = [*server_parts(targets), *server_urls(manifest)[:1]]
        servers.setdefault(" · ".join(parts))
        date = manifest.get("date")
        if isinstance(date, str):
            dates.add(printable(date))

    return list(
        _named_parts(list(filter(None, servers)), sorted(dates), translator(language))
    )


def _named_parts(
    servers: list[str], dates: list[str], t: Translate
) -> Iterator[tuple[str, str]]:
    for server in servers[:MOST_SERVERS]:
        yield t("Server"), server
    if len(servers) > MOST_SERVERS:
        more = len(servers) - MOST_SERVERS
        yield t("Server"), t("{count} more").format(count=more)

    if dates:
        first = when(dates[0])
        last = when(dates[-1])
        yield t("Date"), first if first == last else f"{first} – {last}"
