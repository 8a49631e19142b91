"""The order of a plan's prompts in a run of stages: every stage gets prompts of like lengths, so that its figures can be ranked.

Which prompts are sent stays as the workload chose them. In the order of the data stages of 16 prompts differ by a factor of
two in their input tokens. Here each stage gets its share of every length, and sums of input and output tokens alike.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from llama_load.workloads.prompt import Plan, Prompt

# Where the size of stages is not known lengths are mixed so that this many prompts in a row are one of every quarter.
WINDOW = 4
# Lengths that differ by less than this are taken as equal: the order of the workload stays.
ALIKE = 0.02
# Prompts are exchanged between stages with those of nearly their length, while that makes sums more alike.
NEIGHBOURS, PASSES, MOST_EXCHANGED = 12, 6, 5000


@dataclass(frozen=True, slots=True)
class _Unit:
    """Prompts that stay together: one, or the turns of a conversation; the tokens of all turns. `output` is 0 where all answers are
    equally long."""

    prompts: tuple[Prompt, ...]
    input: float
    output: float

    @property
    def size(self) -> int:
        return len(self.prompts)


def in_stages(plan: Plan, counts: Sequence[int] | None, seed: int, *, same_answers: bool = False) -> Plan:
    """The plan with its prompts in an order that makes stages alike; `counts` requests each, None where that is not known.

    `same_answers`: a flag makes all answers equally long. A mixture's tasks keep their places.
    """
    prompts = plan.measured
    if counts is not None and sum(counts) != len(prompts):
        counts = None
    result: list[Prompt | None] = [None] * len(prompts)
    for task in dict.fromkeys(prompt.task for prompt in prompts):
        places = [place for place, prompt in enumerate(prompts) if prompt.task == task]
        units = _units([prompts[place] for place in places], same_answers=same_answers)
        if _are_alike(units):
            ordered = [prompt for unit in units for prompt in unit.prompts]
        elif counts is None:
            ordered = _in_windows(units, random.Random(f"windows {seed} {task}"))
        else:
            ordered = _dealt(units, _shares(places, counts), random.Random(f"stages {seed} {task}"))
        for place, prompt in zip(places, ordered, strict=True):
            result[place] = prompt
    return replace(plan, measured=[prompt for prompt in result if prompt is not None])


def _units(prompts: Sequence[Prompt], *, same_answers: bool) -> list[_Unit]:
    units, turns = [], list[Prompt]()
    for prompt in prompts:
        turns.append(prompt)
        if not prompt.more:
            units.append(_unit(turns, same_answers=same_answers))
            turns = []
    return [*units, _unit(turns, same_answers=same_answers)] if turns else units


def _unit(turns: Sequence[Prompt], *, same_answers: bool) -> _Unit:
    output = 0 if same_answers else sum(prompt.max_tokens or 0 for prompt in turns)
    return _Unit(tuple(turns), float(sum(prompt.prompt_tokens or 0 for prompt in turns)), float(output))


def _are_alike(units: Sequence[_Unit]) -> bool:
    for values in ([unit.input for unit in units], [unit.output for unit in units]):
        if max(values) - min(values) > ALIKE * max(values):
            return False
    return all(unit.size == 1 for unit in units)


def _shares(places: Sequence[int], counts: Sequence[int]) -> list[int]:
    """How many of these places lie in each stage."""
    ends = list(accumulate(counts))
    return [sum(end - count <= place < end for place in places) for end, count in zip(ends, counts, strict=True)]


def _in_windows(units: Sequence[_Unit], draw: random.Random) -> list[Prompt]:
    """Any segment of it has lengths from all over the distribution."""
    longest_first = sorted(units, key=lambda unit: (-unit.input / unit.size, -unit.output))
    return [prompt for unit in _mixed(longest_first, draw) for prompt in unit.prompts]


def _mixed(units: list[_Unit], draw: random.Random) -> list[_Unit]:
    """These, sorted by length, in an order in which each four in a row are one of every quarter, each 16 one of every sixteenth,
    and so on; which one of it, and in what order, is drawn."""
    if len(units) <= WINDOW:
        return draw.sample(units, len(units))
    blocks = -(-len(units) // WINDOW)
    quarters = [_mixed(units[start : start + blocks], draw) for start in range(0, len(units), blocks)]
    rows = ([quarter[number] for quarter in quarters if number < len(quarter)] for number in range(blocks))
    return [unit for row in rows for unit in draw.sample(row, len(row))]


def _dealt(units: Sequence[_Unit], counts: Sequence[int], draw: random.Random) -> list[Prompt]:
    """Stage after stage, `counts` requests each, their own order drawn."""
    hands = _hands(units, counts)
    _exchange(hands, counts)
    for hand in hands:
        draw.shuffle(hand)
    return [prompt for hand in hands for unit in hand for prompt in unit.prompts]


def _hands(units: Iterable[_Unit], counts: Sequence[int]) -> list[list[_Unit]]:
    """The longest first, each to the stage that has the fewest tokens for its size among those whose turn it is: so every stage
    gets its share of every length. Long conversations go before short ones; one that fits no stage any more is parted."""
    total = sum(counts)
    hands: list[list[_Unit]] = [[] for _ in counts]
    room = list(counts)
    load = [0.0] * len(counts)
    waiting = list(units)
    mean_in = max(1.0, sum(unit.input for unit in waiting) / total)
    mean_out = max(1.0, sum(unit.output for unit in waiting) / total)
    while waiting:
        size = max(unit.size for unit in waiting)
        group = sorted((unit for unit in waiting if unit.size == size), key=lambda unit: (-unit.input, -unit.output))
        waiting = [unit for unit in waiting if unit.size < size]
        dealt, given = [0] * len(counts), 0
        for unit in group:
            stages = [stage for stage in range(len(counts)) if room[stage] >= size]
            if not stages:
                waiting += _parted(unit, max(room))
                continue
            in_turn = [stage for stage in stages if dealt[stage] * total <= given * counts[stage]]
            stage = min(in_turn or stages, key=lambda stage: (load[stage] / counts[stage], -room[stage]))
            hands[stage].append(unit)
            room[stage] -= size
            dealt[stage] += size
            given += size
            load[stage] += unit.input / mean_in + unit.output / mean_out
    return hands


def _parted(unit: _Unit, size: int) -> list[_Unit]:
    """A conversation's first turns, and the others, which are sent with the recorded history."""
    parts = unit.prompts[:size], unit.prompts[size:]
    same_answers = not unit.output
    return [
        _unit([replace(prompt, more=len(part) - 1 - place) for place, prompt in enumerate(part)], same_answers=same_answers)
        for part in parts
    ]


