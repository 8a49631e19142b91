"""The process that understands and writes what the relay passes on: so that no JSON and no disk
delays a token.

It reads messages from stdin until its end, so that it writes its files whatever happens to the
relay. Signals are for the relay; while the disk is full at the end, SIGINT gives up.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import IO, Literal

import msgspec

from llama_load.errors import LlamaLoadError
from llama_load.exit_codes import INCOMPLETE
from llama_load.foreign_text import printable
from llama_load.options.server_keys import environment_key_for
from llama_load.plain_http import Session
from llama_load.record.passed_exchange import LENGTH_BYTES, RelayFigures, decoded
from llama_load.record.recorded_server import RecordedServer
from llama_load.record.recording import Recording
from llama_load.record.token_blocks import EstimatedTokens, FirstThatCan, ServerTokens
from llama_load.units import quantity

RETRY_S = 2.0
# The relay, the clients and the server come first.
NICE = 10


class RecordingSettings(msgspec.Struct):
    """What the process is to do: its one argument, as JSON. `to`: the server's base URL."""

    to: str
    out: str
    mode: Literal["texts", "digest"] = "texts"


def main() -> int:
    """Record until stdin ends. Exit code 3 if something could not be written."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.nice(NICE)
    settings = msgspec.json.decode(sys.argv[1], type=RecordingSettings)
    session = Session(environment_key_for(settings.to))
    url = settings.to.removesuffix("/v1")
    tokens = None
    counter = None
    if settings.mode == "digest":
        tokens = FirstThatCan(ServerTokens(session, url), EstimatedTokens())
    else:
        counter = ServerTokens(session, url)
    server = RecordedServer(url, session)
    try:
        recording = Recording(
            Path(settings.out),
            _say,
            tokens,
            server,
            counter,
        )
    except LlamaLoadError as error:
        print(
            f"llama-load: {printable(str(error))}",
            file=sys.stderr,
            flush=True,
        )
        return error.exit_code
    print("ready", flush=True)
    figures = _record(sys.stdin.buffer, recording)
    recording.write_conversations()
    recording.write()  # before anything else can go wrong
    recording.write_turns()
    is_written = _written(recording)
    for line in recording.summary(figures):
        _say(line)
    recording.close()
    return 0 if is_written else INCOMPLETE


def _say(line: str) -> None:
    print(
        printable(line),
        file=sys.stderr,
        flush=True,
    )


def _record(source: IO[bytes], recording: Recording) -> RelayFigures | None:
    figures = None
    while True:
        length = source.read(LENGTH_BYTES)
        if len(length) < LENGTH_BYTES:
            return figures
        size = int.from_bytes(length, "big")
        body = source.read(size)
        if len(body) < size:  # the relay was killed
            return figures
        message = decoded(body)
        if isinstance(message, RelayFigures):
            figures = message
        else:
            recording.take(message)


def _written(recording: Recording) -> bool:
    """Write the files; while there is no room, wait for some. False: somebody gave up."""
    why = recording.write()
    if not why:
        return True
    _say(
        f"{why}: {quantity(recording.unwritten(), 'line')} of the recording wait in memory; make "
        "room, or press Ctrl-C to lose them"
    )
    given_up: list[int] = []

    def give_up(number: int, _: FrameType | None) -> None:
        given_up.append(number)

    signal.signal(signal.SIGINT, give_up)
    signal.signal(signal.SIGTERM, give_up)
    while not given_up:
        time.sleep(RETRY_S)
        if not recording.write():
            return True
    _say(f"{quantity(recording.unwritten(), 'line')} of the recording lost: {why}")
    return False


if __name__ == "__main__":
    sys.exit(main())
