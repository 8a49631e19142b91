"""What the server of a recording says of its cache of blocks on its page of metrics, while requests
pass: the size of a block, preemptions, and the used share."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import suppress

import numpy as np

from llama_load.analysis.topics.reprocessing.kv_blocks import (
    NO_BLOCKS,
    KvBlocks,
    blocks_of,
)
from llama_load.outside.plain_http import NoAnswerError, Session
from llama_load.run_folder.observed.telemetry_series import Series
from llama_load.servers.kinds import KINDS
from llama_load.servers.kinds.server_kind import ServerKind
from llama_load.telemetry.prometheus import parse
from llama_load.telemetry.source import SourceError, Value

TIMEOUT_S = 5
# As telemetry samples it. A busy recording would ask for each request.
EACH_S = 1.0
# Of a recording of weeks, the last.
MOST_SAMPLES = 100_000

_Name = tuple[str, tuple[tuple[str, str], ...]]


class RecordedCache:
    """Samples the page, at most once a second. A server without such a page is asked once."""

    def __init__(self, url: str, session: Session) -> None:
        self._page = f"{url}/metrics"
        self._session = session
        self._kind: ServerKind | None = None
        self._is_absent = False
        self._asked_s = -EACH_S
        self._samples: dict[_Name, list[tuple[int, float]]] = defaultdict(list)

    def look(self) -> None:
        """Sample it, if it is time."""
        now_s = time.monotonic()
        if self._is_absent or now_s - self._asked_s < EACH_S:
            return
        self._asked_s = now_s
        values = self._asked()
        if self._kind is None:
            self._kind = _kind_of(values)
        if self._kind is None:
            self._is_absent = True
            return
        now_ns = time.monotonic_ns()
        for value in values:
            if _is_of_cache(value, self._kind):
                samples = self._samples[value.metric, value.labels]
                samples.append((now_ns, value.value))
                del samples[:-MOST_SAMPLES]

    def blocks(self, command: str) -> KvBlocks:
        """What was seen; `command`: of the server, "" if it is not known."""
        if self._kind is None:
            return NO_BLOCKS
        found = []
        for (metric, labels), samples in self._samples.items():
            instants = np.array([at for at, _ in samples], dtype=np.int64)
            values = np.array([value for _, value in samples])
            found.append(Series(self._page, metric, dict(labels), instants, values))
        return blocks_of(self._kind, found, command)

    def _asked(self) -> list[Value]:
        with suppress(NoAnswerError, SourceError, ValueError):
            answer = self._session.get(self._page, within_s=TIMEOUT_S)
            if answer.ok:
                return list(parse(answer.text))
        return []


def _kind_of(values: list[Value]) -> ServerKind | None:
    """The kind of server that describes its blocks so."""
    names = {value.metric for value in values}
    for kind in KINDS.values():
        metrics = kind.metrics
        if metrics is None or not metrics.cache_info:
            continue
        if metrics.prefix + metrics.cache_info in names:
            return kind
    return None


def _is_of_cache(value: Value, kind: ServerKind) -> bool:
    metrics = kind.metrics
    if metrics is None:
        return False
    name = value.metric.removeprefix(metrics.prefix)
    known = (metrics.cache_info, metrics.preemptions, *metrics.kv_used)
    return name.removesuffix("_total") in known
