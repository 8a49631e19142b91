"""Makes Locust's runners use our sockets."""

from __future__ import annotations

import logging
import secrets
import sys
from types import SimpleNamespace
from typing import Any

from locust import argument_parser, runners

from llama_load.ground.errors import UsageError
from llama_load.loadgen.options.flag_limits import LOOPBACK
from llama_load.loadgen.swarm import message_guard
from llama_load.loadgen.swarm.sockets import Client, Server
from llama_load.loadgen.swarm.swarm_key import (
    CurveKeys,
    curve_keys,
    refuse_open_network,
)

ANYWHERE = "*"  # Locust's default of --master-bind-host

logger = logging.getLogger(__name__)


def install() -> None:
    """To be called before Locust forks, so that --processes share the key made here."""
    made_up = secrets.token_hex(32)
    made: list[Server] = []

    def keys(options: Any) -> CurveKeys | None:
        swarm_key = options.swarm_key or (
            made_up if options.processes and not options.worker else ""
        )
        return curve_keys(swarm_key) if swarm_key else None

    def server(host: str, port: int) -> Server:
        # parsed again, because Locust changes some in its forks
        options = argument_parser.get_parser().parse_args()
        swarm_keys = _or_exit(lambda: keys(options))
        if options.processes and host == ANYWHERE:
            host = LOOPBACK
        if swarm_keys is None:
            logger.warning(
                "workers are not authenticated: anyone who reaches port %d, also another user of this machine, can take "
                "requests, read prompts and all options (a locustfile's secrets, too), and forge results; start master "
                "and workers with the same LLAMA_LOAD_SWARM_KEY, or on one machine with --processes",
                port,
            )
        # `Lifecycle` opens the first one, after all that takes long; Locust makes another one in
        # its place where a network is broken.
        made.append(Server(host, port, swarm_keys, is_open=bool(made)))
        return made[-1]

    def client(host: str, port: int, identity: str) -> Client:
        options = argument_parser.get_parser().parse_args()
        swarm_keys = _or_exit(lambda: keys(options))
        if swarm_keys is None:
            _or_exit(lambda: refuse_open_network(options, host))
        return Client(host, port, identity, swarm_keys)

    locusts: Any = runners
    locusts.rpc = SimpleNamespace(Server=server, Client=client)
    message_guard.install_guard()


def _or_exit(call: Any) -> Any:
    try:
        return call()
    except UsageError as error:
        print(f"llama-load: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
