"""The port on which a master listens for its workers: a free one where nobody says which, and no one else's.

Workers join whatever master listens on their port. Without this a second swarm on a machine would lose its master to the
first one's port and give its workers to the first one.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from llama_load.errors import UsageError
from llama_load.serving.process import free_port

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


def port_instead(words: Sequence[str], environment: Mapping[str, str], is_free: Callable[[int], bool] = is_free) -> int | None:
    """The port that this command line's master and workers take in the place of Locust's, which another process has; None where it
    can stay as it is. Raises UsageError where the master's port is taken and may not be changed."""
    given = _read(words, environment)
    if given["--worker"] or not (given["--master"] or given["--processes"]):
        return None
    bind = given["--master-bind-port"]
    port = int(bind) if bind and bind.isdecimal() else LOCUSTS_PORT
    if is_free(port):
        return None
    if given["--processes"] and bind is None and given["--master-port"] is None:
        return free_port()
    raise UsageError(
        f"port {port} is taken, perhaps by the master of another swarm; give this one another: --master-bind-port N on the master, "
        "--master-port N on its workers (both with --processes)"
    )


def choose_port(parser: Any) -> None:
    """Let Locust's parser know the port. Exits with a sentence where it is taken."""
    try:
        port = _port_of_this_process()
    except UsageError as error:
        print(f"llama-load: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    if port is not None:
        parser.set_defaults(master_bind_port=port, master_port=port)


@cache
def _port_of_this_process() -> int | None:
    """Found once: Locust's web page reads the command line again, while we listen on the port ourselves."""
    return port_instead(sys.argv[1:], os.environ)


def _read(words: Sequence[str], environment: Mapping[str, str]) -> dict[str, str | None]:
    """What is said of these flags, which Locust's own parser has not read yet."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag, variable in _VARIABLES.items():
        switch = flag in ("--master", "--worker")
        said = environment.get(variable)
        default = (said or "").lower() in ("true", "yes", "1", "on") if switch else said
        if switch:
            parser.add_argument(flag, dest=flag, action="store_true", default=default)
        else:
            parser.add_argument(flag, dest=flag, nargs="?", default=default)
    return vars(parser.parse_known_args(words)[0])
