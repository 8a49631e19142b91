"""`llama-load serve --simulated`: a server without a model, on a known schedule."""

from __future__ import annotations

import argparse
import signal
from pathlib import Path

from llama_load.cli.parser import (
    LARGEST_SEED,
    LONGEST_MS,
    MOST_REQUESTS,
    MOST_TOKENS,
    Parser,
    number_between,
    whole_between,
)
from llama_load.ground.errors import UsageError


def _seconds(text: str) -> float:
    """An argparse type: milliseconds, as seconds."""
    return number_between(0, LONGEST_MS)(text) / 1e3


# A flag, the field of `Schedule` that it sets, its type and its help.
_FLAGS = (
    (
        "--first-token-ms",
        "first_token_s",
        _seconds,
        "time from getting a slot to the first token, ms (default 100)",
    ),
    ("--interval-ms", "interval_s", _seconds, "time between tokens, ms (default 20)"),
    (
        "--jitter-ms",
        "jitter_s",
        _seconds,
        "move every token by up to this time, ms (default 0)",
    ),
    (
        "--tokens",
        "tokens",
        whole_between(1, MOST_TOKENS),
        "answer length in tokens if a request has no max_tokens (default 64)",
    ),
    (
        "--lengths",
        "lengths",
        str,
        "geometric: draw answer lengths, mean --tokens; asked: use max_tokens (default asked)",
    ),
    (
        "--merge",
        "merge",
        whole_between(1, MOST_TOKENS),
        "tokens written to the socket together (default 1)",
    ),
    (
        "--fault",
        "fault",
        str,
        "fault to inject: cut, reset, stall, error, garbage, no-finish, no-done, empty or status",
    ),
    (
        "--fault-every",
        "fault_every",
        whole_between(1, MOST_REQUESTS),
        "inject the fault into every n-th request (default 1: all)",
    ),
    (
        "--fault-after",
        "fault_after",
        whole_between(0, MOST_TOKENS),
        "tokens to send before the fault (default 0)",
    ),
    (
        "--status",
        "status",
        whole_between(200, 599),
        "HTTP status of the fault 'status' (default 500)",
    ),
    (
        "--stall-at-s",
        "stall_at_s",
        number_between(0, LONGEST_MS),
        "seconds from the first request to the stall (default 0)",
    ),
    (
        "--stall-s",
        "stall_s",
        number_between(0, LONGEST_MS),
        "length of the stall in seconds: nothing is sent (default 0: no stall)",
    ),
    (
        "--seed",
        "seed",
        whole_between(-LARGEST_SEED, LARGEST_SEED),
        "random seed of the jitter and of drawn lengths (default 0)",
    ),
    (
        "--cached-tokens",
        "cached_tokens",
        whole_between(-1, MOST_TOKENS),
        "cached prompt tokens to report per prompt (default 0; -1: none)",
    ),
)


def add_simulated(serve: Parser) -> None:
    """Add --simulated and the flags that go with it."""
    serve.add_argument(
        "--simulated",
        action="store_true",
        help="no model: send tokens on a known schedule, for tests of timing and faults",
    )
    simulated = serve.add_argument_group("with --simulated")
    for flag, field, kind, text in _FLAGS:
        shown = flag.removeprefix("--").replace("-", "_").upper()
        simulated.add_argument(
            flag,
            dest=field,
            type=kind,
            metavar=shown,
            default=argparse.SUPPRESS,
            help=text,
        )
    simulated.add_argument(
        "--log",
        type=Path,
        help="file for the log: one JSON line per request, with its receive and send times",
    )


def serve_simulated(arguments: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM."""
    from llama_load.servers.serving.simulated import SimulatedServer
    from llama_load.servers.serving.simulated_schedule import Schedule

    given = {
        name: value
        for name, value in vars(arguments).items()
        if name in Schedule.__dataclass_fields__
    }
    schedule = Schedule(**given | {"slots": arguments.slots or 0})
    if arguments.log is not None:
        try:
            arguments.log.open("wb").close()
        except OSError as error:
            raise UsageError(
                f"--log {arguments.log} cannot be written: {error.strerror}"
            ) from None
    try:
        server = SimulatedServer(
            schedule, arguments.host, arguments.port, arguments.log
        )
    except OSError as error:
        raise UsageError(
            f"cannot listen on {arguments.host}:{arguments.port}: {error.strerror}; choose "
            "another --port"
        ) from None
    for ends in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ends, lambda *_: server.stop())
    print(f"listening on http://{arguments.host}:{server.port}", flush=True)
    server.serve()
    return 0
