"""`llama-load record`: a proxy between clients and a server that records their traffic."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

from llama_load.cli.parser import Parser, whole_between
from llama_load.ground.errors import RunError, UsageError
from llama_load.ground.own_modules import module_command
from llama_load.outside.foreign_text import keep_secret

if TYPE_CHECKING:
    from llama_load.servers.address import Address

KEY = "LLAMA_LOAD_RECORD_KEY"
DEFAULT_PORT = 8081
LEAST_KEY_CHARS = 16
# A server that does not take a connection as the recording begins is reported.
LOOK_WITHIN_S = 2.0


def add_record(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the subcommand."""
    record = commands.add_parser(
        "record",
        help="record your own traffic: a proxy between your clients and a server, whose "
        "recording is replayed with any number of users",
        description="Listen on a port and pass everything on to a server, unchanged and "
        "unbuffered. Point your agent, editor or chat at this port instead of the server. Each "
        "request is a line here; Ctrl-C ends the recording and prints a summary. The file has "
        "whole conversations: turns, waits, tool calls with their results, sampling. Keys are "
        "never written; texts are, unless --digest. Replay conversations with "
        "locustfiles/conversations.py --dataset-path talk.jsonl -u 8, a digest with "
        "locustfiles/replay.py --trace trace.jsonl. On other addresses than loopback, clients "
        f"must send the key in {KEY} as their API key, and the server gets the one in "
        "LLAMA_LOAD_API_KEY.",
        examples={
            "Record (then set the base URL of your client to http://127.0.0.1:8081/v1)": (
                "llama-load record --to http://127.0.0.1:8080"
            ),
            "Without any text: lengths, shared prefixes, waits": "llama-load record --to "
            "http://127.0.0.1:8080 --digest --out trace.jsonl",
            "Between machines (set the keys first)": "llama-load record --to "
            "https://llm.example.com --host 0.0.0.0",
        },
    )
    record.add_argument(
        "--to",
        required=True,
        metavar="URL",
        help="the server, such as http://127.0.0.1:8080",
    )
    record.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on (default 127.0.0.1)",
    )
    record.add_argument(
        "--port",
        type=whole_between(0, 65535),
        default=DEFAULT_PORT,
        help=f"port to listen on (default {DEFAULT_PORT}; 0: a free one)",
    )
    record.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="the file to write, which must not exist (default talk.jsonl, with --digest "
        "trace.jsonl)",
    )
    record.add_argument(
        "--digest",
        action="store_true",
        help="write no text: lengths, numbers for blocks of 16 tokens, waits and roles, as a "
        "trace for replay.py",
    )
    record.add_argument(
        "--ca-file",
        type=Path,
        metavar="FILE",
        help="verify the server's certificate with the CAs in this file",
    )
    record.set_defaults(run=_record)


def _record(arguments: argparse.Namespace) -> int:
    from llama_load.loadgen.options.server_keys import environment_key_for
    from llama_load.loadgen.wire.priority import SenderPriority
    from llama_load.record.relay import Relay
    from llama_load.servers.tls import TlsOptions

    to = _server_address(arguments.to)
    key = _key_for(arguments.host)
    process = _recording(to, arguments)
    assert process.stdin is not None
    try:
        relay = Relay(
            to,
            arguments.host,
            arguments.port,
            process.stdin.fileno(),
            key=key,
            server_keys=environment_key_for(to.url),
            tls=TlsOptions(arguments.ca_file),
            priority=SenderPriority(),
        )
    except (OSError, OverflowError) as error:
        process.stdin.close()
        process.wait()
        why = getattr(error, "strerror", None) or error
        raise UsageError(
            f"cannot listen on {arguments.host}:{arguments.port}: {why}; choose another --port"
        ) from None

    def stop(*_: object) -> None:
        relay.stop()
        process.terminate()  # it writes what it has, before what still waits for it

    for ends in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ends, stop)
    host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
    print(
        f"recording http://{host}:{relay.port} to {to.url}; Ctrl-C ends it", flush=True
    )
    _report_absence(to)
    relay.serve()
    return _exit_code_of(process, process.stdin)


def _server_address(url: str) -> Address:
    """Its address. UsageError: it is none."""
    from llama_load.servers.address import parse_url

    try:
        return parse_url(url).resolved()
    except ValueError as error:
        raise UsageError(f"--to: {error}") from None
    except OSError as error:
        raise UsageError(
            f"--to: the name in {url!r} cannot be resolved: {error.strerror}"
        ) from None


def _report_absence(to: Address) -> None:
    """Print a sentence where no server takes connections yet."""
    try:
        socket.create_connection((to.host, to.port), LOOK_WITHIN_S).close()
    except OSError:
        print(
            f"nothing listens at {to.url} yet: clients get status 502 until a server does",
            file=sys.stderr,
            flush=True,
        )


def _key_for(host: str) -> str | None:
    """What clients must send. UsageError: other machines could connect without one."""
    from llama_load.servers.local_ports import is_loopback

    key = os.environ.get(KEY, "").strip() or None
    if key is None and not is_loopback(host):
        raise UsageError(
            f"--host {host} is open to other machines: set a key in {KEY}, which clients send as "
            "their API key"
        )
    if key is not None and len(key) < LEAST_KEY_CHARS:
        raise UsageError(
            f"the key in {KEY} must have at least {LEAST_KEY_CHARS} characters"
        )
    keep_secret([key or ""])
    return key


def _recording(to: Address, arguments: argparse.Namespace) -> subprocess.Popen[bytes]:
    """The recording process, ready. UsageError: it cannot write the file."""
    import msgspec

    from llama_load.record.recording_process import RecordingSettings

    default = "trace.jsonl" if arguments.digest else "talk.jsonl"
    settings = RecordingSettings(
        to=to.url,
        out=str(arguments.out or default),
        mode="digest" if arguments.digest else "texts",
    )
    process = subprocess.Popen(
        module_command(
            "llama_load.record.recording_process",
            msgspec.json.encode(settings).decode(),
        ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    if process.stdout.readline().strip() != b"ready":
        code = process.wait()
        if code == UsageError.exit_code:
            sys.exit(code)  # it has said why
        raise RunError(
            f"the recording process ended with exit code {code} as it started"
        )
    return process


def _exit_code_of(process: subprocess.Popen[bytes], messages: IO[bytes]) -> int:
    """The exit code of the recording process, once it has written its files."""
    # A further Ctrl-C is for it alone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    messages.close()
    return process.wait()
