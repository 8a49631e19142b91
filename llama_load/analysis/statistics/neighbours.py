"""What else was in flight when a probe was sent: its neighbour class."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from llama_load.run_folder.observed.records import Records

Instants = NDArray[np.int64]

IDLE = "idle"
ANSWERS = "only answers"
MANY = "3 workloads or more"
# Classes of more workloads than this are one: there would be 2^n of them.
MOST_NAMED = 2


def neighbour_classes(probes: Records, load: Records) -> list[str]:
    """The class of each probe, at the instant at which it was started, by the requests of the load
    at the same server.

    A request counts from its start to its end; until its first token (its end, if it has none) its
    prompt is waiting or being processed. `document`: prompts of documents were; `chat + document`:
    of both; `only answers`: no prompt was, but answers were being generated; `idle`: no request was
    in flight. What is sent after the probe does not count, although the probe may wait for it: a
    class that depended on how long the probe waits would collect the slow probes.

    A document sent at 1.0 s with its first token at 3.0 s and its end at 4.0 s: a probe at 2.0 s
    has the class `document`, one at 3.5 s `only answers`, one at 4.0 s `idle`.
    """
    at_ns = probes.instants("started_mono_ns")
    classes = np.full(len(probes), IDLE, dtype=object)
    for host in probes.values_of("host"):
        of_host = probes.equals("host", host)
        classes[of_host] = _classes(
            at_ns[of_host], load.where(load.equals("host", host))
        )
    return [str(name) for name in classes]


def _classes(at_ns: Instants, load: Records) -> list[str]:
    prompts: list[list[str]] = [[] for _ in at_ns]
    answers = np.zeros(len(at_ns), dtype=np.bool_)
    for workload in sorted(map(str, load.values_of("workload"))):
        own = load.where(load.equals("workload", workload))
        started = own.instants("started_mono_ns")
        ended = own.instants("ended_mono_ns")
        first = own.optional_instants("first_token_mono_ns")
        begun = _before(started, at_ns)
        answers |= begun > _before(ended, at_ns)
        for place in np.flatnonzero(
            begun > _before(np.where(first < 0, ended, first), at_ns)
        ):
            prompts[place].append(workload)
    return [
        _name_of_neighbours(names, has_answers=bool(beside))
        for names, beside in zip(prompts, answers, strict=True)
    ]


def _before(instants_ns: Instants, at_ns: Instants) -> NDArray[np.int64]:
    """How many of the instants are at or before each of `at_ns`."""
    return np.searchsorted(np.sort(instants_ns), at_ns, side="right")


def _name_of_neighbours(workloads: list[str], *, has_answers: bool) -> str:
    if not workloads:
        return ANSWERS if has_answers else IDLE
    return " + ".join(workloads) if len(workloads) <= MOST_NAMED else MANY
