"""What a server is asked to do around a measurement: empty its prompt cache, start and stop its
profiler."""

from __future__ import annotations

import time
from collections.abc import Sequence

from llama_load.plain_http import NoAnswerError, Session
from llama_load.targets.servers import ServerKind

TIMEOUT_S = 30.0
MOST_SLOTS = 1024


def reset_cache(session: Session, url: str, kind: ServerKind) -> str:
    """Empty the prompt cache of this server. Why that failed, "" if it did not."""
    try:
        paths = reset_paths(session, url, kind)
    except NoAnswerError:
        return "the server did not answer"
    except (ValueError, KeyError, TypeError):
        return kind.cache_reset_note
    return _posted(session, url, paths, kind.cache_reset_note)


def reset_paths(session: Session, url: str, kind: ServerKind) -> list[str]:
    """What is posted to empty the cache: one path, one for each slot, or none. NoAnswerError,
    ValueError, KeyError, TypeError: its slots are not known."""
    if not kind.cache_reset:
        return []
    if "{slot}" not in kind.cache_reset:
        return [kind.cache_reset]
    slots = session.get(url + kind.slots_path, within_s=TIMEOUT_S).json()
    paths = []
    for slot in slots[:MOST_SLOTS]:
        paths.append(kind.cache_reset.format(slot=int(slot["id"])))

    return paths


def start_profiler(session: Session, url: str, kind: ServerKind) -> str:
    """Why the server's profiler did not start, "" if it did."""
    paths = [kind.profile_start] if kind.profile_start else []
    return _posted(session, url, paths, kind.profile_note)


def stop_profiler(session: Session, url: str, kind: ServerKind) -> str:
    """Why the server's profiler did not stop, "" if it did."""
    paths = [kind.profile_stop] if kind.profile_stop else []
    return _posted(session, url, paths, kind.profile_note)


def _posted(session: Session, url: str, paths: Sequence[str], note: str) -> str:
    """POST to these paths, which have one time together; `note`: why a server of this kind may not
    take them."""
    if not paths:
        return note
    until_s = time.monotonic() + TIMEOUT_S
    try:
        for path in paths:
            left_s = max(0.01, until_s - time.monotonic())
            answer = session.post(url + path, {}, within_s=left_s)
            if not answer.ok:
                return note
    except NoAnswerError:
        return "the server did not answer"
    return ""
