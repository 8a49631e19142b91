"""`llama-load serve`: the embedded llama-server, or the simulated one with a known schedule."""

from __future__ import annotations

import argparse
import os
import signal
import socket
from pathlib import Path

from llama_load.bundled import bundled
from llama_load.cli_parser import LARGEST_SEED, LONGEST_MS, MOST_REQUESTS, MOST_TOKENS, Parser, number, whole
from llama_load.errors import UsageError


def add_serve(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the subcommand."""
    serve = commands.add_parser(
        "serve",
        help="start the embedded llama-server, or a simulated server with a known schedule",
        examples={
            "The embedded llama-server with a small random model": "llama-load serve",
            "Your own model with 8 slots of 8192 tokens": "llama-load serve --model model.gguf --slots 8 --ctx-per-slot 8192",
            "A simulated server: first token after 200 ms, then one every 10 ms": "llama-load serve --simulated "
            "--first-token-ms 200 --interval-ms 10",
        },
    )
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    serve.add_argument("--port", type=whole(0, 65535), default=8080, help="port to listen on, 0 for a free one (default 8080)")
    serve.add_argument("--model", type=Path, help="a .gguf file (default: a small random model, generated on first use)")
    serve.add_argument(
        "--slots", type=whole(1, 10**4), help="slots: requests served at the same time (default 4; simulated: no limit)"
    )
    serve.add_argument(
        "--ctx-per-slot", type=whole(1, MOST_TOKENS), default=4096, help="context of a slot in tokens (default 4096)"
    )
    serve.add_argument("--threads", type=whole(1, 1024), default=1, help="number of compute threads (default 1)")
    serve.add_argument(
        "--api-key", default="", help="API key that requests must have; better in the environment as LLAMA_LOAD_SERVER_API_KEY"
    )
    serve.add_argument("--vision", action="store_true", help="add a small random vision projector, to accept images")
    serve.add_argument("--embeddings", action="store_true", help="serve /v1/embeddings instead of chat")
    serve.add_argument("--reranking", action="store_true", help="serve /v1/rerank instead of chat")
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
    serve.set_defaults(run=_serve)


def _serve(arguments: argparse.Namespace) -> int:
    try:
        socket.getaddrinfo(arguments.host, arguments.port)
    except (OSError, UnicodeError):
        raise UsageError(f"--host must be an address of this machine, such as 127.0.0.1, got {arguments.host!r}") from None
    return _serve_simulated(arguments) if arguments.simulated else _serve_embedded(arguments)


def _serve_embedded(arguments: argparse.Namespace) -> int:
    from llama_load.serving.model_maker import ModelSize, cached_model
    from llama_load.serving.process import SERVER_KEY, EmbeddedServer, free_port, refuse_other_than_gguf, refuse_taken
    from llama_load.serving.projector_maker import cached_projector

    model = arguments.model or cached_model(ModelSize(), bundled("datasets/sharegpt_sample.json"))
    refuse_other_than_gguf(model)
    refuse_taken(arguments.host, arguments.port)
    server = EmbeddedServer(
        model=model,
        host=arguments.host,
        slots=arguments.slots or 4,
        ctx_per_slot=arguments.ctx_per_slot,
        threads=arguments.threads,
        api_key=arguments.api_key or os.environ.get(SERVER_KEY, ""),
        embeddings=arguments.embeddings,
        reranking=arguments.reranking,
        projector=cached_projector(ModelSize().dim) if arguments.vision else None,
    )
    command = server.command(arguments.port or free_port(arguments.host))
    os.execve(command[0], command, os.environ | server.env)  # noqa: S606 - the server replaces this process, so it gets its signals and output


def _serve_simulated(arguments: argparse.Namespace) -> int:
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
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: server.stop())
    print(f"listening on http://{arguments.host}:{server.port}", flush=True)
    server.serve()
    return 0
