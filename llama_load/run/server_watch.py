"""The servers of a run that are on this machine: their end is the run's end; their logs and facts go into the run folder."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import gevent

from llama_load.foreign_text import printable_lines
from llama_load.metrics.server_description import ServerDescription
from llama_load.preflight.local_servers import LocalServer
from llama_load.run.in_thread import in_thread
from llama_load.runs import RunWriter, ServerFiles, write_server_files
from llama_load.serving.describe import ends_of, read_log_file
from llama_load.serving.rpc_traffic import traffic_to

LOOK_EVERY_S = 0.5
# What a server's supervisor needs to notice the end, and to find out why.
LAST_WORDS_WITHIN_S, LAST_WORDS_EVERY_S = 2.5, 0.1
MOST_WORDS = 4000


class ServerWatch:
    """Watches the servers' processes in a greenlet."""

    def __init__(self, servers: Sequence[LocalServer]) -> None:
        self._servers = list(servers)

    def watch(self, on_end: Callable[[], None]) -> None:
        """Return when a server has ended, after calling `on_end`; never if none can be watched."""
        watched = [server for server in self._servers if server.can_be_watched]
        while watched and not any(server.has_ended() for server in watched):
            gevent.sleep(LOOK_EVERY_S)
        if watched:
            on_end()

    def record(self, writer: RunWriter) -> None:
        """At the end of the run: describe the servers in the manifest, and copy their logs into the run folder.

        Whatever goes wrong here is printed, and loses no report."""
        try:
            self._record(writer)
        except Exception as error:
            print(f"llama-load: what the server says of itself could not be recorded: {error!r}", file=sys.stderr)

    def _record(self, writer: RunWriter) -> None:
        before = writer.manifest.servers
        ended = [number for number, server in enumerate(self._servers) if server.has_ended()]
        deadline_s = time.monotonic() + LAST_WORDS_WITHIN_S
        while any(not self._servers[number].is_explained() for number in ended) and time.monotonic() < deadline_s:
            gevent.sleep(LAST_WORDS_EVERY_S)
        # Subprocesses need gevent's own thread.
        traffic = traffic_to(worker.address for server in before for worker in server.rpc)
        found = [in_thread(partial(server.describe, traffic)) for server in self._servers]
        for number in ended:
            # What a process is made of is not known any more when it is gone.
            gone = before[number]
            words = printable_lines(in_thread(self._servers[number].last_words))[:MOST_WORDS]
            found[number] = replace(found[number], process_threads=gone.process_threads, rss_mib=gone.rss_mib, ended=words)
        writer.manifest.servers = found
        files = [_files(server, facts) for server, facts in zip(self._servers, found, strict=True)]
        try:
            in_thread(lambda: write_server_files(writer.path, files))
        except OSError as error:
            print(f"llama-load: the server's log could not be copied to {writer.path}: {error.strerror}", file=sys.stderr)


def _files(server: LocalServer, facts: ServerDescription) -> ServerFiles:
    if server.log is None:
        return ServerFiles(command=facts.command)
    return ServerFiles(ends_of(server.log), read_log_file(server.log).memory_lines, facts.command)
