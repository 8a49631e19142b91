"""When a run ends because of its servers: servers and clock are made up."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from llama_load.loadgen.run.run_clock import RunClock
from llama_load.loadgen.run.servers_watcher import ServersWatcher


@dataclass(eq=False)
class Server:
    """A server of this machine, or of another one (`can_be_watched` False)."""

    name: str
    can_be_watched: bool = True
    is_gone: bool = False

    @property
    def target(self) -> Any:
        return SimpleNamespace(address=SimpleNamespace(url=f"http://{self.name}"))

    def has_ended(self) -> bool:
        return self.is_gone


class Case:
    """A watch over servers; `at(seconds)` is what it finds then."""

    def __init__(self, *servers: Any) -> None:
        self.now_s = 100.0
        self.again: dict[str, Server] = {}
        run: Any = SimpleNamespace(clock=RunClock(lambda: round(self.now_s * 1e9)))
        self.watch: Any = ServersWatcher(
            run, servers, 10.0, lambda old: self.again.get(old.name, old)
        )

    def at(self, seconds: float) -> bool:
        self.now_s = 100.0 + seconds
        return bool(self.watch.none_is_left())


def test_the_last_server_has_a_time_of_grace() -> None:
    server = Server("a")
    case = Case(server)
    assert not case.at(5)
    server.is_gone = True
    assert not case.at(6)
    assert not case.at(15.9)
    assert case.at(16)


def test_a_server_that_is_started_again_in_time_goes_on() -> None:
    server = Server("a")
    case = Case(server)
    server.is_gone = True
    assert not case.at(6)
    case.again["a"] = Server("a")
    assert not case.at(10)
    assert not case.at(100)
    assert case.watch._gaps == [
        "its process ended during the run and was started again 4.0 s later (10 s after the start of the run)"
    ]
    case.again["a"].is_gone = True
    assert not case.at(101)
    assert case.at(111)


@pytest.mark.parametrize(
    "other", [Server("b"), Server("b", can_be_watched=False)], ids=["here", "elsewhere"]
)
def test_one_of_several_does_not_end_the_run(other: Server) -> None:
    lost = Server("a", is_gone=True)
    case = Case(lost, other)
    assert not any(case.at(seconds) for seconds in (1, 20, 1000))
    other.is_gone = True
    case.at(1001)
    assert case.at(1011) == other.can_be_watched


def test_a_server_that_is_still_being_stopped_is_not_back() -> None:
    """Its process listens until its supervisor has stopped it."""
    server = Server("a", is_gone=True)
    case = Case(server)
    case.again["a"] = server
    assert not case.at(1)
    assert case.at(11)
