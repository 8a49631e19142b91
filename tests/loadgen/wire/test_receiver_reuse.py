"""A descriptor that is used again between the receiver's epoll_wait and its read, by a build of the
receiver that a test can stop in between."""

from __future__ import annotations

import importlib.util
import os
import time
from pathlib import Path
from typing import Any

import pytest

from llama_load.loadgen.wire.receiver import compiled_receiver
from scripts import hatch_build
from tests.conftest import REPOSITORY
from tests.loadgen.wire.test_receiver import tcp_pair, until
from tests.scripted_server import token

pytestmark = pytest.mark.skipif(
    compiled_receiver() is None,
    reason="there is no compiled receiver in this installation",
)


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The receiver compiled with RECEIVER_TESTS."""
    file = tmp_path_factory.mktemp("receiver") / "_receiver.abi3.so"
    with pytest.MonkeyPatch.context() as monkeypatch:
        flags = os.environ.get("CFLAGS", "")
        monkeypatch.setenv(
            "CFLAGS", f"{flags} -DRECEIVER_TESTS -DFEW_STREAMS=1 -DLEARNING_GAPS=1"
        )
        monkeypatch.setattr(hatch_build, "MODULE", file)
        assert hatch_build._compile(REPOSITORY) is None
    return loaded(file)


def loaded(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(
        "llama_load.loadgen.wire._receiver", file
    )
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("after", ["nothing", "silent", "with bytes", "not received"])
def test_a_descriptor_used_again_before_its_read(
    module: Any, is_kept: bool, after: str
) -> None:
    """The thread has the old connection's event when its number goes to another connection, whose
    bytes it must read once, and only where it was asked to receive it."""
    receiver = module.Receiver()
    server, client = tcp_pair()
    other_server, other = tcp_pair()
    fd = client.fileno()
    generation = receiver.add(fd)
    if is_kept:
        receiver.keep(fd)

    module.ask_pause()
    server.sendall(b"old bytes")
    module.await_pause()
    receiver.remove(fd)
    if after == "nothing":
        client.close()
    else:
        os.dup2(other.fileno(), fd)  # closes the old connection
    if after in {"silent", "with bytes"}:
        assert receiver.add(fd) != generation
    if after == "with bytes":
        other_server.sendall(token())
    module.end_pause()

    if after == "not received":
        other_server.sendall(token())
        time.sleep(0.05)  # it is not to be read
        assert receiver.collect(64) == []
        assert receiver.facts()[1] == 0
        assert other.recv(1000) == token()
    elif after == "nothing":
        assert receiver.collect(64) == []
    else:
        if after == "silent":
            time.sleep(0.05)  # nothing is to be read
            assert receiver.collect(64) == []
            other_server.sendall(token())
        until(lambda: receiver.facts()[1] == 1, "the new connection was not read")
        [(number, _, reads, _, _, ended)] = receiver.collect(64)
        assert (number, reads, ended) == (fd, [token()], 0)
        receiver.remove(fd)
    receiver.stop()
    for sock in (server, client, other_server, other):
        sock.close()
