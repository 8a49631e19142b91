"""The page's threads are not those that write records."""

from __future__ import annotations

import threading

import gevent

from llama_load.loadgen.run.in_thread import PAGE_THREADS, in_page_thread, in_thread


def test_downloads_do_not_keep_records_waiting() -> None:
    """A dozen readers of slow disks wait for each other, and the writer of records for none of
    them."""
    may_end = threading.Event()
    reading = [
        gevent.spawn(in_page_thread, may_end.wait) for _ in range(3 * PAGE_THREADS)
    ]
    try:
        with gevent.Timeout(20):
            assert in_thread(lambda: "written") == "written"
    finally:
        may_end.set()
        gevent.joinall(reading)


def test_its_errors_are_raised_here() -> None:
    for call in (in_thread, in_page_thread):
        try:
            call(lambda: int("x"))
        except ValueError:
            continue
        raise AssertionError(call)
