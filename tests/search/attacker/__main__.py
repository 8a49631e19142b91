"""python -m tests.search.attacker [--seconds 60] [--seed N] [--only NAME] [--planted]"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from tests.search.attacker import oracles
from tests.search.attacker.holes import HOLES, SEEDS
from tests.search.attacker.oracles import Find
from tests.search.attacker.targets import REFUSALS, Attempt, Target, targets

# Every so many cases memory is measured in place of CPU time, which it changes, and descriptors are
# counted.
MEMORY_EVERY = 10
DESCRIPTORS_EVERY = 200
# So many may come and go: of threads that end, of the listener's caches.
MOST_MORE_DESCRIPTORS = 20


@dataclass
class Found:
    """A find: the seed and target that show it again, what is wrong, and what was sent."""

    seed: int
    target: str
    why: str
    sent: str

    def __str__(self) -> str:
        return f"seed {self.seed}, {self.target}: {self.why}\n  {self.sent}"


def attacked(seed: int, found: dict[str, Target]) -> tuple[str, Found | None]:
    """One case: its target, and what it found."""
    random = Random(seed)
    names = list(found)
    (name,) = random.choices(names, [found[each].weight for each in names])
    target = found[name]
    sent, size, attempt = target.draw(random)
    try:
        if not target.measured:
            attempt()
        elif seed % MEMORY_EVERY == 0:
            oracles.memory(lambda: answered(attempt), size)
        else:
            oracles.cpu(lambda: answered(attempt), size)
    except Find as error:
        return name, Found(seed, name, str(error), sent)
    except Exception as error:
        return name, Found(
            seed, name, f"no sentence: {type(error).__name__}: {error}", sent
        )
    return name, None


def answered(attempt: Attempt) -> None:
    """An attempt that may end in a sentence."""
    try:
        attempt()
    except REFUSALS:
        return


def search(
    seconds: float, first_seed: int, found: dict[str, Target], tally: Counter[str]
) -> Iterator[Found]:
    """What cases from this seed on find, for so long."""
    until_s = time.monotonic() + seconds
    open_before = oracles.descriptors()
    seed = first_seed
    while time.monotonic() < until_s:
        name, find = attacked(seed, found)
        tally[name] += 1
        if find is not None:
            yield find
        if seed % DESCRIPTORS_EVERY == 0:
            more = oracles.descriptors() - open_before
            if more > MOST_MORE_DESCRIPTORS:
                yield Found(seed, "all", f"{more} descriptors stay open", "")
                open_before += more
        seed += 1


def planted(found: dict[str, Target]) -> int:
    """Undo each mend, and send the first case from seed 1 on that finds it. How many are missed."""
    missed = 0
    for name, undone in HOLES.items():
        seed = SEEDS[name]
        _, before = attacked(seed, found)
        with undone():
            _, find = attacked(seed, found)
        is_right = before is None and find is not None
        missed += not is_right
        print(f"{'found' if is_right else 'NOT FOUND'}: {name}\n  {find}", flush=True)
    return missed


def main() -> int:
    """Search; the exit code is 1 if something was found, or a planted hole was not."""
    parser = argparse.ArgumentParser(prog="tests.search.attacker")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each search")
    parser.add_argument("--seed", type=int, default=1, help="of the first case")
    parser.add_argument(
        "--only", default="", help="the targets with this in their names"
    )
    parser.add_argument(
        "--planted", action="store_true", help="undo ten mends, and look for each"
    )
    chosen = parser.parse_args()
    every = {name: each for name, each in targets().items() if chosen.only in name}
    if chosen.planted:
        return 1 if planted(every) else 0

    tally: Counter[str] = Counter()
    finds = 0
    for find in search(chosen.seconds, chosen.seed, every, tally):
        finds += 1
        print(find, flush=True)
    counts = ", ".join(f"{name} {count}" for name, count in tally.items())
    print(f"{tally.total()} cases ({counts}): {finds} finds")
    return 1 if finds else 0


if __name__ == "__main__":
    sys.exit(main())
