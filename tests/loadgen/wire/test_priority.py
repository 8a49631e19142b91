"""The priority of the process that sends: taken where allowed, never by its helpers, given back
when it would starve others.

Each case runs in a process of its own, because priority, limits and signal handlers belong to the
process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from llama_load.loadgen.wire.priority import may_be_real_time
from tests.conftest import environment, run_program

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="SCHED_RR")
needs_permission = pytest.mark.skipif(
    not may_be_real_time(), reason="the system does not allow real-time priority"
)

PRELUDE = """
import gevent.monkey; gevent.monkey.patch_all()
import os, resource, signal, subprocess, sys, time
import gevent
from llama_load.loadgen.wire import priority
from llama_load.loadgen.wire.priority import SenderPriority
def policy(): return os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK
normal, real_time = os.SCHED_OTHER, os.SCHED_RR
def spin(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until: pass
def without_real_time():
    def refused(*_): raise PermissionError
    priority._is_real_time_allowed = lambda keep: False
def see(idle, waited):
    # The kernel's accounts grow by these shares of the time.
    priority._Account = lambda: account(idle=idle * time.monotonic(), waited=waited * time.monotonic())
    sender._last = priority._Account()
account = priority._Account
sender = SenderPriority()
see(idle=0, waited=0)
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[[str], None]:
    def run(script: str) -> None:
        (tmp_path / "case.py").write_text(PRELUDE + script)
        done = run_program(["case"], tmp_path, environment())
        assert done.returncode == 0, done.stderr

    return run


@needs_permission
def test_real_time_priority_is_taken_and_given_back(run: Callable[[str], None]) -> None:
    """Also from a greenlet, and with the limit on spinning as it was before."""
    run("""
before = resource.getrlimit(resource.RLIMIT_RTTIME)
assert gevent.spawn(sender.take).get() == "real-time" and policy() == real_time
assert os.sched_getparam(0).sched_priority == 1
sender.give_back()
assert policy() == normal and sender.taken == "real-time" and resource.getrlimit(resource.RLIMIT_RTTIME) == before
""")


@needs_permission
def test_helper_threads_and_child_processes_stay_at_normal_priority(
    run: Callable[[str], None],
) -> None:
    """A thread of gevent's pool that exists before, one that starts afterwards, a forked child and
    a started program."""
    run("""
pool = gevent.get_hub().threadpool
pool.apply(policy)
sender.take()
assert pool.apply(policy) == normal
assert gevent.threadpool.ThreadPool(1).apply(policy) == normal
if (child := os.fork()) == 0:
    os._exit(policy())
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == normal
show = "import os, sys; sys.exit(os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK)"
assert subprocess.run([sys.executable, "-c", show]).returncode == normal
assert policy() == real_time
""")


@needs_permission
def test_a_busy_client_gives_it_back_until_it_is_idle_again(
    run: Callable[[str], None],
) -> None:
    """Half of the time since the last look was spent on the core, then none of it."""
    run("""
sender.take()
for _ in range(6):
    spin(0.05); time.sleep(0.001)
sender.adapt()
assert policy() == normal
assert sender.taken == "real-time, normal while it used over half a core"
time.sleep(0.05)
sender.adapt()
assert policy() == real_time
sender.give_back()
time.sleep(0.05)
sender.adapt()
assert policy() == normal
""")


@needs_permission
def test_it_is_given_back_while_a_core_is_idle(run: Callable[[str], None]) -> None:
    """Not while the thread waits for a core at normal priority, although cores are idle on average,
    nor soon after that."""
    run("""
def later():
    time.sleep(0.02)
    sender.adapt()
    return policy()
assert sender.take() == "real-time"
see(idle=0.5, waited=0)
assert later() == real_time
see(idle=1.5, waited=0)
assert later() == normal and later() == normal
assert sender.taken == "real-time, normal while a core was idle"
see(idle=1.5, waited=0.1)
assert later() == real_time
see(idle=1.5, waited=0)
assert later() == real_time
sender._kept_until = 0
assert later() == normal
see(idle=0, waited=0)
assert later() == real_time
""")


@needs_permission
def test_the_accounts_are_the_kernel_s(run: Callable[[str], None]) -> None:
    """Cores are idle for some time or none; a thread that ran has waited. Pinned to one of several
    cores, no idle one can be used."""
    run("""
account = priority.WaitAccount()
idle, waited = priority.idle_s(), account.waited_s()
time.sleep(0.1)
assert 0 <= priority.idle_s() - idle < 10 * os.cpu_count() and account.waited_s() >= waited > 0
assert account.waited_s() <= priority.WaitAccount().waited_s()
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
assert os.cpu_count() == 1 or priority.idle_s() is None
""")


@needs_permission
def test_a_client_that_spins_loses_it_at_once(run: Callable[[str], None]) -> None:
    """Without a pause for 0.2 s: the kernel signals, nobody has to look. Twice, because the kernel
    raises its limit."""
    run("""
for _ in range(2):
    sender.take()
    spin(0.3)
    assert policy() == normal
    sender.give_back()
""")


def test_without_permission_the_best_nice_value_is_taken(
    run: Callable[[str], None],
) -> None:
    """Children do not inherit it. Where no value below the present one is allowed, nothing
    changes."""
    run("""
without_real_time()
before = os.getpriority(os.PRIO_PROCESS, 0)
name = sender.take()
now = os.getpriority(os.PRIO_PROCESS, 0)
assert name == ("normal" if now == before else f"nice {now}")
child = [sys.executable, "-c", "import os, sys; sys.exit(os.getpriority(os.PRIO_PROCESS, 0) < 0)"]
assert subprocess.run(child).returncode == 0
sender.give_back()
assert os.getpriority(os.PRIO_PROCESS, 0) == before
""")


def test_an_unprivileged_user_needs_only_the_limit(run: Callable[[str], None]) -> None:
    """RLIMIT_RTPRIO of 0 for a process without capabilities: normal priority, and no error; of 1,
    where this test may raise it: real time, any number of times."""
    if may_be_real_time():
        run("""
try:
    resource.setrlimit(resource.RLIMIT_RTPRIO, (1, 1))
    allowed = "real-time"
except ValueError:
    allowed = "normal"
os.setresuid(65534, 65534, 65534)
for _ in range(2):
    assert sender.take() == allowed and policy() == (real_time if allowed == "real-time" else normal)
    sender.give_back()
    assert policy() == normal
resource.setrlimit(resource.RLIMIT_RTPRIO, (0, 0))
assert sender.take() == "normal" and policy() == normal
""")
