"""The process that understands and writes what the relay passes on: so that no JSON and no disk
delays a token.

It reads messages from stdin until its end, so that it writes its files whatever happens to the
relay. Conversations are written as they rest. A signal asks for the end: all of them are written at
once, and then what still waits is read; a second one gives that up, and while the disk is full at
the end what is not written.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from io import FileIO
from pathlib import Path
from types import FrameType
from typing import Literal

import msgspec

from llama_load.ground.errors import LlamaLoadError
from llama_load.ground.exit_codes import INCOMPLETE
from llama_load.ground.units import quantity
from llama_load.loadgen.options.server_keys import environment_key_for
from llama_load.outside.foreign_text import printable
from llama_load.outside.plain_http import Session
from llama_load.record.passed_exchange import LENGTH_BYTES, RelayFigures, decoded
from llama_load.record.recorded_server import RecordedServer
from llama_load.record.recording import Recording
from llama_load.servers.token_blocks import EstimatedTokens, FirstThatCan, ServerTokens

RETRY_S = 2.0
# How often conversations that rest are looked for while nothing comes.
LOOK_S = 0.5
# A terminal's Ctrl-C comes twice: from the terminal, and from the relay.
SAME_SIGNAL_S = 1.0
# The relay, the clients and the server come first.
NICE = 10


class RecordingSettings(msgspec.Struct):
    """What the process is to do: its one argument, as JSON. `to`: the server's base URL."""

    to: str
    out: str
    mode: Literal["texts", "digest"] = "texts"


def main() -> int:
    """Record until stdin ends. Exit code 3 if something could not be written."""
    interrupts = Interrupts()
    signal.signal(signal.SIGINT, interrupts.came)
    signal.signal(signal.SIGTERM, interrupts.came)
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
        recording = Recording(Path(settings.out), _say, tokens, server, counter)
    except LlamaLoadError as error:
        print(f"llama-load: {printable(str(error))}", file=sys.stderr, flush=True)
        return error.exit_code
    print("ready", flush=True)
    messages = FileIO(sys.stdin.fileno(), closefd=False)
    figures = record_all(messages, recording, interrupts)
    recording.write_conversations()
    recording.write()  # before anything else can go wrong
    recording.write_turns()
    is_written = _written(recording)
    for line in recording.summary(figures):
        _say(line)
    recording.close()
    return 0 if is_written else INCOMPLETE


def _say(line: str) -> None:
    print(printable(line), file=sys.stderr, flush=True)


class Interrupts:
    """Signals that ask for the end. The relay is asked as well, and ends what comes from it."""

    def __init__(self) -> None:
        self.is_new = False  # since it was last looked at
        self.gives_up = False  # asked again
        self._first_s: float | None = None

    def came(self, _number: int, _: FrameType | None) -> None:
        """A handler of signals."""
        now_s = time.monotonic()
        if self._first_s is None:
            self._first_s = now_s
            self.is_new = True
        elif now_s - self._first_s > SAME_SIGNAL_S:
            self.gives_up = True


def record_all(
    source: FileIO, recording: Recording, interrupts: Interrupts
) -> RelayFigures | None:
    """Take what comes, until its end; meanwhile write what rests, and all of it when somebody asks
    for the end: exchanges that still wait may take long to read."""
    figures = None
    while True:
        while not select.select([source], [], [], LOOK_S)[0]:
            _save(recording, interrupts)
        _save(recording, interrupts)
        length = _read_exactly(source, LENGTH_BYTES)
        size = int.from_bytes(length, "big")
        body = _read_exactly(source, size)
        if len(length) < LENGTH_BYTES or len(body) < size:  # also: the relay was killed
            return figures
        message = decoded(body)
        if isinstance(message, RelayFigures):
            figures = message
        elif interrupts.gives_up:
            recording.leave_unread()
        else:
            recording.take(message)


def _save(recording: Recording, interrupts: Interrupts) -> None:
    if interrupts.is_new:
        interrupts.is_new = False
        recording.save()
    else:
        recording.save_rested()


def _read_exactly(source: FileIO, size: int) -> bytes:
    """So many bytes; fewer at the end."""
    pieces = []
    while size:
        piece = source.read(size)
        if not piece:
            break
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


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
