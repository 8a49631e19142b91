"""`llama-load serve`: start, watch and stop llama-server, vLLM, llama-cpp-python, an RPC cluster or
the embedded llama-server."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import socket
import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from llama_load.cli.parser import MOST_TOKENS, Parser, number_between, whole_between
from llama_load.cli.simulated_command import add_simulated, serve_simulated
from llama_load.ground.errors import RunError, UsageError

if TYPE_CHECKING:
    from llama_load.servers.kinds import ServerSpec, ServerStart
    from llama_load.servers.serving.cold_start import ColdStart
    from llama_load.servers.serving.launch import Server

DESCRIPTION = (
    "Start a server, wait until it is ready, and stop it with Ctrl-C. A load test against its port "
    "then finds its log and process: the report shows model, layers, buffers and memory, and a "
    "server that dies ends the run with its last words. What stands after -- goes to the server as "
    "it is. Nothing is left behind, even if this command is killed."
)


def add_serve(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the subcommand."""
    from llama_load.servers.kinds import STARTS
    from llama_load.servers.kinds.server_start import READY_WITHIN_S

    serve = commands.add_parser(
        "serve",
        usage="llama-load serve [KIND] [options] [-- SERVER FLAGS]",
        help="start llama-server, vLLM, llama-cpp-python, an RPC cluster, the embedded "
        "llama-server or a simulated server",
        description=DESCRIPTION,
        examples={
            "The embedded llama-server with a small random model": "llama-load serve",
            "Your llama-server, with its own flags": (
                "llama-load serve llama-server --model model.gguf -- -ngl 99 -c 16384 -np 4"
            ),
            "Pinned, with a scheduler beside it": (
                "llama-load serve llama-server --model model.gguf "
                '--wrap "numactl --interleave=3" --alongside scx_rusty'
            ),
            "An RPC cluster: two workers here, one elsewhere": (
                "llama-load serve llama-server --model model.gguf --rpc-workers 2 "
                "--rpc 192.168.1.7:50052"
            ),
            "vLLM": "llama-load serve vllm --model Qwen/Qwen3-0.6B -- --max-num-seqs 16",
            "Cold start, five times": (
                "llama-load serve llama-server --model model.gguf --cold-start 5"
            ),
            "A simulated server: first token after 200 ms, then one every 10 ms": (
                "llama-load serve --simulated --first-token-ms 200 --interval-ms 10"
            ),
        },
    )
    serve.add_argument(
        "kind",
        nargs="?",
        choices=STARTS,
        metavar="KIND",
        help=f"{', '.join(STARTS)} (default embedded)",
    )
    serve.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)"
    )
    serve.add_argument(
        "--port",
        type=whole_between(0, 65535),
        default=8080,
        help="port to listen on, 0 for a free one (default 8080)",
    )
    serve.add_argument(
        "--model",
        default="",
        help="a .gguf file; vllm: a folder or a name of Hugging Face (embedded: default a small "
        "random model)",
    )
    serve.add_argument(
        "--program",
        default="",
        metavar="PATH",
        help="path of llama-server or vllm, or the Python that has llama_cpp (default: PATH)",
    )
    serve.add_argument(
        "--slots",
        type=whole_between(1, 10**4),
        help="slots: requests served at the same time (embedded: default 4)",
    )
    serve.add_argument(
        "--ctx-per-slot",
        type=whole_between(1, MOST_TOKENS),
        help="context of a slot in tokens (embedded: default 4096)",
    )
    serve.add_argument(
        "--threads",
        type=whole_between(1, 1024),
        help="number of compute threads (embedded: default 1)",
    )
    serve.add_argument(
        "--api-key",
        default="",
        help="API key that requests must have; better in the environment as "
        "LLAMA_LOAD_SERVER_API_KEY",
    )
    serve.add_argument(
        "--vision",
        action="store_true",
        help="embedded: add a small random vision projector, to accept images",
    )
    serve.add_argument(
        "--embeddings",
        action="store_true",
        help="embedded: serve /v1/embeddings instead of chat",
    )
    serve.add_argument(
        "--reranking",
        action="store_true",
        help="embedded: serve /v1/rerank instead of chat",
    )

    around = serve.add_argument_group(
        "around the server (commands are split as a shell would, but no shell runs them)"
    )
    around.add_argument(
        "--wrap",
        default="",
        metavar="CMD",
        help="put before the server's command: taskset -c 0-7, nice, chrt, numactl",
    )
    for flag, metavar, text in (
        ("--alongside", "CMD", "started before the server, watched, stopped after it"),
        ("--set-up", "CMD", "run before everything else (power mode, clocks)"),
        ("--clean-up", "CMD", "always run at the end"),
        ("--env", "NAME=VALUE", "environment of the server"),
    ):
        around.add_argument(
            flag,
            action="append",
            default=[],
            metavar=metavar,
            help=f"{text}; repeatable",
        )
    around.add_argument(
        "--ready-within",
        type=number_between(0.1, 86400),
        default=READY_WITHIN_S,
        metavar="S",
        help="time limit of the start (default 600 s)",
    )
    around.add_argument(
        "--logs",
        type=Path,
        metavar="FOLDER",
        help="folder for server.log and the others (default: in the cache folder)",
    )

    rpc = serve.add_argument_group("RPC cluster (llama-server and llama-cpp-python)")
    rpc.add_argument(
        "--rpc-workers",
        type=whole_between(0, 64),
        default=0,
        metavar="N",
        help="start this many RPC workers on this machine",
    )
    rpc.add_argument(
        "--rpc",
        default="",
        metavar="HOST:PORT,…",
        help="RPC workers that run already; never on an open network",
    )
    rpc.add_argument(
        "--rpc-worker",
        default="",
        metavar="CMD",
        help="command of a worker without address (default: ggml-rpc-server beside llama-server)",
    )

    serve.add_argument(
        "--cold-start",
        type=whole_between(1, 100),
        metavar="N",
        help="instead of serving: start it N times with the model dropped from the page cache "
        "and N times with it cached; print "
        "the times to ready and to the first token",
    )
    add_simulated(serve)
    serve.set_defaults(run=_serve)


