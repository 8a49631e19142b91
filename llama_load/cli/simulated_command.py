"""`llama-load serve --simulated`: a server without a model, on a known schedule."""

from __future__ import annotations

import argparse
import signal
from pathlib import Path

from llama_load.cli.parser import LARGEST_SEED, LONGEST_MS, MOST_REQUESTS, MOST_TOKENS, Parser, number, whole
from llama_load.errors import UsageError


def add_simulated(serve: Parser) -> None:
    """Add --simulated and the flags that go with it."""
    serve.add_argument(
        "--simulated", action="store_true", help="no model: send tokens on a known schedule, for tests of timing and faults"
    )
    simulated = serve.add_argument_group("with --simulated")
    simulated.add_argument(
        "--first-token-ms",
        type=number(0, LONGEST_MS),
        default=100.0,
        help="time from getting a slot to the first token, ms (default 100)",
    )
    simulated.add_argument("--interval-ms", type=number(0, LONGEST_MS), default=20.0, help="time between tokens, ms (default 20)")
    simulated.add_argument(
        "--jitter-ms", type=number(0, LONGEST_MS), default=0.0, help="move every token by up to this time, ms (default 0)"
    )
    simulated.add_argument(
        "--tokens",
        type=whole(1, MOST_TOKENS),
        default=64,
        help="answer length in tokens if a request has no max_tokens (default 64)",
    )
    simulated.add_argument(
        "--lengths",
        default="asked",
        choices=("asked", "geometric"),
        help="geometric: draw answer lengths, mean --tokens; asked: use max_tokens (default asked)",
    )
    simulated.add_argument(
        "--merge", type=whole(1, MOST_TOKENS), default=1, help="tokens written to the socket together (default 1)"
    )
    simulated.add_argument(
        "--fault", default="", help="fault to inject: cut, reset, stall, error, garbage, no-finish, no-done, empty or status"
    )
    simulated.add_argument(
        "--fault-every", type=whole(1, MOST_REQUESTS), default=1, help="inject the fault into every n-th request (default 1: all)"
    )
    simulated.add_argument(
        "--fault-after", type=whole(0, MOST_TOKENS), default=0, help="tokens to send before the fault (default 0)"
    )
    simulated.add_argument("--status", type=whole(200, 599), default=500, help="HTTP status of the fault 'status' (default 500)")
    simulated.add_argument(
        "--stall-at-s", type=number(0, LONGEST_MS), default=0.0, help="seconds from the first request to the stall (default 0)"
    )
    simulated.add_argument(
        "--stall-s",
        type=number(0, LONGEST_MS),
        default=0.0,
        help="length of the stall in seconds: nothing is sent (default 0: no stall)",
    )
    simulated.add_argument(
        "--seed",
        type=whole(-LARGEST_SEED, LARGEST_SEED),
        default=0,
        help="random seed of the jitter and of drawn lengths (default 0)",
    )
    simulated.add_argument(
        "--cached-tokens",
        type=whole(-1, MOST_TOKENS),
        default=0,
        help="cached prompt tokens to report per prompt (default 0; -1: report none)",
    )
    simulated.add_argument("--log", type=Path, help="file for the log: one JSON line per request, with its receive and send times")


def serve_simulated(arguments: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM."""
    from llama_load.serving.simulated import SimulatedServer
    from llama_load.serving.simulated_schedule import FAULTS, Schedule

    if arguments.fault and arguments.fault not in FAULTS:
        raise UsageError(f"--fault must be one of {', '.join(FAULTS)}, got {arguments.fault!r}")
    schedule = Schedule(
        first_token_s=arguments.first_token_ms / 1e3,
        interval_s=arguments.interval_ms / 1e3,
        jitter_s=arguments.jitter_ms / 1e3,
        tokens=arguments.tokens,
        merge=arguments.merge,
        slots=arguments.slots or 0,
        fault=arguments.fault,
        fault_every=arguments.fault_every,
        fault_after=arguments.fault_after,
        status=arguments.status,
        seed=arguments.seed,
        lengths=arguments.lengths,
        cached_tokens=arguments.cached_tokens,
        stall_at_s=arguments.stall_at_s,
        stall_s=arguments.stall_s,
    )
    if arguments.log is not None:
        try:
            arguments.log.open("wb").close()
        except OSError as error:
            raise UsageError(f"--log {arguments.log} cannot be written: {error.strerror}") from None
    try:
        server = SimulatedServer(schedule, arguments.host, arguments.port, arguments.log)
    except OSError as error:
        raise UsageError(f"cannot listen on {arguments.host}:{arguments.port}: {error.strerror}; choose another --port") from None
    for ends in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ends, lambda *_: server.stop())
    print(f"listening on http://{arguments.host}:{server.port}", flush=True)
    server.serve()
    return 0
