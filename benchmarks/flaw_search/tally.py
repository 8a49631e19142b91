"""What a search found: shares with their Wilson intervals, by transformation and size."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.flaw_search.changes import FLAWS
from benchmarks.flaw_search.outcome import DOUBTED, MISNAMED, MISSED, NAMED, WRONG_THOUGH_CLEAN, Outcome

Z95 = 1.96
PLAIN = "plain"


def wilson(hits: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share. 95 of 100: 0.888 to 0.978. Source: E. B. Wilson, JASA 22 (1927)."""
    if not of:
        return 0.0, 1.0
    share, square = hits / of, Z95**2
    middle = (share + square / (2 * of)) / (1 + square / of)
    reach = Z95 * math.sqrt(share * (1 - share) / of + square / (4 * of**2)) / (1 + square / of)
    return max(0.0, middle - reach), min(1.0, middle + reach)


@dataclass(slots=True)
class Tally:
    """Counts of outcomes by (name of the change, size) of flaws, and by the name of oddities."""

    kinds: Counter[str] = field(default_factory=Counter)
    by_flaw: dict[tuple[str, float], Counter[str]] = field(default_factory=dict)
    by_oddity: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        """Count a case: for each of its flaws; without flaws for each of its oddities."""
        self.kinds[outcome.kind] += 1
        flaws = [change for change in outcome.case.changes if change.name in FLAWS]
        for change in flaws:
            self.by_flaw.setdefault((change.name, change.size), Counter())[outcome.kind] += 1
        if not flaws:
            for name in [change.name for change in outcome.case.changes] or [PLAIN]:
                self.by_oddity.setdefault(name, Counter())[outcome.kind] += 1

    @property
    def named(self) -> tuple[int, int]:
        """Flaws that moved a figure and were named rightly, and all that moved one."""
        return self.kinds[NAMED], self.kinds[NAMED] + self.kinds[MISSED] + self.kinds[MISNAMED]

    @property
    def doubted(self) -> tuple[int, int]:
        """Clean plans that were doubted or have a wrong figure, and all clean plans."""
        wrong = self.kinds[DOUBTED] + self.kinds[WRONG_THOUGH_CLEAN]
        return wrong, wrong + self.kinds["clean"]

    def lines(self) -> Iterator[str]:
        """Two tables in Markdown."""
        yield "| flaw | size | moved a figure | named | another cause | missed | named, 95 % interval |"
        yield "|---|---:|---:|---:|---:|---:|---:|"
        for (name, size), counts in sorted(self.by_flaw.items()):
            of = counts[NAMED] + counts[MISSED] + counts[MISNAMED]
            shares = f"| {name} | {size:g} | {of} of {counts.total()} | {counts[NAMED]} | {counts[MISNAMED]} | {counts[MISSED]} |"
            yield f"{shares} {_interval(counts[NAMED], of)} |"
        named, of = self.named
        yield f"| **all** | | {of} | {named} | {self.kinds[MISNAMED]} | {self.kinds[MISSED]} | {_interval(named, of)} |"
        yield ""
        yield "| clean plan | cases | doubted | wrong figure | doubted, 95 % interval |"
        yield "|---|---:|---:|---:|---:|"
        for name, counts in sorted(self.by_oddity.items()):
            wrong = counts[DOUBTED] + counts[WRONG_THOUGH_CLEAN]
            row = f"| {name} | {counts.total()} | {counts[DOUBTED]} | {counts[WRONG_THOUGH_CLEAN]} |"
            yield f"{row} {_interval(wrong, counts.total())} |"
        doubted, of = self.doubted
        yield f"| **all** | {of} | {self.kinds[DOUBTED]} | {self.kinds[WRONG_THOUGH_CLEAN]} | {_interval(doubted, of)} |"


def _interval(hits: int, of: int) -> str:
    """`95 % (89 to 98)`."""
    if not of:
        return ""
    low, high = wilson(hits, of)
    return f"{100 * hits / of:.3g} % ({100 * low:.3g} to {100 * high:.3g})"
