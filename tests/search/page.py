"""The tables of a search, in Markdown: those of benchmarks/verdict_rates.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.search.outcome import (
    DOUBTED,
    MISNAMED,
    MISSED,
    NAMED,
    UNMARKED,
    UNSEEN,
    WRONG_THOUGH_CLEAN,
)
from tests.search.tally import Kinds, Tally, moved, read_tally, summed, wilson

PAGE = Path(__file__).resolve().parents[2] / "benchmarks" / "verdict_rates.md"
BEGIN, END = "<!-- from tests/search/page.py -->\n", "\n<!-- end -->"
HEAD = (
    "| flaw | named, by size | unseen | missed | unmarked | another cause | named, 95 % interval |\n"
    "|---|---|---:|---:|---:|---:|---:|"
)
CLEAN_HEAD = "| clean plan | plans | doubted | wrong figure | doubted or wrong, 95 % interval |\n|---|---:|---:|---:|---:|"


def lines(tally: Tally) -> Iterator[str]:
    """Both tables."""
    yield HEAD
    for name, sizes in sorted(tally.by_flaw.items()):
        by_size = [
            f"{size}: {kinds[NAMED]} of {moved(kinds)}"
            for size, kinds in sorted(sizes.items(), key=lambda item: float(item[0]))
        ]
        yield f"| {name} | {', '.join(by_size)} {_rest(summed(sizes.values()))}"
    named, of = tally.named
    yield f"| **all** | {named} of {of} {_rest(tally.of_flaws)}"
    yield ""
    yield CLEAN_HEAD
    for name, kinds in sorted(tally.by_oddity.items()):
        yield _clean_row(name, kinds, kinds.total())
    _, of_clean = tally.doubted
    yield _clean_row("**all**", tally.kinds, of_clean)


def tables() -> str:
    """The tables of the recorded search."""
    return "\n".join(lines(read_tally()))


def write_page() -> None:
    """Put the tables of the recorded search into benchmarks/verdict_rates.md."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}{tables()}{END}{after}", encoding="utf-8")


def _rest(kinds: Kinds) -> str:
    counts = " | ".join(
        str(kinds[kind]) for kind in (UNSEEN, MISSED, UNMARKED, MISNAMED)
    )
    return f"| {counts} | {_interval(kinds[NAMED], moved(kinds))} |"


def _clean_row(name: str, kinds: Kinds, of: int) -> str:
    wrong = kinds[DOUBTED] + kinds[WRONG_THOUGH_CLEAN]
    return f"| {name} | {of} | {kinds[DOUBTED]} | {kinds[WRONG_THOUGH_CLEAN]} | {_interval(wrong, of)} |"


def _interval(hits: int, of: int) -> str:
    """`95 % (89 to 98)`."""
    if not of:
        return ""
    low, high = wilson(hits, of)
    return f"{100 * hits / of:.3g} % ({100 * low:.2g} to {100 * high:.3g})"
