"""Which slot of llama-server had which request, by its /slots as telemetry sampled it: for servers
whose log is not known.

An idle slot goes on to show its last task and the tokens that it holds, so samples a second apart
mostly show who had it last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from llama_load.run_folder import Run
from llama_load.run_folder.observed.telemetry_series import Series
from llama_load.servers.kinds import kind_named

# Series with a label `slot` (see `llama_load.telemetry.slots`).
TASK = "slot_task"
PROMPT = "slot_prompt_tokens"
HELD = "slot_held_tokens"


@dataclass(frozen=True, slots=True)
class SeenSlot:
    """A slot that showed a request's prompt until an instant."""

    slot: str
    until_ns: int


@dataclass(frozen=True, slots=True)
class _Task:
    """A task that a slot began to have after `after_ns`, at `first_ns` at the latest.

    `prompt`: tokens of its prompt, 0 if the slot was only seen idle after it; `held`: the tokens
    that the slot held in the end.
    """

    after_ns: int
    first_ns: int
    until_ns: int
    prompt: int
    held: int


def slot_series(run: Run) -> Mapping[str, Sequence[Series]]:
    """What was sampled of the slots of each server, by its URL."""
    found: dict[str, list[Series]] = {}
    for target in run.manifest.targets:
        kind = kind_named(str(target.get("backend")))
        url = str(target.get("url"))
        if not kind.slots_path:
            continue
        for series in run.telemetry.of_server(url):
            if series.metric in (TASK, PROMPT, HELD):
                found.setdefault(url, []).append(series)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """All requests of a run, by row: tokens of prompts and answers, NaN if unknown."""

    prompt: NDArray[np.float64]
    output: NDArray[np.float64]
    started_ns: NDArray[np.int64]
    ended_ns: NDArray[np.int64]

    def was_begun_in(self, row: int, task: _Task) -> bool:
        """Whether this request may have begun when this task did."""
        is_started = self.started_ns[row] <= task.first_ns
        return bool(is_started and self.ended_ns[row] > task.after_ns)


def seen_slots(
    series: Sequence[Series], rows: Sequence[int], requests: Requests
) -> dict[int, SeenSlot]:
    """The slots of these rows, requests of one server, as far as they were seen. Where two of them
    may have been a task, it tells of neither."""
    by_slot: dict[str, dict[str, Series]] = defaultdict(dict)
    for each in series:
        by_slot[each.labels.get("slot", "")][each.metric] = each
    rows_of_prompt = defaultdict(list)
    rows_of_held = defaultdict(list)
    for row in rows:
        prompt = requests.prompt[row]
        if not np.isnan(prompt):
            rows_of_prompt[int(prompt)].append(row)
        # The last token is never put into the cache.
        held = prompt + requests.output[row] - 1
        if not np.isnan(held):
            rows_of_held[int(held)].append(row)

    found = {}
    for slot, of_slot in by_slot.items():
        if not {TASK, PROMPT, HELD} <= of_slot.keys():
            continue
        for task in _tasks(of_slot[TASK], of_slot[PROMPT], of_slot[HELD]):
            alike = rows_of_prompt.get(task.prompt, [])
            if not task.prompt:
                alike = rows_of_held.get(task.held, [])
            candidates = []
            for row in alike:
                if requests.was_begun_in(row, task):
                    candidates.append(row)
            if len(candidates) == 1:
                found[candidates[0]] = SeenSlot(slot, task.until_ns)
    return found


def _tasks(task: Series, prompt: Series, held: Series) -> Iterator[_Task]:
    """The tasks of a slot, but for the one that it had at the first sample: since when it had that
    is not known."""
    changes = np.flatnonzero(np.diff(task.values)) + 1
    edges = [*changes.tolist(), len(task.values)]
    for begin, end in pairwise(edges):
        first_ns = int(task.t_ns[begin])
        until_ns = int(task.t_ns[end - 1])
        yield _Task(
            int(task.t_ns[begin - 1]),
            first_ns,
            until_ns,
            _most(prompt, first_ns, until_ns),
            round(held.at(until_ns)),
        )


def _most(series: Series, first_ns: int, until_ns: int) -> int:
    """The largest value from one sample to another."""
    begin, end = np.searchsorted(series.t_ns, (first_ns, until_ns + 1))
    values: list[float] = series.values[begin:end].tolist()
    values.append(series.at(first_ns))
    return round(max(values))