def _serve(arguments: argparse.Namespace) -> int:
    try:
        socket.getaddrinfo(arguments.host, arguments.port)
    except (OSError, UnicodeError):
        raise UsageError(
            f"--host must be an address of this machine, such as 127.0.0.1, got {arguments.host!r}"
        ) from None
    if arguments.simulated:
        if arguments.kind is not None or arguments.after_dashes:
            raise UsageError(
                "--simulated has no model: leave out KIND and what stands after --"
            )
        return serve_simulated(arguments)
    return _cold_start(arguments) if arguments.cold_start else _serve_real(arguments)


def _serve_real(arguments: argparse.Namespace) -> int:
    from llama_load.servers.local_ports import free_port, refuse_taken
    from llama_load.servers.serving import registry
    from llama_load.servers.serving.launch import serving

    refuse_taken(arguments.host, arguments.port)
    port = arguments.port or free_port(arguments.host)
    spec = _spec(arguments, port)
    with serving(spec, arguments.logs or registry.log_folder(port)) as server:
        # SIGTERM ends the block as Ctrl-C does; and SIGINT does, which a shell lets a command
        # behind `&` ignore.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for line in _ready_lines(server, spec):
            print(line, flush=True)
        try:
            raise RunError(server.wait())
        except KeyboardInterrupt:
            print("\nstopping the server …", file=sys.stderr, flush=True)
    return 0


def _cold_start(arguments: argparse.Namespace) -> int:
    from llama_load.servers.serving.cold_start import measure

    def show(start: ColdStart) -> None:
        cached = "" if start.cached is None else f"{start.cached:.0%}"
        print(
            f"{start.page_cache:<10} {cached:>8} {start.ready_s:>10.3f} "
            f"{start.first_token_s:>16.3f}",
            flush=True,
        )

    spec = _spec(arguments, 0)
    print(
        "Starts, in seconds from the start of the process; cached: share of the model's files in "
        "the page cache before it."
    )
    print(
        f"{'page cache':<10} {'cached':>8} {'ready (s)':>10} {'first token (s)':>16}",
        flush=True,
    )
    with ExitStack() as stack:
        folder = arguments.logs or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="llama-load-"))
        )
        starts = measure(spec, arguments.cold_start, folder, show)
    for line in _mean_lines(starts):
        print(line)
    return 0


