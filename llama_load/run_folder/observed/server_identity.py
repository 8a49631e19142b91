"""Which sources report the same server: the sampler on the master's machine, and an exporter that
runs there, too (`llama-load telemetry --server-port`), see the same processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from llama_load.run_folder.observed.telemetry_names import PROCESS, SERVER
from llama_load.run_folder.observed.telemetry_series import Series, Telemetry

INFO = "server_info"
# What is of a server's processes, and would count twice where two sources see them.
OF_PROCESSES = frozenset(("server_cpu_seconds_total", "server_memory_bytes"))


def repeating(infos: Iterable[tuple[str, Mapping[str, str]]]) -> set[str]:
    """The sources all of whose processes another source has, too: the own one first, then that
    which is named first. `infos`: source and labels of each `server_info`."""
    processes: dict[str, set[str]] = {}
    for source, labels in infos:
        process = labels.get(PROCESS)
        if process:
            processes.setdefault(source, set()).add(process)

    found = set()
    known: set[str] = set()
    for source in sorted(processes, key=lambda source: source != SERVER):
        if processes[source] <= known:
            found.add(source)
        known |= processes[source]
    return found


def series_of_servers(telemetry: Telemetry, metric: str) -> list[Series]:
    """The series of a metric, those of the servers' processes with each process once."""
    if metric not in OF_PROCESSES:
        return telemetry.find(metric)
    infos = [(info.source, info.labels) for info in telemetry.find(INFO)]
    left_out = repeating(infos)
    found = []
    for series in telemetry.find(metric):
        if series.source not in left_out:
            found.append(series)
    return found
