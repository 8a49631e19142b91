"""Users who hang up: which requests they give up, and when (--abort-rate, --abort-after)."""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass

from llama_load.wire.request import GiveUp

FIRST_TOKEN = "first-token"  # noqa: S105
FORMS = f"{FIRST_TOKEN}, '20 tokens', '2.5 s' or lognormal:MEDIAN,SIGMA (median in s, standard deviation of the logarithm)"
MOST_TOKENS, MOST_S, MOST_SIGMA = 10**7, 86_400.0, 5.0
_TOKENS = re.compile(r"(\d{1,8}) ?tokens?", re.ASCII)
_SECONDS = re.compile(r"(\d{1,6}(?:\.\d{1,6})?) ?s", re.ASCII)
_LOGNORMAL = re.compile(r"lognormal:(\d{1,6}(?:\.\d{1,6})?),(\d(?:\.\d{1,6})?)", re.ASCII)


@dataclass(frozen=True, slots=True)
class HangUps:
    """A share of the requests that are given up, after so many tokens or at a time after their start (s; with a `sigma` above 0
    lognormal, and `seconds` is the median). Requests are drawn by their index, so that each run gives up the same ones."""

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
        return GiveUp(after_s=min(self.seconds * math.exp(drawn.gauss(0.0, self.sigma)), MOST_S))


def parse_hang_ups(rate: float, text: str, seed: int) -> HangUps:
    """The value of --abort-after. ValueError has the message."""
    if text == FIRST_TOKEN:
        return HangUps(rate, seed=seed)
    if match := _TOKENS.fullmatch(text):
        tokens = int(match[1])
        if 0 < tokens <= MOST_TOKENS:
            return HangUps(rate, tokens, seed=seed)
    elif match := _SECONDS.fullmatch(text):
        seconds = float(match[1])
        if 0 < seconds <= MOST_S:
            return HangUps(rate, None, seconds, seed=seed)
    elif match := _LOGNORMAL.fullmatch(text):
        seconds, sigma = float(match[1]), float(match[2])
        if 0 < seconds <= MOST_S and 0 < sigma <= MOST_SIGMA:
            return HangUps(rate, None, seconds, sigma, seed)
    raise ValueError(f"--abort-after must be {FORMS}, got {text!r}")
