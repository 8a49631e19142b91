"""What the client feels at present, for the live page: the lag of its loop, its waits for a core,
and other programs' CPU time."""

from __future__ import annotations

from collections import deque

import numpy as np

from llama_load.loadgen.live.gauges import CORE_WAIT, LOOP_LAG, OTHERS

# Lags are measured every 20 ms.
LAGS = 500


class PresentHealth:
    """Lags of the last ten seconds, and the shares of the last whole window."""

    def __init__(self) -> None:
        self._lags_ms: deque[float] = deque(maxlen=LAGS)
        self._shares: dict[str, float] = {}
        self._before: dict[str, float | None] = {}

    def lag(self, lag_ms: float) -> None:
        """The loop was this late."""
        self._lags_ms.append(lag_ms)

    def window(
        self,
        *,
        now_s: float,
        waited_ms: float | None,
        all_s: float,
        idle_s: float,
        own_s: float,
        server_s: float,
    ) -> None:
        """A window ends: readings of counters that only grow. `waited_ms` None: not known. Other
        programs' time is what is neither idle, ours nor the servers'."""
        now = {
            "now": now_s,
            "waited": waited_ms,
            "all": all_s,
            "others": all_s - idle_s - own_s - server_s,
        }
        rise = {}
        for name, value in now.items():
            if value is not None and (before := self._before.get(name)) is not None:
                rise[name] = value - before
        self._before = now
        self._shares = {}
        if "waited" in rise and rise["now"] > 0:
            self._shares[CORE_WAIT] = 100 * min(
                1.0, max(0.0, rise["waited"] / 1000 / rise["now"])
            )
        if rise.get("all", 0.0) > 0:
            self._shares[OTHERS] = 100 * min(
                1.0, max(0.0, rise["others"] / rise["all"])
            )

    def gauges(self) -> dict[str, float]:
        """By name; what is not known is left out."""
        lag = (
            {LOOP_LAG: float(np.percentile(list(self._lags_ms), 99))}
            if self._lags_ms
            else {}
        )
        return lag | self._shares
