"""A worker's outgoing records while the event loop and the spooling thread both work with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from llama_load.loadgen.dispatch.leases import Lease
from llama_load.loadgen.run.lease_client import LeaseClient
from llama_load.loadgen.swarm.outbox import Outbox, _Batch
from llama_load.run_folder import SpoolManifest, load_run
from llama_load.run_folder.reading import add_spool
from tests.conftest import REPOSITORY
from tests.containers import contained
from tests.make_records import record
from tests.test_spools import run_of


class _Acknowledging(_Batch):
    """A batch that is acknowledged by the event loop just when the spooling thread looks at it."""

    outbox: Outbox

    @property
    def made_s(self) -> float:
        self.outbox.acknowledged([self.number + 1])
        return 0.0

    @made_s.setter
    def made_s(self, value: float) -> None:
        pass


def test_an_acknowledgement_during_spooling_is_no_fault(tmp_path: Path) -> None:
    """It removes a batch from what the thread iterates: that ended in RuntimeError, and nothing
    more was spooled."""
    outbox = Outbox(
        tmp_path / "spool", SpoolManifest("w1", 0), lambda number, data: True
    )
    for index in range(4):
        outbox.append([record(index)])
    for number, batch in outbox._unacknowledged.items():
        racing = _Acknowledging(batch.number, batch.data, batch.keys, 0.0, 0.0)
        racing.outbox = outbox
        outbox._unacknowledged[number] = racing
    outbox.spool(0)
    assert sorted(outbox._unacknowledged) == [1, 3]
    assert outbox.all_spooled


def test_a_worker_that_ended_in_order_leaves_no_request_possibly_sent(
    tmp_path: Path,
) -> None:
    """Its spool holds every record that the master lacks: what is in neither was not sent. A spool
    that was cut short by kill -9 leaves the rest in doubt."""
    from llama_load.run_folder.observed.losses import LostWorker

    for is_complete, doubtful in ((False, [3, 4]), (True, [])):
        folder = run_of(
            tmp_path / f"run{is_complete}",
            record(0),
            lost=[LostWorker("w1", [2, 3, 4]), LostWorker("w2", [7])],
        )
        outbox = Outbox(
            tmp_path / f"spool{is_complete}",
            SpoolManifest("w1", 0),
            lambda number, data: True,
        )
        outbox.append([record(2)])
        outbox.spool(0)
        if is_complete:
            outbox.close_spool()
        run, added = add_spool(load_run(folder), outbox.path)
        assert added == 1
        assert [gone.possibly_sent for gone in run.manifest.lost] == [doubtful, [7]]


def test_a_workers_memory_does_not_grow_with_the_run(tmp_path: Path) -> None:
    """Leases come, are sent and end, and the master acknowledges their records: after 600 requests
    a worker keeps what it kept after 200, in its leases and in its records."""

    def nothing(*_: Any) -> None:
        pass

    link: Any = SimpleNamespace(
        want=nothing, started=nothing, give_back=nothing, ended=nothing, abort=nothing
    )
    client = LeaseClient(
        link=link,
        settings=link,
        targets=[link],
        beginning=None,
        measuring=nothing,
        more_users=nothing,
        heard=nothing,
    )
    outbox = Outbox(
        tmp_path / "spool", SpoolManifest("w1", 0), lambda number, data: True
    )
    sizes = []
    for index in range(600):
        client.receive(
            [
                Lease(index, False, "sharegpt", unasked=True),
                Lease(10_000 + index, False, "sharegpt", follows=True),
            ]
        )
        ticket = client.take("sharegpt")
        client.done(ticket, record(index))
        client.done(client.follow(ticket), record(10_000 + index))
        outbox.append([record(index), record(10_000 + index)])
        assert outbox.acknowledged([index + 1]) == [
            (False, index),
            (False, 10_000 + index),
        ]
        if index in (199, 599):
            sizes.append(
                contained(client._queues, outbox._unacknowledged, vars(client.link))
            )
    assert sizes[1] <= sizes[0] and client.in_flight == 0


OVERLOAD = """
from llama_load.ground.arrow import load_arrow

load_arrow()  # before anything imports Arrow: it chooses the pool
import psutil
from pathlib import Path
from llama_load.run_folder import SpoolManifest
from llama_load.loadgen.swarm.outbox import Outbox
from tests.make_records import record

outbox = Outbox(Path("spool"), SpoolManifest("w1", 0), lambda number, data: False)
records = [record(index) for index in range(10)]
outbox.append(records)
before = psutil.Process().memory_info().rss
for _ in range(900):
    outbox.append(records)
grown = psutil.Process().memory_info().rss - before
outbox.acknowledged(range(1, 902))
outbox.spool()
print(grown, psutil.Process().memory_info().rss - before)
"""


def test_the_memory_of_an_overload_is_given_back() -> None:
    """A worker whose master was behind kept 14 KiB for each batch that had waited, to the end of
    its life. In a process of its own: that of the tests has another memory pool."""
    done = subprocess.run(
        [sys.executable, "-c", OVERLOAD],
        check=True,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
    )
    grown, kept = map(int, done.stdout.split())
    assert grown > 8_000_000
    assert kept < grown / 2
