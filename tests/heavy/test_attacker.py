"""The attacker finds nothing at any listener, and finds each of ten mends that is undone."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
from tests.searching import SECONDS, SEED

pytestmark = [pytest.mark.heavy, pytest.mark.search, pytest.mark.timeout(SECONDS + 300)]


def attacker(*words: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: here gevent may have made one thread of all."""
    command = [sys.executable, "-m", "tests.search.attacker", *words]
    return subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, check=False
    )


def test_strangers_find_nothing() -> None:
    """Catches a head, message or body that no test of one listener has, and that breaks a bound."""
    done = attacker("--seconds", f"{SECONDS:g}", "--seed", str(1_000_000 * SEED))
    assert done.returncode == 0, done.stdout + done.stderr


def test_mends_that_are_undone_are_found() -> None:
    """Catches an attacker that has become blind to a kind of hole."""
    done = attacker("--planted")
    assert done.returncode == 0, done.stdout + done.stderr
