"""Stages: a run in parts, each with its load.

    1,8,16              requests in flight, one stage after the other
    1:16,8:128          the same with a number of prompts each
    1:30s,8:2m          or a time each
    2/s,4/s:600         request rates (open loop)
    1-16:60s            a ramp from 1 to 16 in flight within 60 s; 1/s-10/s:60s is a ramp of the
                        rate
    spike:4-32:30s      4 in flight, then 32, then 4 again, each for 30 s, without a pause between
                        them
    soak:8:1h           8 in flight for an hour, reported in six windows to show drift

A stage without an amount uses --num-prompts or -t. Before every stage, except one that continues
the stage before it, all requests in flight end and a warm-up is sent.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, replace

SOAK_WINDOWS = 6
MOST = 10**9  # in flight, arrivals per second, prompts, s: more is a typo

_TIME = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")
EXAMPLES = "1,8,16 or 1:16,8:128 or 2/s,4/s or 1-16:60s or spike:4-32:30s or soak:8:1h"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A part of a run with one load: `users` requests in flight, or `rate_rps` arrivals per second.

    `start` is where a ramp begins, in the same unit. It ends after `count` requests or `seconds`;
    None: after the run's amount. `goes_on`: it follows the previous stage without a pause.
    """

    name: str
    users: int | None = None
    rate_rps: float | None = None
    start: float | None = None
    count: int | None = None
    seconds: float | None = None
    goes_on: bool = False

    def users_at(self, elapsed_s: float) -> int | None:
        """Maximum requests in flight at this time after the stage's start; None with a rate or
        without a limit.

        A ramp from 1 to 16 in 60 s: 1, after 30 s 9, at the end 16.
        """
        if self.users is None or self.start is None or not self.seconds:
            return self.users
        share = min(max(elapsed_s / self.seconds, 0.0), 1.0)
        return max(1, math.floor(self.start + (self.users - self.start) * share + 0.5))


def parse_stages(text: str) -> tuple[Stage, ...]:
    """Read the value of --stages (see above). ValueError has the message. Names are unique: 8, 8
    (2)."""
    stages = []
    for element in text.split(","):
        stages += _element(element.strip())

    seen: Counter[str] = Counter()
    named = []
    for stage in stages:
        seen[stage.name] += 1
        times = seen[stage.name]
        name = stage.name if times == 1 else f"{stage.name} ({times})"
        named.append(replace(stage, name=name))
    return tuple(named)


def _element(text: str) -> list[Stage]:
    kind, colon, rest = _parted(text, ":")
    if kind == "spike" and colon:
        return _spike(text, rest)
    if kind == "soak" and colon:
        return _soak(text, rest)
    level, colon, amount = _parted(text, ":")
    first, dash, last = _parted(level, "-")
    count = None
    seconds = None
    if colon:
        count, seconds = _amount(text, amount)
    if not dash:
        return [_at(text, level, name=level, count=count, seconds=seconds)]
    if seconds is None:
        raise _wrong(text, "a ramp needs a time, such as 1-16:60s")

    begin = _at(text, first)
    end = _at(text, last, name=f"{first}-{last}", seconds=seconds)
    if (begin.users is None) != (end.users is None):
        raise _wrong(text, "both ends of a ramp must be rates, or neither")
    start = begin.rate_rps if begin.users is None else begin.users
    return [replace(end, start=start)]


def _spike(text: str, rest: str) -> list[Stage]:
    levels, _, time = _parted(rest, ":")
    base, dash, peak = _parted(levels, "-")
    seconds = _amount(text, time)[1]
    if not dash or seconds is None:
        raise _wrong(text, "a spike looks like spike:4-32:30s")
    before = _at(text, base, name=f"{base} before", seconds=seconds)
    spike = _at(text, peak, name=f"{peak} spike", seconds=seconds, goes_on=True)
    if (before.users is None) != (spike.users is None):
        raise _wrong(text, "both loads of a spike must be rates, or neither")
    return [before, spike, replace(before, name=f"{base} after", goes_on=True)]


def _soak(text: str, rest: str) -> list[Stage]:
    level, _, time = _parted(rest, ":")
    seconds = _amount(text, time)[1]
    if seconds is None:
        raise _wrong(text, "a soak looks like soak:8:1h")
    return [
        _at(
            text,
            level,
            name=f"{level} {number + 1}/{SOAK_WINDOWS}",
            seconds=seconds / SOAK_WINDOWS,
            goes_on=number > 0,
        )
        for number in range(SOAK_WINDOWS)
    ]


def _at(
    text: str,
    level: str,
    name: str = "",
    *,
    count: int | None = None,
    seconds: float | None = None,
    goes_on: bool = False,
) -> Stage:
    """A stage from its load as written: 8 or 2.5/s."""
    users = None
    rate = None
    try:
        # float() accepts surrounding space, which would get into the name
        if level.split() != [level]:
            raise ValueError
        if level.endswith("/s"):
            rate = float(level.removesuffix("/s"))
            is_possible = 1 / MOST <= rate <= MOST
        else:
            users = int(level)
            is_possible = 1 <= users <= MOST
        if not is_possible:
            raise ValueError
    except ValueError:
        raise _wrong(
            text,
            "a load is a number of requests in flight, such as 8, or a rate, such as 2.5/s",
        ) from None
    return Stage(
        name=name,
        users=users,
        rate_rps=rate,
        count=count,
        seconds=seconds,
        goes_on=goes_on,
    )


def _amount(text: str, amount: str) -> tuple[int | None, float | None]:
    """A number of prompts or a time in s: 64 -> (64, None), 1m30s -> (None, 90.0)."""
    if amount.isdecimal() and len(amount) <= len(str(MOST)) and 0 < int(amount) <= MOST:
        return int(amount), None

    seconds = 0.0
    match = _TIME.fullmatch(amount)
    if match is not None:
        hours, minutes, rest = match.groups(default="0")
        seconds = 3600 * float(hours) + 60 * float(minutes) + float(rest)
    if not 0 < seconds <= MOST:
        raise _wrong(
            text,
            "an amount is a number of prompts, such as 64, or a time, such as 30s, 5m or 1h",
        )
    return None, seconds


def _parted(text: str, sign: str) -> tuple[str, str, str]:
    """str.partition with stripped parts."""
    before, separator, after = text.partition(sign)
    return before.strip(), separator, after.strip()


def _wrong(text: str, why: str) -> ValueError:
    return ValueError(f"--stages {text!r} is not valid: {why}; write {EXAMPLES}")
