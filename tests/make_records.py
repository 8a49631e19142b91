"""Made-up records for tests of everything above them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from llama_load.loadgen.options.flags import flag_roles
from llama_load.loadgen.workloads.prompt_plan import DataFacts, PlanFacts
from llama_load.run_folder import Manifest
from llama_load.run_folder.observed.record import RequestRecord, to_batch
from llama_load.run_folder.observed.records import Records

MS = 1_000_000


def record(
    index: int = 0,
    *,
    start_ms: float = 0,
    first_ms: float = 100,
    gaps_ms: tuple[float, ...] = (20, 20),
    **changed: Any,
) -> RequestRecord:
    """A good request: started, first token after `first_ms`, further tokens after these gaps; as
    many tokens as events."""
    started = round(start_ms * MS)
    first = started + round(first_ms * MS)
    last = first + round(sum(gaps_ms) * MS)
    tokens = 1 + len(gaps_ms)
    fields: dict[str, Any] = {
        "request_id": f"r{index}",
        "worker": "local",
        "user": "U",
        "workload": "sharegpt",
        "name": "sharegpt",
        "host": "http://h",
        "endpoint": "chat",
        "prompt_index": index,
        "status": "ok",
        "finish_reason": "length",
        "started_mono_ns": started,
        "connected_mono_ns": started + MS,
        "sent_mono_ns": started + MS,
        "first_token_mono_ns": first,
        "last_token_mono_ns": last,
        "ended_mono_ns": last + MS,
        "started_wall_ns": started,
        "connect_ms": 1.0,
        "own_delay_ms": 0.1,
        "ttft_ms": first_ms,
        "tpot_ms": sum(gaps_ms) / len(gaps_ms) if gaps_ms else None,
        "e2el_ms": first_ms + sum(gaps_ms),
        "e2el_per_token_ms": (first_ms + sum(gaps_ms)) / tokens,
        "itl_ms": list(gaps_ms),
        "prompt_tokens": 10,
        "cached_tokens": 0,
        "output_tokens": tokens,
        "token_events": tokens,
        "output_chars": 3 * tokens,
        "max_tokens": tokens,
        "token_source": "usage",
    }
    return RequestRecord(**fields | changed)


def failed(
    index: int = 0, *, start_ms: float = 0, end_ms: float = 50, kind: str = "http_500"
) -> RequestRecord:
    """A request that failed."""
    empty = dict.fromkeys(
        [
            "ttft_ms",
            "tpot_ms",
            "e2el_ms",
            "e2el_per_token_ms",
            "first_token_mono_ns",
            "last_token_mono_ns",
            "output_tokens",
        ]
    )
    ended = round(end_ms * MS)
    return record(
        index,
        start_ms=start_ms,
        itl_ms=[],
        token_events=0,
        status=kind,
        error="boom",
        **empty | {"ended_mono_ns": ended},
    )


def table(*records: RequestRecord) -> Records:
    """Records as columns."""
    return Records(pa.Table.from_batches([to_batch(records)]))


def manifest(**changed: Any) -> Manifest:
    """A manifest of a run that completed."""
    fields: dict[str, Any] = {
        "version": "1",
        "date": "20261120-120000",
        "workload": "sharegpt",
        "command": ["locust"],
        "options": {},
        "flag_roles": flag_roles(),
        "endpoint": "chat",
        "backend": "llama-server",
        "model": "tiny",
        "users": 4,
        "end": "complete",
    }
    return Manifest(**fields | changed)


def facts(**changed: Any) -> PlanFacts:
    """What a plan says of itself whose prompts are all sent once."""
    fields: dict[str, Any] = {
        "dataset": DataFacts(path="p"),
        "counted_by": "server",
        "distinct": 1,
        "repeated": 0,
        "replaced": 0,
    }
    return PlanFacts(**fields | changed)


def from_batch(batch: pa.RecordBatch) -> list[RequestRecord]:
    """The inverse of `to_batch` (gaps come back as float32 gave them)."""
    return [RequestRecord(**row) for row in batch.to_pylist()]
