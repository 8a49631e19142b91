"""The port on which a master listens for its workers; with --processes a free one.

Workers join any master that listens on their port. With Locust's default port, the master of a
second swarm on a machine would fail to start and its workers would join the first swarm, also if
both start in the same second.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from llama_load.ground.errors import UsageError
from llama_load.servers.local_ports import free_port

LOCUSTS_PORT = 5557
_VARIABLES = {
    "--processes": "LOCUST_PROCESSES",
    "--master": "LOCUST_MODE_MASTER",
    "--worker": "LOCUST_MODE_WORKER",
    "--master-bind-port": "LOCUST_MASTER_BIND_PORT",
    "--master-port": "LOCUST_MASTER_NODE_PORT",
}


def is_free(port: int) -> bool:
    """Whether a master could listen on this port of every address."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as ZeroMQ
        try:
            sock.bind(("", port))
        except (OSError, OverflowError):
            return False
        return True


class HeldPort:
    """A port that nobody else can take, and where nobody listens yet."""

    def __init__(self, host: str, port: int, *, is_ipv4: bool) -> None:
        """`host`: "" is every address. Raises OSError: it is taken."""
        self._socket = socket.socket(socket.AF_INET if is_ipv4 else socket.AF_INET6)
        try:
            if not is_ipv4:
                self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            # connections of an earlier master may still be known
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        except OSError:
            self.close()
            raise

    @property
    def port(self) -> int:
        """Its number."""
        return int(self._socket.getsockname()[1])

    def close(self) -> None:
        """Let it go."""
        self._socket.close()


def port_instead(
    words: Sequence[str],
    environment: Mapping[str, str],
    is_free: Callable[[int], bool] = is_free,
) -> int | None:
    """The port for both master and workers of --processes: a free one, which nobody else has to
    know, or the one that one of the two flags names; else None. UsageError: that port, or Locust's
    for a master alone, is taken, or the flags name two.

    (Locust gives each of the two flags its own default, so workers would look for a master where
    none listens.)"""
    given = _values_of_flags(words, environment)
    if given["--worker"] or not (given["--master"] or given["--processes"]):
        return None
    bind = given["--master-bind-port"]
    connect = given["--master-port"]
    named = bind
    if given["--processes"]:
        if bind is None and connect is None:
            return free_port()
        if bind is not None and connect is not None and bind != connect:
            raise UsageError(
                f"--master-bind-port {bind} and --master-port {connect}: with --processes master and workers need the same port; "
                "give one of the two flags"
            )
        named = connect if bind is None else bind
    port = int(named) if named and named.isdecimal() else LOCUSTS_PORT
    if is_free(port):
        return port if given["--processes"] else None
    raise UsageError(
        f"port {port} is taken, perhaps by another swarm's master; choose another: --master-bind-port N on the master, "
        "--master-port N on its workers (with --processes one of them)"
    )


def choose_port(parser: Any) -> None:
    """Set the port in Locust's parser. Exits with a message if it is taken."""
    try:
        port = _port_of_this_process()
    except UsageError as error:
        print(f"llama-load: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    if port is not None:
        parser.set_defaults(master_bind_port=port, master_port=port)


@cache
def _port_of_this_process() -> int | None:
    """Cached: Locust's web page parses the command line again, when we occupy the port
    ourselves."""
    return port_instead(sys.argv[1:], os.environ)


def _values_of_flags(
    words: Sequence[str], environment: Mapping[str, str]
) -> dict[str, str | None]:
    """The values of these flags, from command line or environment: Locust's parser has not run
    yet."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag, variable in _VARIABLES.items():
        switch = flag in ("--master", "--worker")
        text = environment.get(variable)
        default = (text or "").lower() in ("true", "yes", "1", "on") if switch else text
        if switch:
            parser.add_argument(flag, dest=flag, action="store_true", default=default)
        else:
            parser.add_argument(flag, dest=flag, nargs="?", default=default)
    return vars(parser.parse_known_args(words)[0])
