"""How often `compare` calls equal servers different while the machine drifts, by the order in which the runs were taken.

Planted: runs of equal servers that scatter by 1 % and get slower by a fixed share from one to the next. Printed per order and drift:
the share of pairs with a false alarm without regard to the order (Welch and Holm), and as `compare` judges them.

.venv/bin/python -m benchmarks.order [PAIRS]
"""

from __future__ import annotations

import sys

from benchmarks.harness import heading
from tests.comparison.test_order import IN_BLOCKS, IN_TURNS, is_alarm, is_alarm_of_welch, share

ORDERS = (IN_TURNS, "ABBAABBAAB", "ABABAB", "ABAB", "AABBAABBAABB", "AABBAABB", IN_BLOCKS)
DRIFTS = (0.0, 0.0025, 0.005, 0.01, 0.02, 0.05)


def main(pairs: int) -> None:
    """Print a row per order."""
    print(heading())
    print(f"{'order':<14}{'':<10}" + "".join(f"{f'{drift:.2%} a run':>14}" for drift in DRIFTS))
    for order in ORDERS:
        for name, judge in (("Welch", is_alarm_of_welch), ("compare", is_alarm)):
            cells = "".join(f"{share(pairs, judge, order, drift):>14.1%}" for drift in DRIFTS)
            print(f"{order:<14}{name:<10}{cells}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 300)
