"""python -m tests.search --seeds 200 --from 1 [--shrink] [--minutes 5] [--quiet]
[--record]"""

from __future__ import annotations

import argparse
import time
import warnings

from tests.search.draw import drawn
from tests.search.outcome import judged
from tests.search.page import lines, write_page
from tests.search.shrink import shrunk
from tests.search.tally import Tally


def main() -> None:
    """Search, and print each counterexample and the tables."""
    parser = argparse.ArgumentParser(prog="tests.search")
    parser.add_argument(
        "--seeds", type=int, default=200, help="how many cases (default: %(default)s)"
    )
    parser.add_argument(
        "--from",
        type=int,
        default=1,
        dest="first",
        help="the first seed (default: %(default)s)",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=60.0,
        help="end after this time (default: %(default)s)",
    )
    parser.add_argument(
        "--shrink", action="store_true", help="make counterexamples smaller"
    )
    parser.add_argument("--quiet", action="store_true", help="print the tables alone")
    parser.add_argument(
        "--record",
        action="store_true",
        help="write the counts to results.json and benchmarks/verdict_rates.md",
    )
    chosen = parser.parse_args()

    warnings.simplefilter("ignore")
    tally = Tally()
    begun_s = time.monotonic()
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        if time.monotonic() - begun_s > 60 * chosen.minutes:
            break
        outcome = judged(drawn(seed))
        tally.add(outcome)
        if outcome.is_counterexample and not chosen.quiet:
            print(
                (shrunk(outcome) if chosen.shrink else outcome).story,
                end="\n\n",
                flush=True,
            )

    print("\n".join(lines(tally)))
    seconds = time.monotonic() - begun_s
    print(
        f"\n{tally.kinds.total()} cases in {seconds:.0f} s ({60 * tally.kinds.total() / seconds:.0f} a minute)"
    )
    if chosen.record:
        tally.write()
        write_page()


if __name__ == "__main__":
    main()
