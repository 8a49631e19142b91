"""What a search found: shares with their Wilson intervals, by transformation and size."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.flaw_search.changes import FLAWS
from benchmarks.flaw_search.outcome import CLEAN, DOUBTED, MISNAMED, MISSED, NAMED, UNMARKED, UNSEEN, WRONG_THOUGH_CLEAN, Outcome

Z95 = 1.96
PLAIN = "plain"
WRONG_KINDS = (MISSED, UNMARKED, MISNAMED)


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
        """Flaws that moved a figure and were named rightly, and all that moved one, less those that were said to be unseen."""
        return self.kinds[NAMED], _moved(self.kinds)

    @property
    def doubted(self) -> tuple[int, int]:
        """Clean plans that were doubted or have a wrong figure, and all clean plans."""
        wrong = self.kinds[DOUBTED] + self.kinds[WRONG_THOUGH_CLEAN]
        return wrong, wrong + self.kinds[CLEAN]

    def lines(self) -> Iterator[str]:
        """Two tables in Markdown."""
        yield (
            "| flaw | size | cases | moved a figure | said to be unseen | named | named, 95 % interval | "
            + " | ".join(WRONG_KINDS)
            + " |"
        )
        yield "|---|---:|---:|---:|---:|---:|---:|" + "---:|" * len(WRONG_KINDS)
        for (name, size), counts in sorted(self.by_flaw.items()):
            yield f"| {name} | {size:g} {_row(counts)}"
        yield f"| **all** | {_row(self.of_flaws)}"
        yield ""
        yield "| clean plan | cases | doubted | wrong figure | doubted, 95 % interval |"
        yield "|---|---:|---:|---:|---:|"
        for name, counts in sorted(self.by_oddity.items()):
            wrong = counts[DOUBTED] + counts[WRONG_THOUGH_CLEAN]
            row = f"| {name} | {counts.total()} | {counts[DOUBTED]} | {counts[WRONG_THOUGH_CLEAN]} |"
            yield f"{row} {_interval(wrong, counts.total())} |"
        doubted, of = self.doubted
        yield f"| **all** | {of} | {self.kinds[DOUBTED]} | {self.kinds[WRONG_THOUGH_CLEAN]} | {_interval(doubted, of)} |"

    @property
    def of_flaws(self) -> Counter[str]:
        """The outcomes of cases with flaws, each once."""
        return Counter({kind: count for kind, count in self.kinds.items() if kind not in (CLEAN, DOUBTED, WRONG_THOUGH_CLEAN)})


def _moved(counts: Counter[str]) -> int:
    return sum(counts[kind] for kind in (NAMED, *WRONG_KINDS))


def _row(counts: Counter[str]) -> str:
    moved = _moved(counts)
    wrong = " | ".join(str(counts[kind]) for kind in WRONG_KINDS)
    all_moved = moved + counts[UNSEEN]
    return f"| {counts.total()} | {all_moved} | {counts[UNSEEN]} | {counts[NAMED]} | {_interval(counts[NAMED], moved)} | {wrong} |"


def _interval(hits: int, of: int) -> str:
    """`95 % (89 to 98)`."""
    if not of:
        return ""
    low, high = wilson(hits, of)
    return f"{100 * hits / of:.3g} % ({100 * low:.3g} to {100 * high:.3g})"
