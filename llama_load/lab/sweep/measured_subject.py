"""What the runs of a sweep or a search measured: servers with their models, and when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

from llama_load.analysis.reports.about_run import server_parts, server_urls
from llama_load.analysis.reports.titles import when
from llama_load.analysis.reports.translations import translator
from llama_load.ground.languages import ENGLISH, Translate
from llama_load.outside.foreign_files import read_foreign_json
from llama_load.outside.foreign_text import printable
from llama_load.run_folder import MANIFEST
from llama_load.run_folder.manifest import check_targets

# Runs that are read, and servers that are named.
MOST_RUNS = 200
MOST_SERVERS = 4


def subject_of(runs: Path, language: str = ENGLISH) -> list[tuple[str, str]]:
    """Names and texts for the head of a page; what is not known is left out.

    `runs`: the folder of their folders.
    """
    servers: dict[str, list[str]] = {}  # its address in each run
    dates = set()
    for file in islice(sorted(runs.glob(f"*/{MANIFEST}")), MOST_RUNS):
        try:
            manifest = read_foreign_json(file, inside=file.parent)
            targets = manifest.get("targets") or []
            check_targets(targets)
        except (OSError, ValueError):
            continue

        addresses = servers.setdefault(" · ".join(server_parts(targets)), [])
        addresses += server_urls(manifest)[:1]
        date = manifest.get("date")
        if isinstance(date, str):
            dates.add(printable(date))

    return list(
        _named_parts(_server_texts(servers), sorted(dates), translator(language))
    )


def _server_texts(servers: Mapping[str, Sequence[str]]) -> list[str]:
    """Each server with its address, unless every run started it at another port."""
    texts = []
    for server, addresses in servers.items():
        different = dict.fromkeys(addresses)
        hosts = {urlsplit(address).hostname for address in addresses}
        starts_anew = len(hosts) == 1 and len(different) == len(addresses) > 1
        if server and (starts_anew or not addresses):
            texts.append(server)
            continue
        for address in different:
            texts.append(" · ".join(filter(None, (server, address))))
    return texts


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
