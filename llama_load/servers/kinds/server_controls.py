"""What a server is asked to do around a measurement: empty its prompt cache, start and stop its
profiler."""

from __future__ import annotations

import time
from collections.abc import Sequence

from llama_load.outside.plain_http import Answer, NoAnswerError, Session
from llama_load.servers.json_fields import fields

TIMEOUT_S = 30.0
# A profiler writes its trace as it stops: vLLM took 20 s for that of half a second, on two cores.
STOP_PROFILER_S = 1800.0
MOST_SLOTS = 1024
# Between two requests to empty a cache that is in use.
RETRY_S = 0.2
NO_ANSWER = "the server did not answer"


def post_to(
    session: Session,
    url: str,
    paths: Sequence[str],
    note: str,
    within_s: float = TIMEOUT_S,
) -> str:
    """POST to these paths, which have one time together. Why that failed, "" if it did not;
    `note`: why a server may not take them."""
    if not paths:
        return note
    until_s = time.monotonic() + within_s
    try:
        for path in paths:
            left_s = max(0.01, until_s - time.monotonic())
            answer = session.post(url + path, {}, within_s=left_s)
            if not answer.ok:
                return note
    except NoAnswerError:
        return NO_ANSWER
    return ""


def slot_paths(session: Session, url: str, slots_path: str, path: str) -> list[str]:
    """This path for each {slot} of a server. NoAnswerError, ValueError, KeyError, TypeError: its
    slots are not known."""
    slots = session.get(url + slots_path, within_s=TIMEOUT_S).json()
    paths = []
    for slot in slots[:MOST_SLOTS]:
        paths.append(path.format(slot=int(slot["id"])))
    return paths


def post_until_done(session: Session, url: str, path: str, note: str) -> str:
    """POST to this path until the answer's `success` is not false, as it is while requests still
    hold parts of the cache. As `post_to`."""
    until_s = time.monotonic() + TIMEOUT_S
    while True:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            return f"requests held parts of it for {TIMEOUT_S:g} s"
        try:
            answer = session.post(url + path, {}, within_s=left_s)
        except NoAnswerError:
            return NO_ANSWER
        if not answer.ok:
            return note
        if not _is_refused(answer):
            return ""
        time.sleep(RETRY_S)


def _is_refused(answer: Answer) -> bool:
    try:
        return fields(answer.json()).get("success") is False
    except ValueError:  # older versions answer with nothing
        return False
