"""Tokens that have arrived of an answer that goes on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Instants = NDArray[np.int64]

# How often a page looks at answers that go on: with steps of 1 s and a page that asks twice a
# second, output is drawn within 2 s.
LOOK_EVERY_S = 0.25


class NewTokens(NamedTuple):
    """The events of one answer since the last time.

    `number` is that of the request in the plan, `before` counts the earlier events. `token_ns`
    are the instants of the new events, after that of the last earlier one, if there is one.
    """

    number: int
    before: int
    started_ns: int
    token_ns: Instants

    @property
    def new_ns(self) -> Instants:
        """The instants of the new events."""
        if self.before:
            return self.token_ns[1:]
        return self.token_ns
