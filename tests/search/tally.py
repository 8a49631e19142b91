"""What a search found: counts of its outcomes, by transformation and size."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.search.changes import FLAWS
from tests.search.outcome import (
    CLEAN,
    DOUBTED,
    MISNAMED,
    MISSED,
    NAMED,
    UNMARKED,
    WRONG_THOUGH_CLEAN,
    Outcome,
)

Z95 = 1.96
PLAIN = "plain"
WRONG_KINDS = (MISSED, UNMARKED, MISNAMED)
RESULTS = Path(__file__).resolve().with_name("results.json")
Kinds = Counter[str]


def wilson(hits: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share. 95 of 100: 0.888 to 0.978. Source: E. B. Wilson, JASA 22
    (1927)."""
    if not of:
        return 0.0, 1.0
    share = hits / of
    square = Z95**2
    middle = (share + square / (2 * of)) / (1 + square / of)
    reach = (
        Z95
        * math.sqrt(share * (1 - share) / of + square / (4 * of**2))
        / (1 + square / of)
    )
    return max(0.0, middle - reach), min(1.0, middle + reach)


@dataclass(slots=True)
class Tally:
    """How often each kind of outcome came: in all, by flaw and size, and by the oddities of clean
    plans."""

    kinds: Kinds = field(default_factory=Counter)
    by_flaw: dict[str, dict[str, Kinds]] = field(default_factory=dict)
    by_oddity: dict[str, Kinds] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        """Count a case: for each of its flaws; without flaws for each of its oddities."""
        self.kinds[outcome.kind] += 1
        flaws = [change for change in outcome.case.changes if change.name in FLAWS]
        for change in flaws:
            sizes = self.by_flaw.setdefault(change.name, {})
            sizes.setdefault(f"{change.size:g}", Counter())[outcome.kind] += 1
        if not flaws:
            for name in [change.name for change in outcome.case.changes] or [PLAIN]:
                self.by_oddity.setdefault(name, Counter())[outcome.kind] += 1

    @property
    def named(self) -> tuple[int, int]:
        """Cases whose flaws moved a figure and were named rightly, and all that moved one, less
        those said to be unseen."""
        return self.kinds[NAMED], moved(self.kinds)

    @property
    def doubted(self) -> tuple[int, int]:
        """Clean plans that were doubted or have a wrong figure, and all clean plans."""
        wrong = self.kinds[DOUBTED] + self.kinds[WRONG_THOUGH_CLEAN]
        return wrong, wrong + self.kinds[CLEAN]

    @property
    def of_flaws(self) -> Kinds:
        """The outcomes of cases with flaws, each once."""
        return Counter(
            {
                kind: count
                for kind, count in self.kinds.items()
                if kind not in (CLEAN, DOUBTED, WRONG_THOUGH_CLEAN)
            }
        )

    def write(self, path: Path = RESULTS) -> None:
        """Keep it as JSON."""
        document = {
            "kinds": self.kinds,
            "by_flaw": self.by_flaw,
            "by_oddity": self.by_oddity,
        }
        path.write_text(
            json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8"
        )


def read_tally(path: Path = RESULTS) -> Tally:
    """A tally that was kept."""
    document = json.loads(path.read_text(encoding="utf-8"))
    by_flaw = {
        name: {size: Counter(kinds) for size, kinds in sizes.items()}
        for name, sizes in document["by_flaw"].items()
    }
    by_oddity = {name: Counter(kinds) for name, kinds in document["by_oddity"].items()}
    return Tally(Counter(document["kinds"]), by_flaw, by_oddity)


def moved(kinds: Kinds) -> int:
    """Cases of flaws that moved a figure, less those that were said to be unseen."""
    return sum(kinds[kind] for kind in (NAMED, *WRONG_KINDS))


def summed(counts: Iterable[Kinds]) -> Kinds:
    """The sum over sizes."""
    total: Kinds = Counter()
    for each in counts:
        total += each
    return total
