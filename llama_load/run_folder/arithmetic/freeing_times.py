"""How soon a server stops working on requests whose users hung up, from counts of what it works on.

A count is compared with the requests in flight between the question and its answer. What the server
has beyond them is work for users who have gone; of several, those who hung up first are taken to be
free first. A request that was sent just before the question may not be counted yet, and one that
ended just before may still be: within `GRACE_NS` neither proves anything. So the time of each is
known between two looks: after the last that surely shows it at work, and at the first that surely
does not.

A user hangs up at 0 ms while 2 others are in flight; looks at 20, 70 and 120 ms count 3, 3 and 2:
free after 120 ms, and not before 70 ms.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from llama_load.ground.units import NS_PER_MS, NS_PER_S
from llama_load.run_folder.arithmetic.percentiles import is_enough
from llama_load.run_folder.observed.hang_up_check import FreeingTimes

# From the last byte of a request to its place in the server's queue: parsing and tokenizing; and
# from its last token to its slot.
GRACE_NS = 10 * NS_PER_MS
# If nothing is known for longer, the time when a look could tell is not a time of the server.
MOST_UNKNOWN_NS = NS_PER_S
LATE_MS = 10_000.0


class Look(NamedTuple):
    """A server's count of its requests, which is right at some instant between question and answer
    (ns). `is_all`: it has all of them; else further ones may wait. It may have `probes`, which are
    no requests of the load."""

    asked_ns: int
    answered_ns: int
    at_work: int
    is_all: bool
    probes: int = 0


@dataclass(frozen=True, slots=True)
class Spans:
    """The instants (ns, ascending) at which requests were sent to a server, ended, and were given
    up, which is an end as well."""

    sent_ns: NDArray[np.int64]
    ended_ns: NDArray[np.int64]
    given_up_ns: NDArray[np.int64]

    def surely_counted(self, look: Look) -> int:
        """How many of the requests in flight the count must have."""
        began = np.searchsorted(self.sent_ns, look.asked_ns - GRACE_NS, side="right")
        return max(
            0,
            int(began - np.searchsorted(self.ended_ns, look.answered_ns, side="right")),
        )

    def possibly_counted(self, look: Look) -> int:
        """How many requests the count may have that nobody gave up: in flight, or ended just now,
        and probes."""
        began = np.searchsorted(self.sent_ns, look.answered_ns, side="right")
        return look.probes + int(
            began
            - np.searchsorted(self.ended_ns, look.asked_ns - GRACE_NS, side="left")
        )


@dataclass(slots=True)
class _GivenUp:
    """A request without a user since `since_ns`, and surely at work until `busy_ns`."""

    since_ns: int
    busy_ns: int


def freeing_times(spans: Spans, looks: Sequence[Look]) -> FreeingTimes:
    """The figures of one server; `looks` in their order."""
    waiting: deque[_GivenUp] = deque()
    upper_ms = array("d")
    widths_ms = array("d")
    unknown = begun = most = 0
    for look in looks:
        while (
            begun < len(spans.given_up_ns) and spans.given_up_ns[begun] <= look.asked_ns
        ):
            since_ns = int(spans.given_up_ns[begun])
            waiting.append(_GivenUp(since_ns, since_ns))
            begun += 1
        at_most = (
            look.at_work - spans.surely_counted(look) if look.is_all else len(waiting)
        )
        at_least = look.at_work - spans.possibly_counted(look)
        for _ in range(len(waiting) - max(at_most, 0)):
            one = waiting.popleft()
            if look.answered_ns - one.busy_ns > MOST_UNKNOWN_NS:
                unknown += 1
            else:
                upper_ms.append((look.answered_ns - one.since_ns) / NS_PER_MS)
                widths_ms.append((look.answered_ns - one.busy_ns) / NS_PER_MS)
        for one in list(waiting)[max(0, len(waiting) - max(at_least, 0)) :]:
            one.busy_ns = look.asked_ns
        most = max(most, min(at_least, len(waiting)))
    stuck = [one for one in waiting if looks and one.busy_ns == looks[-1].asked_ns]
    return FreeingTimes(
        freed=len(upper_ms),
        median_ms=_percentile(upper_ms, 50.0),
        p99_ms=_percentile(upper_ms, 99.0),
        longest_ms=max(upper_ms, default=None),
        resolution_ms=_percentile(widths_ms, 50.0),
        late=sum(ms > LATE_MS for ms in upper_ms),
        unknown=unknown + len(waiting) - len(stuck) + len(spans.given_up_ns) - begun,
        stuck=len(stuck),
        stuck_ms=max(
            ((one.busy_ns - one.since_ns) / NS_PER_MS for one in stuck), default=None
        ),
        most_at_work=most,
        looks=len(looks),
        look_ms=_percentile(
            [(look.answered_ns - look.asked_ns) / NS_PER_MS for look in looks], 50.0
        ),
    )


def _percentile(values: Sequence[float], percentile: float) -> float | None:
    """None where the sample is too small for it; a median needs one value."""
    if not values or (percentile > 50 and not is_enough(len(values), percentile)):
        return None
    return float(np.percentile(values, percentile))
