"""Orders a plan's prompts so that every stage gets prompts of similar lengths and stages can be
compared.

The chosen prompts stay the same. In data order, stages of 16 prompts differ by a factor of two in
input tokens. Here each stage gets its share of every length, with similar sums of input and output
tokens.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain

from llama_load.loadgen.workloads.prompt_plan import Plan, chained
from llama_load.servers.prompt import Prompt

# If the size of stages is unknown, this many consecutive prompts contain one of every length
# quartile.
WINDOW = 4
# Lengths that differ by less are taken as equal: the workload's order stays.
ALIKE = 0.02
# Stages exchange prompts of nearly equal length while that makes their sums more alike.
NEIGHBOURS = 12
PASSES = 6
MOST_EXCHANGED = 5000


@dataclass(frozen=True, slots=True)
class _Unit:
    """Prompts that stay together: one, or the turns of a conversation; with the tokens of all
    turns. `output` is 0 if all answers have the same length."""

    prompts: tuple[Prompt, ...]
    input: float
    output: float

    @property
    def size(self) -> int:
        return len(self.prompts)


def in_stages(
    plan: Plan, counts: Sequence[int] | None, seed: int, *, same_answers: bool = False
) -> Plan:
    """The plan in an order that makes stages alike; `counts`: requests per stage, None if unknown.

    `same_answers`: a flag gives all answers the same length. A mixture's tasks keep their
    positions.
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
            # Any segment has lengths from the whole distribution.
            longest_first = sorted(
                units, key=lambda unit: (-unit.input / unit.size, -unit.output)
            )
            mixed = _mixed(longest_first, random.Random(f"windows {seed} {task}"))
            ordered = [prompt for unit in mixed for prompt in unit.prompts]
        else:
            ordered = _dealt(
                units, _shares(places, counts), random.Random(f"stages {seed} {task}")
            )
        for place, prompt in zip(places, ordered, strict=True):
            result[place] = prompt
    return replace(plan, measured=[prompt for prompt in result if prompt is not None])


def _units(prompts: Sequence[Prompt], *, same_answers: bool) -> list[_Unit]:
    units = []
    turns = list[Prompt]()
    for prompt in prompts:
        turns.append(prompt)
        if not prompt.more:
            units.append(_unit(turns, same_answers=same_answers))
            turns = []
    return [*units, _unit(turns, same_answers=same_answers)] if turns else units


def _unit(turns: Sequence[Prompt], *, same_answers: bool) -> _Unit:
    output = 0 if same_answers else sum(prompt.max_tokens or 0 for prompt in turns)
    return _Unit(
        tuple(turns),
        float(sum(prompt.prompt_tokens or 0 for prompt in turns)),
        float(output),
    )


def _are_alike(units: Sequence[_Unit]) -> bool:
    for values in ([unit.input for unit in units], [unit.output for unit in units]):
        if max(values) - min(values) > ALIKE * max(values):
            return False
    return all(unit.size == 1 for unit in units)


def _shares(places: Sequence[int], counts: Sequence[int]) -> list[int]:
    """The number of these positions in each stage."""
    ends = list(accumulate(counts))
    shares = []
    for end, count in zip(ends, counts, strict=True):
        shares.append(sum(end - count <= place < end for place in places))
    return shares


