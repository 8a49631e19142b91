"""Locust's own flags, where ours depend on them: -u, -r and -t, read from texts as Locust reads
them, and their conflicts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from llama_load.ground.errors import UsageError
from llama_load.loadgen.options.flag_limits import DEFAULT_NUM_PROMPTS, MOST_USERS
from llama_load.loadgen.options.options import RunOptions
from llama_load.loadgen.options.sections.locust_section import OF_LOCUST
from llama_load.loadgen.schedule.segments import LONGEST_S

# What a run of llama-load has where its command sets neither a load nor an end: p99 of 100 requests
# is known, and a first run ends while one waits for it.
FIRST_USERS = 8
# Of two minutes: then nothing more is sent, and what is under way has the rest of them to end.
FIRST_TIME_S = 100
FIRST_WAIT_S = 20.0

_TIME = re.compile(r"(?=\d)(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?|(\d+)")


def time_s(text: str) -> float | None:
    """Seconds of Locust's run times: 90s, 5m, 1h30m, 20; None for other texts."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds, plain = (int(part or 0) for part in match.groups())
    return 3600.0 * hours + 60 * minutes + seconds + plain


def _time_s(text: str) -> float:
    if (seconds := time_s(text)) is None:
        raise ValueError(text)
    return seconds


_READERS: Mapping[str, tuple[Callable[[str], float], str]] = {
    "num_users": (int, "a whole number of at least 1"),
    "spawn_rate": (float, "a number of users a second"),
    "run_time": (_time_s, "a time such as 90s, 10m or 1h30m"),
}


def read_locust_flags(
    texts: Mapping[str, str | None], faults: list[str]
) -> dict[str, Any]:
    """The values of -u, -r and -t by their names on the parsed options; None where they are not
    given or cannot be read."""
    values: dict[str, Any] = dict.fromkeys(_READERS)
    for flag in OF_LOCUST:
        text = texts.get(flag.dest)
        if flag.dest in _READERS and text:
            read, what = _READERS[flag.dest]
            try:
                values[flag.dest] = read(text)
            except (ValueError, OverflowError):
                faults.append(f"{flag.name} must be {what}, got {text!r}")
    return values


def impossible_values(options: Any) -> list[str]:
    """A sentence for each of Locust's flags whose value is out of all bounds."""
    users = options.num_users
    spawn_rate = options.spawn_rate
    run_time_s = options.run_time
    faults = []
    if users is not None and not 1 <= users <= MOST_USERS:
        faults.append(
            f"-u must be a whole number of at least 1 and at most {MOST_USERS:,}, got {users}"
        )
    if spawn_rate is not None and not 0 < spawn_rate <= MOST_USERS:
        faults.append(
            f"-r must be a number of users a second above 0 and at most {MOST_USERS:,}, got "
            f"{spawn_rate:g}"
        )
    if run_time_s is not None and not 0 < run_time_s <= LONGEST_S:
        faults.append(
            f"-t must be a time above 0 s and at most {LONGEST_S:,.0f} s, got {run_time_s} s"
        )
    return faults


def refuse_conflicts(options: Any, given: RunOptions) -> None:
    """Raises UsageError for impossible values, and for flags that conflict or have no effect."""
    if faults := impossible_values(options):
        raise UsageError("\n".join(faults))
    users = options.num_users
    most = given.max_concurrency
    spawn_rate = options.spawn_rate
    is_open = given.load.is_open or given.trace is not None
    if not is_open and users is not None and most is not None and users != most:
        raise UsageError(
            f"-u {users} and --max-concurrency {most} both set concurrency: give only one"
        )
    if (
        users is not None
        and given.conversations is not None
        and users != given.conversations
    ):
        raise UsageError(
            f"-u {users} and --conversations {given.conversations} both set the number of users: "
            "give only one"
        )
    if given.load.stages and users is not None:
        raise UsageError(
            f"-u {users} and --stages {options.stages} both set concurrency: leave out -u"
        )
    if spawn_rate is not None and (is_open or given.load.stages):
        raise UsageError(
            "-r has no effect with a request rate or stages: users are started before the load "
            "begins; leave it out"
        )


def with_first_load(options: Any, given: RunOptions, *, has_shape: bool) -> RunOptions:
    """The flags with what the command leaves open: without a load 8 users, without an end 100
    requests and two minutes, whichever is first. Answers under way at the end are waited for: cut
    ones would be missing in the latencies."""
    load = given.load
    is_open = load.is_open or given.trace is not None
    concurrency = options.num_users or given.max_concurrency or given.conversations
    if not (concurrency or is_open or load.stages or has_shape):
        options.num_users = FIRST_USERS

    amounts = [stage.count or stage.seconds for stage in load.stages]
    has_own_end = given.trace is not None or has_shape or (amounts and all(amounts))
    if has_own_end or options.run_time or given.num_prompts is not None:
        return given
    given = replace(given, num_prompts=DEFAULT_NUM_PROMPTS)
    if load.conversations_per_min is not None:
        return given
    options.run_time = FIRST_TIME_S
    wait_s = given.wait_at_end_s or FIRST_WAIT_S
    return replace(given, wait_at_end_s=wait_s)


def users_of(options: Any, given: RunOptions) -> int:
    """-u, else --conversations or --max-concurrency of a closed loop, else 1."""
    if options.num_users:
        return int(options.num_users)
    is_open = given.load.is_open or given.trace is not None
    if is_open:
        return 1
    return given.conversations or given.max_concurrency or 1
