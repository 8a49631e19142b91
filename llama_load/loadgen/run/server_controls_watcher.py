"""Empties the servers' prompt caches before each measurement, and has them profile it alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from llama_load.loadgen.run.watcher import RunUnderWay, Watcher
from llama_load.outside.plain_http import Session
from llama_load.run_folder import StageRecord
from llama_load.servers.kinds import ServerKind
from llama_load.servers.target import Target
from llama_load.servers.tls import TlsOptions

Control = Callable[[ServerKind, Session, str], str]


class ServerControlsWatcher(Watcher):
    """A server that does not do it ends the run: its figures would be others than asked for."""

    def __init__(
        self,
        run: RunUnderWay,
        targets: Sequence[Target],
        tls: TlsOptions,
        *,
        resets_cache: bool,
        profiles: bool,
    ) -> None:
        self._run = run
        self._targets = targets
        self._tls = tls
        self._resets_cache = resets_cache
        self._profiles = profiles
        self._is_profiling = False

    def before_measuring(self) -> None:
        """See `Watcher.before_measuring`."""
        if self._resets_cache:
            why = self._asked(lambda kind, session, url: kind.reset_cache(session, url))
            if why:
                self._run.abort(f"the prompt cache was not emptied: {why}")
                return
        if self._profiles:
            why = self._asked(
                lambda kind, session, url: kind.start_profiler(session, url)
            )
            self._is_profiling = not why
            if why:
                self._run.abort(f"the server's profiler did not start: {why}")

    def after_measuring(self, stages: Sequence[StageRecord]) -> None:
        """See `Watcher.after_measuring`."""
        self._stop_profiler()

    def stop(self) -> None:
        """See `Watcher.stop`. A run that ended before its measurement did leaves no profiler."""
        self._stop_profiler()

    def _stop_profiler(self) -> None:
        if not self._is_profiling:
            return
        self._is_profiling = False
        said = "llama-load: waiting until the server's profiler has written its trace"
        print(said, file=sys.stderr, flush=True)
        why = self._asked(lambda kind, session, url: kind.stop_profiler(session, url))
        if why:
            sentence = f"llama-load: the server's profiler did not stop: {why}"
            print(sentence, file=sys.stderr, flush=True)

    def _asked(self, control: Control) -> str:
        """Why a server did not do it, "" if all have."""
        for target in self._targets:
            session = Session(target.headers, self._tls.context)
            why = control(target.kind, session, target.address.url)
            if why:
                return f"{target.address.url}: {why}"
        return ""
