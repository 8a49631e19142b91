"""Users who hang up: which requests they give up, and when (--abort-rate, --abort-after)."""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass

from llama_load.loadgen.wire.request import GiveUp

FIRST_TOKEN = "first-token"  # noqa: S105
FORMS = (
    f"{FIRST_TOKEN}, '20 tokens', '2.5 s' or lognormal:MEDIAN,SIGMA (median in s, standard "
    "deviation of the logarithm)"
)
MOST_TOKENS = 10**7
MOST_S = 86_400.0
MOST_SIGMA = 5.0
_FORM = re.compile(
    r"(?P<tokens>\d{1,8}) ?tokens?|(?P<seconds>\d{1,6}(?:\.\d{1,6})?) ?s"
    r"|lognormal:(?P<median>\d{1,6}(?:\.\d{1,6})?),(?P<sigma>\d(?:\.\d{1,6})?)",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class HangUps:
    """A share of the requests that are given up, after so many tokens or at a time after their
    start (s; with a `sigma` above 0 lognormal, and `seconds` is the median). Requests are drawn by
    their index, so that each run gives up the same ones."""

    rate: float
    tokens: int | None = 1
    seconds: float | None = None
    sigma: float = 0.0
    seed: int = 0

    def of(self, index: int) -> GiveUp | None:
        """When the request with this index is given up; None: its user waits for the end."""
        drawn = random.Random(f"{self.seed} hang up {index}")
        if drawn.random() >= self.rate:
            return None
        if self.seconds is None:
            return GiveUp(tokens=self.tokens)
        return GiveUp(
            after_s=min(self.seconds * math.exp(drawn.gauss(0.0, self.sigma)), MOST_S)
        )


def parse_hang_ups(rate: float, text: str, seed: int) -> HangUps:
    """The value of --abort-after. ValueError has the message."""
    if text == FIRST_TOKEN:
        return HangUps(rate, seed=seed)

    match = _FORM.fullmatch(text)
    if match is not None:
        tokens = int(match["tokens"] or 0)
        seconds = float(match["seconds"] or match["median"] or 0)
        sigma = float(match["sigma"] or 0)
        has_good_sigma = match["sigma"] is None or 0 < sigma <= MOST_SIGMA
        is_time = 0 < seconds <= MOST_S and has_good_sigma
        if 0 < tokens <= MOST_TOKENS or is_time:
            return HangUps(rate, tokens or None, seconds or None, sigma, seed)

    raise ValueError(f"--abort-after must be {FORMS}, got {text!r}")
