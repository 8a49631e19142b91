"""How often `compare` calls equal servers different while the machine drifts, by the order in which
the runs were taken.

Planted: runs of equal servers that scatter by 1 % and get slower by a fixed share from one to the
next (drift), or of which the second of each pair is faster by a fixed share (rhythm). Printed per
order and size: the share of pairs with a false alarm without regard to the order (Welch and Holm),
and as `compare` judges them.

.venv/bin/python -m benchmarks.order [PAIRS]
"""

from __future__ import annotations

import sys

from benchmarks.harness import heading
from tests.analysis.comparison.test_order import (
    ALTERNATING,
    IN_BLOCKS,
    IN_TURNS,
    is_alarm,
    is_alarm_of_welch,
    share,
)

ORDERS = (
    IN_TURNS,
    "ABBAAB",
    "ABBA",
    ALTERNATING,
    "AABBAABBAABB",
    "AABBAABB",
    IN_BLOCKS,
)
DRIFTS = (0.0, 0.0025, 0.005, 0.01, 0.02, 0.05)
RHYTHMS = (0.0, 0.005, 0.01, 0.02, 0.05)
JUDGES = {"Welch": is_alarm_of_welch, "compare": is_alarm}


def main(pairs: int) -> None:
    """Print a row per order."""
    print(heading())
    print(
        "drift" + " " * 19 + "".join(f"{f'{drift:.2%} a run':>14}" for drift in DRIFTS)
    )
    for order in ORDERS:
        for name, judge in JUDGES.items():
            cells = "".join(
                f"{share(pairs, judge, order, drift):>14.1%}" for drift in DRIFTS
            )
            print(f"{order:<14}{name:<10}{cells}", flush=True)
    print(
        "rhythm"
        + " " * 18
        + "".join(f"{f'{rhythm:.2%} a pair':>14}" for rhythm in RHYTHMS)
    )
    for order in ORDERS:
        for name, judge in JUDGES.items():
            cells = "".join(
                f"{share(pairs, judge, order, 0.0, rhythm=-rhythm):>14.1%}"
                for rhythm in RHYTHMS
            )
            print(f"{order:<14}{name:<10}{cells}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 300)