def _mixed(units: list[_Unit], draw: random.Random) -> list[_Unit]:
    """Sorted by length, then ordered so that every 4 consecutive ones have one per quartile, every
    16 one per sixteenth, and so on; choice and order within those are random."""
    if len(units) <= WINDOW:
        return draw.sample(units, len(units))
    blocks = -(-len(units) // WINDOW)
    quarters = [
        _mixed(units[start : start + blocks], draw)
        for start in range(0, len(units), blocks)
    ]

    mixed = []
    for number in range(blocks):
        row = [quarter[number] for quarter in quarters if number < len(quarter)]
        mixed += draw.sample(row, len(row))
    return mixed


def _dealt(
    units: Sequence[_Unit], counts: Sequence[int], draw: random.Random
) -> list[Prompt]:
    """Stage after stage, `counts` requests each, shuffled within the stage."""
    hands = _deal(units, counts)
    _exchange(hands, counts)
    for hand in hands:
        draw.shuffle(hand)
    units_in_order = chain.from_iterable(hands)
    return [prompt for unit in units_in_order for prompt in unit.prompts]


def _deal(units: Iterable[_Unit], counts: Sequence[int]) -> list[list[_Unit]]:
    """Longest first, each to the stage with the fewest tokens for its size among those due next:
    every stage gets its share of every length. Long conversations go before short ones; one that
    fits no stage is split."""
    total = sum(counts)
    hands: list[list[_Unit]] = [[] for _ in counts]
    room = list(counts)
    load = [0.0] * len(counts)
    waiting = list(units)
    mean_in, mean_out = _means(waiting, total)
    while waiting:
        size = max(unit.size for unit in waiting)
        group = sorted(
            (unit for unit in waiting if unit.size == size),
            key=lambda unit: (-unit.input, -unit.output),
        )
        waiting = [unit for unit in waiting if unit.size < size]
        dealt = [0] * len(counts)
        given = 0
        for unit in group:
            stages = [stage for stage in range(len(counts)) if room[stage] >= size]
            if not stages:
                waiting += _parted(unit, max(room))
                continue
            in_turn = [
                stage
                for stage in stages
                if dealt[stage] * total <= given * counts[stage]
            ]
            stage = min(
                in_turn or stages,
                key=lambda stage: (load[stage] / counts[stage], -room[stage]),
            )
            hands[stage].append(unit)
            room[stage] -= size
            dealt[stage] += size
            given += size
            load[stage] += unit.input / mean_in + unit.output / mean_out
    return hands


def _parted(unit: _Unit, size: int) -> list[_Unit]:
    """A conversation's first turns; and the others, which are sent with the recorded history."""
    return [
        _unit(chained(part), same_answers=not unit.output)
        for part in (unit.prompts[:size], unit.prompts[size:])
    ]


def _exchange(hands: list[list[_Unit]], counts: Sequence[int]) -> None:
    """Exchange units of equal size and nearly equal length between stages while that makes the
    stages' sums more alike."""
    entries = [(unit, stage) for stage, hand in enumerate(hands) for unit in hand]
    if len(entries) > MOST_EXCHANGED or len(hands) < 2:
        return
    entries.sort(key=lambda entry: (entry[0].size, entry[0].input, entry[0].output))
    units = [unit for unit, _ in entries]
    where = [stage for _, stage in entries]
    mean_in, mean_out = _means(units, sum(counts))
    # Input (real part) and output (imaginary part) of each unit, in means of a request.
    values = [complex(unit.input / mean_in, unit.output / mean_out) for unit in units]
    # How far the sums of each stage are above its share. Where all answers count as 0, so does
    # their share.
    share = complex(
        any(value.real for value in values), any(value.imag for value in values)
    )
    above = [-share * count for count in counts]
    for value, stage in zip(values, where, strict=True):
        above[stage] += value
    pairs = [
        (one, other)
        for one in range(len(units))
        for other in range(one + 1, min(one + 1 + NEIGHBOURS, len(units)))
        if units[one].size == units[other].size
    ]
    for _ in range(PASSES):
        improved = False
        for one, other in pairs:
            here = where[one]
            there = where[other]
            change = values[other] - values[one]
            before = _unevenness(above[here], counts[here]) + _unevenness(
                above[there], counts[there]
            )
            after = _unevenness(above[here] + change, counts[here]) + _unevenness(
                above[there] - change, counts[there]
            )
            if here != there and before - after > 1e-15:
                where[one] = there
                where[other] = here
                above[here] += change
                above[there] -= change
                improved = True
        if not improved:
            break
    for hand in hands:
        hand.clear()
    for unit, stage in zip(units, where, strict=True):
        hands[stage].append(unit)


def _means(units: Sequence[_Unit], requests: int) -> tuple[float, float]:
    """The mean input and output of a request, 1 or more."""
    return max(1.0, sum(unit.input for unit in units) / requests), max(
        1.0, sum(unit.output for unit in units) / requests
    )


def _unevenness(above: complex, count: int) -> float:
    """How uneven a stage of this many requests is: the sum of the squares of input and output above
    its share."""
    return abs(above / count) ** 2
