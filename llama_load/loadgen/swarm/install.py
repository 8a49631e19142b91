"""What Locust calls: our listeners, registered once per process."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import locust
from locust import argument_parser, runners
from locust.event import EventHook
from locust.runners import WorkerRunner

from llama_load.ground.arrow import load_arrow
from llama_load.loadgen.options.flags import declare
from llama_load.loadgen.options.known_secrets import learn_secrets
from llama_load.loadgen.options.others_flags import explain
from llama_load.loadgen.swarm import rpc
from llama_load.loadgen.swarm.alive_file import keep_alive_file
from llama_load.loadgen.swarm.clean_logs import clean_logs
from llama_load.loadgen.swarm.locust_files import redact_locusts_files
from llama_load.loadgen.swarm.ports import choose_port
from llama_load.loadgen.swarm.presence import LOST_AFTER_S
from llama_load.loadgen.swarm.surroundings import Surroundings
from llama_load.loadgen.swarm.worker import WorkerLifecycle


def install(surroundings: Callable[[], Surroundings]) -> None:
    """Register our listeners with Locust, once per process. `surroundings`: imports what is the
    master's alone.

    Runs while the locustfile is imported: before Locust forks (--processes) and before a worker
    reports ready. What a worker needs is imported here, so that no import ever blocks its event
    loop.
    """
    events: Any = locust.events
    if hasattr(events, "llm_request"):
        return
    load_arrow()
    rpc.install()
    # see `llama_load.loadgen.swarm.presence`
    runners.HEARTBEAT_LIVENESS = LOST_AFTER_S // runners.HEARTBEAT_INTERVAL
    events.llm_request = EventHook()
    events.llm_report = EventHook()
    events.init_command_line_parser.add_listener(_on_parser)
    events.init.add_listener(lambda environment, **_: _begin(environment, surroundings))
    # A worker calls this once per flag (about 200) whenever users are started, 3 ms each: that
    # would block its event loop.
    argument_parser.default_args_dict = cache(argument_parser.default_args_dict)


def _on_parser(parser: Any, **_: Any) -> None:
    """Locust is about to parse the command line; the first time is before it forks."""
    learn_secrets()
    redact_locusts_files()
    declare(parser)
    explain(parser)
    choose_port(parser)


def _begin(environment: Any, surroundings: Callable[[], Surroundings]) -> object:
    clean_logs()
    keep_alive_file()
    if isinstance(environment.runner, WorkerRunner):
        return WorkerLifecycle(environment)
    # Preflight, analysis, reports and the page are the master's alone.
    from llama_load.loadgen.swarm.lifecycle import Lifecycle

    return Lifecycle(environment, surroundings())
