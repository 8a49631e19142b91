"""`llama-load telemetry`: GPUs, host and meter of this machine, for a load test that runs on
another one."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from typing import Any

from llama_load.cli.parser import whole_between
from llama_load.ground.errors import UsageError
from llama_load.outside.foreign_text import keep_secret

TOKEN = "LLAMA_LOAD_SCRAPE_TOKEN"  # noqa: S105 - the name of a variable
DEFAULT_LISTEN = "127.0.0.1:9410"
LEAST_TOKEN_CHARS = 8


def add_telemetry(commands: Any) -> None:
    """Add the subcommand to the parser."""
    telemetry = commands.add_parser(
        "telemetry",
        help="serve this machine's GPU, CPU and power figures to a load test on another machine",
        description="A Prometheus exporter at /metrics: GPUs (NVIDIA, AMD), CPU, memory, "
        "network, and a meter. A load test "
        "elsewhere reads it with --scrape http://THIS-MACHINE:PORT. To listen on other addresses "
        "than loopback, set a token in "
        f"{TOKEN}, here and there.",
        examples={
            "For a load test on this machine": "llama-load telemetry",
            "For a load test elsewhere (set the token first)": "llama-load telemetry --listen "
            "0.0.0.0:9410 --server-port 8080",
            "With a power meter": "llama-load telemetry --power-command 'python3 read_meter.py'",
        },
    )
    telemetry.add_argument(
        "--listen",
        default=DEFAULT_LISTEN,
        metavar="HOST:PORT",
        help=f"where to listen (default {DEFAULT_LISTEN}; port 0: a free one)",
    )
    telemetry.add_argument(
        "--power-command",
        default="",
        metavar="COMMAND",
        help='a command that prints {"watts": …} or {"joules": …}, a line a sample',
    )
    telemetry.add_argument(
        "--server-port",
        type=whole_between(1, 65535),
        action="append",
        default=[],
        metavar="PORT",
        help="port of the server under test on this machine, to tell its GPUs, memory and CPU "
        "from others'; can be repeated",
    )
    telemetry.set_defaults(run=_telemetry)


def _telemetry(arguments: argparse.Namespace) -> int:
    from llama_load.loadgen.options.telemetry_flags import power_command
    from llama_load.servers.local_ports import is_loopback
    from llama_load.telemetry.all_sources import machine_sources
    from llama_load.telemetry.exporter import PATH, Exporter, Page
    from llama_load.telemetry.server_processes import ServerProcesses

    host, port = _address(arguments.listen)
    token = os.environ.get(TOKEN, "").strip() or None
    if token is None and not is_loopback(host):
        raise UsageError(
            f"--listen {arguments.listen} is open to other machines: set a token in {TOKEN}, "
            "here and where the load test runs"
        )
    if token is not None and len(token) < LEAST_TOKEN_CHARS:
        raise UsageError(
            f"the token in {TOKEN} must have at least {LEAST_TOKEN_CHARS} characters"
        )
    keep_secret([token or ""])
    faults: list[str] = []
    command = power_command(arguments.power_command, faults)
    if faults:
        raise UsageError(faults[0])
    servers = ServerProcesses(arguments.server_port) if arguments.server_port else None
    sources = machine_sources(
        servers, command, lambda note: print(note, file=sys.stderr, flush=True)
    )
    try:
        exporter = Exporter(host, port, Page(sources), token)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(
            f"cannot listen on {arguments.listen}: {why}; choose another --listen"
        ) from None
    for ends in (signal.SIGINT, signal.SIGTERM):
        signal.signal(
            ends, lambda *_: threading.Thread(target=exporter.shutdown).start()
        )
    shown = f"[{host}]" if ":" in host else host
    names = ", ".join(source.name for source in sources)
    print(f"{names} at http://{shown}:{exporter.server_address[1]}{PATH}", flush=True)
    exporter.serve_forever()
    for source in sources:
        source.close()
    return 0


def _address(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`, `[::1]:PORT` or `:PORT` (all addresses)."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise UsageError(
            f"--listen must be HOST:PORT, such as {DEFAULT_LISTEN}, got {text!r}"
        )
    return host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port)  # noqa: S104 - asked for, and needs a token
