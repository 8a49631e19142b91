"""Every port that we listen on bounds silent connections, heads of requests and strangers, and has a
test of it; nothing else listens."""

from __future__ import annotations

import ast
from collections.abc import Iterable

import pytest

from tests.conftest import REPOSITORY
from tests.repository.source import (
    functions,
    name_in_package,
    nodes_of,
    package_files,
    written,
)

CALLS = {
    "bind",
    "bind_to_random_port",
    "create_server",
    "start_server",
    "serve_forever",
    "TCPServer",
    "HTTPServer",
    "ThreadingHTTPServer",
    "StreamServer",
    "WSGIServer",
}
_IDLE = "tests/loadgen/swarm/test_idle_connections.py"
_ENDS = f"{_IDLE}::test_a_run_ends_whatever_connects"
_SILENT = f"{_IDLE}::test_a_head_that_does_not_come_is_not_waited_for"
_WORK = "tests/test_work_before_trust.py::test_a_refused_request_costs_little_whatever_stands_in_its_fields"  # fmt: skip
_EXPORTER = "tests/telemetry/test_exporter.py"
# The modules that listen, and the tests that silent or too many connections end nothing there.
DOORS: dict[str, list[str]] = {
    # of Locust's page, ours in it, and --metrics-port
    "page/bounded_server.py": [_ENDS, _SILENT, _WORK],
    # of a master, for its workers
    "loadgen/swarm/sockets.py": [
        _ENDS,
        f"{_IDLE}::test_a_master_that_prepares_its_run_lets_nobody_in",
        "tests/loadgen/swarm/test_sockets.py::test_strangers_cost_neither_memory_nor_silence",
    ],
    # of `llama-load record`
    "record/relay.py": [
        _WORK,
        "tests/record/test_relay.py::test_silent_connections_of_a_recording_keep_nobody_out",
        "tests/record/test_relay.py::test_clients_of_a_recording_that_say_nothing_are_cut_off",
    ],
    # of `llama-load telemetry`
    "telemetry/exporter.py": [
        _WORK,
        f"{_EXPORTER}::test_silent_connections_keep_nobody_out",
        f"{_EXPORTER}::test_clients_that_say_nothing_are_cut_off",
    ],
}
# Modules that listen, or bind a socket, and why nobody is let in there.
OTHERS = {
    "loadgen/swarm/ports.py": "binds a port without listening on it",
    "servers/local_ports.py": "binds a port without listening on it",
    "servers/serving/simulated.py": "the simulated server: a measuring instrument, on loopback",
    "cli/telemetry_command.py": "serves by the exporter",
}


def listens(nodes: Iterable[ast.AST]) -> bool:
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            names = [written(base) for base in node.bases]
        elif isinstance(node, ast.Call):
            names = [written(node.func)]
            # a method of ours has a listener; a socket has a backlog or nothing
            constant = all(isinstance(word, ast.Constant) for word in node.args)
            if names[0].endswith(".listen") and constant:
                return True
        else:
            continue
        if any(name.rpartition(".")[2] in CALLS for name in names):
            return True
    return False


def test_nothing_else_listens() -> None:
    """A new listener is a `BoundedServer`, or comes into the list with its limits and tests."""
    found = {
        name_in_package(path) for path in package_files() if listens(nodes_of(path))
    }
    assert found == DOORS.keys() | OTHERS.keys()


@pytest.mark.parametrize(
    "test", sorted({test for tests in DOORS.values() for test in tests})
)
def test_each_door_has_its_tests(test: str) -> None:
    file, _, name = test.partition("::")
    assert name in functions(REPOSITORY / file)


@pytest.mark.parametrize(
    "code",
    [
        "sock.listen()",
        "sock.listen(5)",
        "socket.create_server(('', 1))",
        "class Page(http.server.ThreadingHTTPServer): pass",
        "pywsgi.WSGIServer(('', 1), answer).start()",
        "router.bind('tcp://*:1')",
    ],
)
def test_a_new_listener_is_found(code: str) -> None:
    assert listens(ast.walk(ast.parse(code)))


def test_a_listener_of_signals_is_none() -> None:
    assert not listens(ast.walk(ast.parse("SIGNALS.listen(self._interrupted)")))
