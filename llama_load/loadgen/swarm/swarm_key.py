"""The swarm key: what master and workers share, and the ZeroMQ CURVE keys made of it.

The master's key pair is derived from the swarm key by scrypt, so both sides know the public half.
CURVE lets nobody in who does not know it, and encrypts everything. A guess costs an attacker 0.1 s
and 32 MiB, and he needs a recording of the traffic to check it: the master does not answer a peer
with another key.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from typing import Any

import zmq
from zmq.utils import z85

from llama_load.ground.errors import UsageError
from llama_load.loadgen.options.flag_reader import FlagReader
from llama_load.loadgen.options.secret_flags import secret_values

LEAST_CHARACTERS = 16
SAME_KEY = "give master and workers the same LLAMA_LOAD_SWARM_KEY"
_COST = 2**15  # scrypt's n
_BLOCK = 8  # scrypt's r
# the same everywhere: both sides know only the swarm key
_SALT = b"llama-load swarm key 2"


@dataclass(frozen=True, slots=True)
class CurveKeys:
    """The master's key pair, in ZeroMQ's Z85."""

    public: bytes
    secret: bytes

    def on_master(self, socket: Any) -> None:
        """Let only peers in that know the public key. Before `bind`."""
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.secret)

    def on_worker(self, socket: Any) -> None:
        """Connect only to a master that has the secret key. Before `connect`."""
        public, secret = zmq.curve_keypair()
        socket.setsockopt(zmq.CURVE_SERVERKEY, self.public)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, public)
        socket.setsockopt(zmq.CURVE_SECRETKEY, secret)


@cache
def curve_keys(swarm_key: str) -> CurveKeys:
    """The master's keys. Raises UsageError if the swarm key is too short, or ZeroMQ cannot
    encrypt."""
    if len(swarm_key) < LEAST_CHARACTERS:
        least = f"at least {LEAST_CHARACTERS} characters"
        raise UsageError(
            f"the swarm key must have {least}, got {len(swarm_key)}: make one with 'openssl rand -hex 32'"
        )
    if not zmq.has("curve"):
        raise UsageError(
            f"this ZeroMQ ({zmq.zmq_version()}) has no CURVE, so the swarm cannot be encrypted: install pyzmq from PyPI "
            "or, on one machine that you trust, start master and workers without a swarm key and with --master-bind-host 127.0.0.1"
        )
    memory = 256 * _COST * _BLOCK
    seed = hashlib.scrypt(
        swarm_key.encode(), salt=_SALT, n=_COST, r=_BLOCK, p=1, maxmem=memory, dklen=32
    )
    secret = z85.encode(seed)
    return CurveKeys(zmq.curve_public(secret), secret)


def refuse_open_network(options: Any, host: str) -> None:
    """Without a swarm key anybody may be the master at `host`: on loopback, too, whoever bound the
    port first. Raises UsageError if this worker has keys for servers."""
    if secret_values(FlagReader(options), for_servers=True):
        raise UsageError(
            f"this worker has keys for the server and would use them for whoever listens as the master at {host}, because it "
            f"has no swarm key: {SAME_KEY}, or use --processes on one machine"
        )
