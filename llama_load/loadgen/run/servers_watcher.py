"""The servers of a run that are on this machine: when none is left the run ends; their logs and
facts go into the run folder."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from llama_load.loadgen.run.in_thread import in_thread
from llama_load.loadgen.run.watcher import LoopWatcher, RunUnderWay, report_end
from llama_load.outside.foreign_text import printable_lines
from llama_load.run_folder import RunWriter
from llama_load.run_folder.observed.server_description import ServerDescription
from llama_load.run_folder.server_files import ServerFiles, write_server_files
from llama_load.servers.serving.local_server import (
    LocalServer,
    find_local_server,
    traffic_of,
)

LOOK_EVERY_S = 0.5
# What a server's supervisor needs to notice the end, and to find out why.
LAST_WORDS_WITHIN_S = 2.5
LAST_WORDS_EVERY_S = 0.1
MOST_WORDS = 4000


def _find_in_thread(server: LocalServer) -> LocalServer:
    return in_thread(partial(find_local_server, server.target))


class ServersWatcher(LoopWatcher):
    """Ends the run when no server is left. One that is gone may come back: `find` looks for its
    process again."""

    def __init__(
        self,
        run: RunUnderWay,
        servers: Sequence[LocalServer],
        grace_s: float,
        find: Callable[[LocalServer], LocalServer] = _find_in_thread,
    ) -> None:
        super().__init__(run)
        self._servers = list(servers)
        self._grace_s = grace_s
        self._find = find
        self._begun_s = run.clock.now_s
        self._gone_s: dict[int, float] = {}  # since when, by the server's number
        self._gaps: list[str] = []

    def start(self) -> None:
        """See `Watcher.start`. Servers on other machines cannot be watched."""
        if any(server.can_be_watched for server in self._servers):
            super().start()

    def _watch(self) -> None:
        # also while the last requests end: which servers went away is reported
        while not self.none_is_left():
            self.run.clock.sleep(LOOK_EVERY_S)
        report_end("no server is left")
        self.run.end("server")

    def none_is_left(self) -> bool:
        """Note which servers are gone and which are back; whether no server is left, and none came
        back in time."""
        now_s = self.run.clock.now_s
        for number, server in enumerate(self._servers):
            if not server.can_be_watched:
                continue
            if number in self._gone_s:
                local = self._find(server)
                if local.can_be_watched and not local.has_ended():
                    self._servers[number] = local
                    self._note(
                        number,
                        f"and was started again {now_s - self._gone_s.pop(number):.1f} s later",
                    )
            elif server.has_ended():
                self._gone_s[number] = now_s
                print(
                    f"{server.target.address.url}: the server's process ended",
                    file=sys.stderr,
                    flush=True,
                )
        is_last = len(self._gone_s) == len(self._servers) > 0
        return is_last and now_s - max(self._gone_s.values()) >= self._grace_s

    def _note(self, number: int, rest: str) -> None:
        """Describe a gap that has ended, or lasts until the end of the run."""
        url = self._servers[number].target.address.url
        at_s = self.run.clock.now_s - self._begun_s
        where = f"{url}: " if len(self._servers) > 1 else ""
        self._gaps.append(
            f"{where}its process ended during the run {rest} ({at_s:.0f} s after the start of "
            "the run)"
        )

    def facts(self, writer: RunWriter) -> None:
        """See `Watcher.facts`. The servers' logs go into the run folder. What goes wrong here is
        printed, and loses no report."""
        try:
            self._record(writer)
        except Exception as error:
            print(
                f"llama-load: what the server says of itself could not be recorded: {error!r}",
                file=sys.stderr,
            )

    def _wait_for_words(self, ended: Sequence[int]) -> None:
        """Until it is known why these servers have ended, but not for long."""
        clock = self.run.clock
        deadline_s = clock.now_s + LAST_WORDS_WITHIN_S
        for number in ended:
            server = self._servers[number]
            while not server.is_explained() and clock.now_s < deadline_s:
                clock.sleep(LAST_WORDS_EVERY_S)

    def _record(self, writer: RunWriter) -> None:
        before = writer.manifest.servers
        gone = [
            number for number, server in enumerate(self._servers) if server.has_ended()
        ]
        ended = []
        if len(gone) == len(self._servers):
            ended = gone
        else:  # other servers went on: the gap is named, the run is whole
            for number in gone:
                self._note(number, "and was not started again until its end")
        writer.manifest.server_changes += self._gaps
        self._wait_for_words(ended)

        # Subprocesses need gevent's own thread.
        traffic = traffic_of(before)
        descriptions = [
            in_thread(partial(server.describe, traffic)) for server in self._servers
        ]
        for number, known in enumerate(before):
            now = descriptions[number]
            wakes = max(0, now.wakes - known.wakes)
            saves_ms = max(0.0, now.prompt_saves_ms - known.prompt_saves_ms)
            descriptions[number] = replace(now, wakes=wakes, prompt_saves_ms=saves_ms)
        for number in ended:
            # What a process is made of is not known any more when it is gone.
            known = before[number]
            words = printable_lines(in_thread(self._servers[number].last_words))
            descriptions[number] = replace(
                descriptions[number],
                process_threads=known.process_threads,
                rss_mib=known.rss_mib,
                ended=words[:MOST_WORDS],
            )
        writer.manifest.servers = descriptions
        files = [
            _files(server, facts)
            for server, facts in zip(self._servers, descriptions, strict=True)
        ]
        try:
            in_thread(lambda: write_server_files(writer.path, files))
        except OSError as error:
            print(
                f"llama-load: the server's log could not be copied to {writer.path}: "
                f"{error.strerror}",
                file=sys.stderr,
            )


def _files(server: LocalServer, facts: ServerDescription) -> ServerFiles:
    return ServerFiles(server.log_ends(), server.memory_lines(), facts.command)
