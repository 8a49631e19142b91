"""After any sequence of messages of strange workers, a good worker joins and the run ends.

Each example has a master of its own. Strangers without a swarm key join it, say all that a worker
can say, right and wrong, in any order, before the test, in it and at its end, and come and go.
(4,000 random messages in a row found less than such sequences: what deafened a master was two
correct ones.)
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gevent
import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)

from llama_load.loadgen.swarm import messages
from llama_load.run_folder.observed.record import to_batch
from tests.conftest import Simulated, environment
from tests.loadgen.swarm.test_message_guard import GOOD, RUN, variants
from tests.make_records import record
from tests.searching import SECONDS, SEED, seeds
from tests.swarms import Stranger, Swarm, swarm

pytestmark = [pytest.mark.heavy, pytest.mark.search, pytest.mark.timeout(SECONDS + 540)]

LOAD = ("-u", "2", "--num-prompts", "6", "--max-tokens", "2", "--warmup", "0")
# A worker that is silent is given up after this time.
LOST_AFTER_S = "3"
# Locust waits up to 60 s for workers that say that they still have users.
ENDS_WITHIN_S = 120
NAMES = ("stranger_1", "stranger_2", "stranger_3")

kinds = st.sampled_from(sorted(GOOD))
names = st.sampled_from(NAMES)
states = st.sampled_from(
    ["ready", "spawning", "running", "cleanup", "stopping", "stopped"]
)
keys = st.lists(st.tuples(st.booleans(), st.integers(0, 8)), max_size=4)
wants = st.dictionaries(
    st.sampled_from(["sharegpt", "other"]), st.integers(0, 5), max_size=2
)
numbers = st.integers(0, 10)


def test_a_good_worker_is_always_taken_in(
    tmp_path: Path, simulate: Callable[..., Simulated], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches an order of strangers' messages that deafens a real master."""
    monkeypatch.setattr(
        "tests.swarms.environment",
        lambda: environment() | {"LLAMA_LOAD_LOST_AFTER_S": LOST_AFTER_S},
    )
    server = simulate("--interval-ms", "1")
    folders = (tmp_path / str(number) for number in range(10_000))

    class Strangers(RuleBasedStateMachine):
        """One master, and what is said to it."""

        def __init__(self) -> None:
            super().__init__()
            self.stack = ExitStack()
            self.master: Swarm = self.stack.enter_context(
                swarm(next(folders), server.url, 0, *LOAD, expect=1)
            )
            self.strangers: dict[str, Stranger] = {}

        def stranger(self, name: str) -> Stranger:
            """It connects when it first speaks."""
            if name not in self.strangers:
                self.strangers[name] = Stranger(self.master.port, name)
            return self.strangers[name]

        def say(self, name: str, kind: str, body: Any) -> None:
            """In the name of the run, if the stranger has heard of it."""
            stranger = self.stranger(name)
            if isinstance(body, dict) and body.get("run") == RUN["run"]:
                body = body | {"run": stranger.run}
            stranger.say(kind, body)

        @precondition(lambda self: self.master.master.poll() is None)
        @rule(name=names, kind=kinds)
        def says_what_a_worker_says(self, name: str, kind: str) -> None:
            self.say(name, kind, GOOD[kind])

        @precondition(lambda self: self.master.master.poll() is None)
        @rule(name=names, kind=kinds, which=st.integers(0, 1000))
        def says_something_wrong(self, name: str, kind: str, which: int) -> None:
            wrong = variants(kind)
            self.say(name, kind, wrong[which % len(wrong)])

        @precondition(lambda self: self.master.master.poll() is None)
        @rule(name=names, state=states)
        def is_in_a_state(self, name: str, state: str) -> None:
            self.say(name, "heartbeat", GOOD["heartbeat"] | {"state": state})

        @precondition(lambda self: self.master.master.poll() is None)
        @rule(name=names)
        def joins(self, name: str) -> None:
            self.say(name, "client_ready", GOOD["client_ready"])
            self.say(name, messages.HELLO, GOOD[messages.HELLO])
            self.stranger(name).listen(0.1)

        @precondition(lambda self: self.master.master.poll() is None)
        @rule(name=names, started=keys, wanted=wants)
        def reports(self, name: str, started: Any, wanted: Any) -> None:
            ended = [(*key, False) for key in started[:2]]
            begun = [(*key, 1) for key in started]
            self.say(
                name,
                messages.REPORT,
                RUN | {"started": begun, "ended": ended, "wants": wanted},
            )

        @precondition(lambda self: self.master.master.poll() is None)
        @rule(
            name=names,
            held=keys,
            wanted=wants,
            asked_ns=st.integers(0, 2**60),
            delivered=numbers,
        )
        def answers_a_ping(
            self, name: str, held: Any, wanted: Any, asked_ns: int, delivered: int
        ) -> None:
            body = {
                "asked_ns": asked_ns,
                "worker_ns": 5,
                "delivered": delivered,
                "holds": held,
                "wants": wanted,
            }
            self.say(name, messages.PONG, RUN | body)

        @precondition(lambda self: self.master.master.poll() is None)
        @rule(
            name=names,
            number=numbers,
            index=st.integers(0, 8),
            cut=st.sampled_from([0, 100, 1_000_000]),
        )
        def sends_records(self, name: str, number: int, index: int, cut: int) -> None:
            stranger = self.stranger(name)
            stranger.send_records(
                messages.pack_header(number, stranger.run),
                to_batch([record(index)]).serialize().to_pybytes()[cut:],
            )

        @precondition(lambda self: self.master.master.poll() is None)
        @rule(
            name=names, frames=st.lists(st.binary(max_size=30), min_size=1, max_size=3)
        )
        def sends_bytes(self, name: str, frames: list[bytes]) -> None:
            self.stranger(name).send(frames)

        @precondition(lambda self: self.strangers)
        @rule(name=names)
        def goes_without_a_word(self, name: str) -> None:
            if name in self.strangers:
                self.strangers.pop(name).close()

        @rule(seconds=st.sampled_from([0.05, 0.3, 1.2]))
        def time_goes_by(self, seconds: float) -> None:
            gevent.sleep(seconds)  # what it is for

        def teardown(self) -> None:
            """A good worker comes. The run may have ended already, because a stranger refused or
            aborted it."""
            with self.stack:
                for stranger in self.strangers.values():
                    stranger.close()
                if self.master.master.poll() is None:
                    self.master.add_worker()
                done = self.master.finish(ENDS_WITHIN_S)
            assert done.code in (0, 1, 3), done.err
            assert "Traceback" not in done.err, done.err

    few = settings(
        max_examples=3,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    for number in seeds(SEED):
        run_state_machine_as_test(seed(number)(Strangers), settings=few)