def _exchange(hands: list[list[_Unit]], counts: Sequence[int]) -> None:
    """Exchange units of one size and nearly one length between stages as long as that makes the stages' sums more alike."""
    entries = [(unit, stage) for stage, hand in enumerate(hands) for unit in hand]
    if len(entries) > MOST_EXCHANGED or len(hands) < 2:
        return
    entries.sort(key=lambda entry: (entry[0].size, entry[0].input, entry[0].output))
    where = [stage for _, stage in entries]
    values = [(unit.input, unit.output) for unit, _ in entries]
    total = sum(counts)
    means = [max(1.0, sum(value[side] for value in values) / total) for side in (0, 1)]
    # Of each stage: by how much its sums are above its share, in means.
    over = [[0.0, 0.0] for _ in hands]
    for value, stage in zip(values, where, strict=True):
        for side in (0, 1):
            over[stage][side] += value[side] / means[side]
    for stage, count in enumerate(counts):
        for side in (0, 1):
            if any(value[side] for value in values):
                over[stage][side] -= count
    for _ in range(PASSES):
        improved = False
        for one in range(len(entries)):
            for other in range(one + 1, min(one + 1 + NEIGHBOURS, len(entries))):
                here, there = where[one], where[other]
                if here == there or entries[one][0].size != entries[other][0].size:
                    continue
                change = [(values[other][side] - values[one][side]) / means[side] for side in (0, 1)]
                gain = 0.0
                for side in (0, 1):
                    gain += (over[here][side] / counts[here]) ** 2 - ((over[here][side] + change[side]) / counts[here]) ** 2
                    gain += (over[there][side] / counts[there]) ** 2 - ((over[there][side] - change[side]) / counts[there]) ** 2
                if gain > 1e-15:
                    where[one], where[other] = there, here
                    improved = True
                    for side in (0, 1):
                        over[here][side] += change[side]
                        over[there][side] -= change[side]
        if not improved:
            break
    for hand in hands:
        hand.clear()
    for (unit, _), stage in zip(entries, where, strict=True):
        hands[stage].append(unit)
