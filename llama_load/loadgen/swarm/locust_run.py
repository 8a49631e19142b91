"""A run under Locust: its controller, and Locust as its host, which starts users and stops its test
when the run ends."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any

import gevent

from llama_load.loadgen.preflight.load_fits import sending_users
from llama_load.loadgen.preflight.prepare import Prepared
from llama_load.loadgen.run.controller import RunController, WatchersOf
from llama_load.loadgen.run.host import RunHost
from llama_load.loadgen.run.progress import Counts
from llama_load.loadgen.run.run_clock import RunClock
from llama_load.loadgen.run.token_watch import LOOK_FOR_LINE_EVERY_S
from llama_load.loadgen.run.watchers import watchers_of
from llama_load.loadgen.swarm.user_scaler import UserScaler
from llama_load.run_folder import Run
from llama_load.run_folder.observed.new_tokens import LOOK_EVERY_S


class LocustRun(RunHost):
    """One run. Subclasses add the way to the users: in this process, or on workers."""

    def __init__(
        self,
        environment: Any,
        prepared: Prepared,
        user_scaler: UserScaler,
        clock: RunClock | None = None,
        watchers: WatchersOf = watchers_of,
    ) -> None:
        self._environment = environment
        self._user_scaler = user_scaler
        self.prepared = prepared
        self._wait_s = (
            prepared.options.wait_at_end_s
        )  # for what is in flight at the end
        self.controller = RunController(prepared, self, clock, watchers)

    @property
    def counts(self) -> Counts:
        """How far the run is."""
        return self.controller.progress.counts()

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.prepared.writer.path

    def draws_every_s(self, environment: Any) -> float:
        """How often tokens of answers that go on are drawn: on the page, or more seldom in the line
        of progress, for which the live figures wait, too; 0: nothing draws them."""
        if environment.web_ui is not None:
            return LOOK_EVERY_S
        if not self.controller.progress.is_drawn:
            return 0.0
        self.controller.live.looks_every_s = LOOK_FOR_LINE_EVERY_S
        return LOOK_FOR_LINE_EVERY_S

    def open(self) -> None:
        """Begin the first phase."""
        self.controller.open()

    def stopping(self, reason: str) -> None:
        """Locust is stopping the users, for this reason unless the run has ended already: begin no
        more requests."""
        self.controller.stopping(reason)

    @abstractmethod
    def end_wait(self) -> None:
        """Stop waiting for requests in flight."""

    @abstractmethod
    def finish(self) -> Run:
        """Wait for the last records, then see `RunController.finish`."""

    def users_asked(self) -> int:
        """See `RunHost.users_asked`."""
        return sending_users(
            self._environment.user_classes,
            int(self._environment.runner.target_user_count),
        )

    def workers(self) -> int:
        """See `RunHost.workers`."""
        return int(getattr(self._environment.runner, "worker_count", 1))

    def add_users(self, count: int) -> None:
        """See `RunHost.add_users`."""
        self._user_scaler.grow(count)

    def stop(self) -> None:
        """See `RunHost.stop`."""
        runner = self._environment.runner
        options = self._environment.parsed_options
        if options.headless:
            runner.quit()
            return
        runner.stop()
        if options.autostart and options.autoquit != -1:
            gevent.sleep(options.autoquit)
            runner.quit()
            self._environment.web_ui.stop()