def _mean_lines(starts: Sequence[ColdStart]) -> Iterable[str]:
    """Mean and standard deviation (ddof 1) for each state of the page cache."""
    for page_cache in dict.fromkeys(start.page_cache for start in starts):
        own = [start for start in starts if start.page_cache == page_cache]
        texts = [
            _mean_text([start.ready_s for start in own]),
            _mean_text([start.first_token_s for start in own]),
        ]
        yield (
            f"page cache {page_cache}: ready after {texts[0]} s, first token after {texts[1]} "
            f"s (mean ± std of {len(own)})"
        )
    if any(start.page_cache == "as it was" for start in starts):
        yield (
            "as it was: the model is not a file of this machine, or another process keeps it "
            "in the page cache"
        )


def _mean_text(values: list[float]) -> str:
    std = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.3f}{std}"


def _ready_lines(server: Server, spec: ServerSpec) -> Iterable[str]:
    """What is ready, what it is made of, and how to test it."""
    from llama_load.analysis.reports.server_section import buffer_lines, server_rows
    from llama_load.run_folder.observed.server_description import ServerDescription
    from llama_load.servers.serving.describe import described, read_log_file

    yield f"{spec.kind} is ready at {server.url} after {server.start_s:.2f} s"
    base = ServerDescription(url=server.url, backend=spec.kind)
    facts = described(base, server.command, read_log_file(server.log), server.rpc)
    for name, text in server_rows(facts):
        yield f"  {name + ':':<13} {text}"
    yield from (f"  {line}" for line in buffer_lines(facts))
    yield f"  {'Log:':<13} {server.log}"
    key = " --api-key …" if spec.api_key else ""
    key += " --insecure" if server.url.startswith("https:") else ""
    yield "Load test, in another terminal:"
    yield f"  llama-load run {server.url}{key} -u 4 -n 64"
    yield "Ctrl-C stops the server."


def _spec(arguments: argparse.Namespace, port: int) -> ServerSpec:
    from llama_load.servers.kinds import STARTS, ServerSpec
    from llama_load.servers.kinds.server_start import DEFAULT_START, SERVER_KEY

    env = dict(word.partition("=")[::2] for word in arguments.env)
    if wrong := [
        word for word in arguments.env if "=" not in word or word.startswith("=")
    ]:
        raise UsageError(f"--env takes NAME=VALUE, got {wrong[0]!r}")
    kind = arguments.kind or DEFAULT_START
    return ServerSpec(
        kind=kind,
        model=arguments.model,
        program=arguments.program,
        args=(*_own_flags(STARTS[kind], arguments), *arguments.after_dashes),
        host=arguments.host,
        port=port,
        env=env,
        api_key=arguments.api_key or os.environ.get(SERVER_KEY, ""),
        wrap=_words_of_flag(arguments.wrap, "--wrap"),
        alongside=tuple(
            _words_of_flag(word, "--alongside") for word in arguments.alongside
        ),
        set_up=tuple(_words_of_flag(word, "--set-up") for word in arguments.set_up),
        clean_up=tuple(
            _words_of_flag(word, "--clean-up") for word in arguments.clean_up
        ),
        rpc=tuple(part for part in arguments.rpc.split(",") if part),
        rpc_workers=arguments.rpc_workers,
        rpc_worker=_words_of_flag(arguments.rpc_worker, "--rpc-worker"),
        ready_within_s=arguments.ready_within,
    )


def _own_flags(start: ServerStart, arguments: argparse.Namespace) -> list[str]:
    """Our flags for slots, context, threads and APIs as those of llama.cpp. UsageError: the server
    has none of these."""
    switches = [
        name
        for name in ("vision", "embeddings", "reranking")
        if getattr(arguments, name)
    ]
    if switches and not start.makes_model:
        raise UsageError(
            f"--{switches[0]} is for the embedded server; give {start.name} its own flags after --"
        )
    sizes = (arguments.slots, arguments.ctx_per_slot, arguments.threads)
    flags = start.size_flags(*sizes)
    if flags is None and any(sizes):
        raise UsageError(
            f"--slots, --ctx-per-slot and --threads are flags of llama.cpp; give {start.name} "
            "its own after --"
        )
    flags = [*(flags or ()), *(f"--{name}" for name in switches if name != "vision")]
    if not arguments.vision:
        return flags
    from llama_load.servers.serving.model_maker import ModelSize
    from llama_load.servers.serving.projector_maker import cached_projector

    return [*flags, "--mmproj", str(cached_projector(ModelSize().dim))]


def _words_of_flag(text: str, flag: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"{flag}: {error} in {text!r}") from None
