"""Where the time of each request went: parts that sum to its end-to-end latency.
docs/where-the-time-went.md has the formulas.

Servers differ in what they report. llama-server sends each answer's times (`timings`), and its
headers when a request gets a slot; others report nothing of a single request. Time that cannot be
attributed is `unattributed`; a part that cannot be known for a request is NaN there, not 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.statistics.gap_times import COLUMNS, gap_times
from llama_load.analysis.statistics.intervals import (
    Durations,
    Instants,
    Intervals,
    queue_grants,
    slot_grants,
)
from llama_load.ground.units import NS_PER_MS
from llama_load.run_folder.observed.record import OK
from llama_load.run_folder.observed.records import Records

Mask = NDArray[np.bool_]
# Parts by key: where each is known, and its ns.
Found = dict[str, tuple[Mask, Durations]]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a request's time: its key in summary.json, its name in reports, its formula."""

    key: str
    name: str
    definition: str


PARTS = (
    Part("client_queue", "client queue", "started - scheduled; open loop only"),
    Part(
        "earlier_tries",
        "refused tries and pauses",
        "start of the last try - started; --retry only",
    ),
    Part(
        "connect",
        "connect and send",
        "sent - start of the last try: TCP and TLS handshakes, and the upload of the request",
    ),
    Part(
        "slot_wait",
        "wait for a slot",
        "sent to the instant at which a slot was free, by the ends of the requests that were sent before; the server's own time "
        "in its queue where each answer reports it",
    ),
    Part(
        "batch_wait",
        "wait for other prompts' batches",
        "time with a slot, before the own prompt began, in which other prompts were processed; and while k prompts were processed "
        "at once, (k - 1) / k of that time",
    ),
    Part(
        "image_prefill",
        "image encoding and prefill",
        "prefill of a request with images, with the time before it if a slot was free at once",
    ),
    Part(
        "prefill",
        "prefill",
        "start of the prompt to first token; while k prompts were processed at once, 1 / k of that time, or all of it where the "
        "server reports its queue: it processes them together",
    ),
    Part(
        "decode_alone",
        "decode alone",
        "gaps between tokens in which no other request was prefilled",
    ),
    Part(
        "decode_shared",
        "decode while others are prefilled",
        "gaps of which others' prefill covers half or more",
    ),
    Part(
        "network",
        "network and stream",
        "time from the start of the prompt to the last token beyond the server's own times",
    ),
    Part(
        "unattributed",
        "not attributed",
        "the rest: what the server does not report, such as other clients' requests, or reading a long prompt",
    ),
)
KEYS = tuple(part.key for part in PARTS)
# A gap counts as shared if others' prefill covers this share of it. Both begin and end with a
# batch: it is nearly all or nothing.
SHARED_FROM = 0.5
# Smaller remainders are the rounding of floats.
ROUNDING_MS = 1e-3
# Longer times, such as a broken server may report, are ignored.
LONGEST_MS = 1e9


@dataclass(frozen=True, slots=True)
class RequestParts:
    """The parts of each request, as columns with one row per record.

    `queue_excess`: the part of `slot_wait` beyond the wait in a queue of which each request takes as
    long as the server says, ms; negative where its own is shorter.

    `columns` has the keys of `PARTS`, in ms, NaN where not known; their sum over the known ones is
    `total_ms`: E2EL, in an open loop from the scheduled instant, NaN for a request without E2EL
    (failed or cancelled). Of the gaps between tokens: `gaps` their number, `gap_ms` their sum,
    `shared_gaps` and `shared_gap_ms` those with others' prefill. `from_sent`: 1 where a prefill is
    only known to lie between sent and first token, so that it includes queueing.
    """

    columns: Mapping[str, Durations]

    def __getitem__(self, key: str) -> Durations:
        return self.columns[key]

    def __len__(self) -> int:
        return len(self.columns["total_ms"])

    def where(self, mask: Mask) -> RequestParts:
        """The rows where `mask` (one bool per row) is true."""
        return (
            self
            if mask.all()
            else RequestParts(
                {key: values[mask] for key, values in self.columns.items()}
            )
        )


PARTS_COLUMNS = (
    *KEYS,
    "total_ms",
    "gaps",
    "gap_ms",
    "shared_gaps",
    "shared_gap_ms",
    "from_sent",
    "queue_excess",
)


def request_parts(
    records: Records,
    slots: Mapping[str, int],
    slots_by_model: Mapping[str, Mapping[str, int]] | None = None,
) -> RequestParts:
    """The parts of each request. `records` are all of the run, warm-ups included, because all of
    them used the server; `slots` is the number of slots by host, where it is known.
    `slots_by_model`: by host and model, where a server has a process for each (a router of
    llama-server): a model's requests wait for its own slots and batches alone."""
    hosts = records.values_of("host")
    slots_by_model = slots_by_model or {}
    if len(hosts) == 1 and not slots_by_model:
        return RequestParts(_of_host(records, slots.get(str(hosts[0]))))
    columns = {name: np.full(len(records), np.nan) for name in PARTS_COLUMNS}
    for host in hosts:
        of_host = records.equals("host", host)
        for model, own in slots_by_model.get(str(host), {}).items():
            of_model = of_host & records.equals("model", model)
            of_host = of_host & ~of_model
            _fill(columns, records, of_model, own)
        _fill(columns, records, of_host, slots.get(str(host)))
    return RequestParts(columns)


def _fill(
    columns: Mapping[str, Durations],
    records: Records,
    mask: NDArray[np.bool_],
    slots: int | None,
) -> None:
    """The rows of these requests, which use a server alone."""
    if not mask.any():
        return
    for name, values in _of_host(records.where(mask), slots).items():
        columns[name][mask] = values


class _Spans:
    """The instants of each request, ns: started <= tried <= sent <= begun <= prompt <= first <=
    last.

    `tried`: the start of its last try. `prompt`, the start of its prompt: first token - the
    server's own time for it; without that, the headers where the server holds them until the
    request has a slot; else sent. `begun`: the earlier of prompt and such headers. `last`: its last
    token; its end if it failed. An answer that was not streamed has no first token: the server's
    times count back from its end. `predicted`: the server's own time for the answer, -1 where it
    reports none; `own_queue`: its own time in the server's queue, likewise.
    """

    def __init__(self, records: Records) -> None:
        self.started, self.ended = (
            records.optional_instants(f"{name}_mono_ns")
            for name in ("started", "ended")
        )
        sent, first = (
            records.optional_instants(f"{name}_mono_ns")
            for name in ("sent", "first_token")
        )
        prompt_ns, predicted = (
            _known_ns(records.numbers(name))
            for name in ("server_prompt_ms", "server_predict_ms")
        )
        queue_ns = _known_ns(records.numbers("queue_ms"))
        self.own_queue = _known_ns(records.numbers("server_queue_ms"))
        e2el_ms = records.numbers("e2el_ms")
        self.counts = records.equals("status", OK) & ~np.isnan(e2el_ms)
        self.has_images = records.numbers("images") > 0
        self.streamed = first >= 0
        self.has_times = (
            (prompt_ns >= 0) & (predicted >= 0) & (self.streamed | self.counts)
        )
        self.knows_prompt = self.has_times | (queue_ns >= 0)
        self.has_queue = self.has_times & (self.own_queue >= 0)
        self.was_prefilled = self.streamed | self.knows_prompt
        self.predicted = np.where(self.has_times, predicted, -1)
        last_ns = np.where(
            self.counts, self.started + _ns(np.nan_to_num(e2el_ms)), self.ended
        )
        self.last = np.maximum(self.started, last_ns)
        first = np.where(
            self.streamed,
            first,
            np.where(self.has_times, self.last - predicted, self.last),
        )
        self.first = np.clip(first, self.started, self.last)
        tried = self.started + np.maximum(0, _known_ns(records.numbers("retry_ms")))
        self.tried = np.clip(tried, self.started, self.first)
        self.sent = np.clip(
            np.where(sent < 0, self.tried, sent), self.tried, self.first
        )
        headers = np.where(queue_ns >= 0, self.sent + queue_ns, self.sent)
        self.prompt = np.clip(
            np.where(self.has_times, self.first - prompt_ns, headers),
            self.sent,
            self.first,
        )
        is_held = (queue_ns >= 0) & ~self.has_queue
        self.begun = np.where(is_held, np.minimum(headers, self.prompt), self.prompt)


def _of_host(records: Records, slots: int | None) -> dict[str, Durations]:
    """The columns of one host's requests."""
    spans = _Spans(records)
    prefills = Intervals(
        spans.prompt[spans.was_prefilled], spans.first[spans.was_prefilled]
    )
    gaps = _gaps(records, prefills)
    queue_ms = records.numbers("client_queue_ms")
    e2el_ms = records.numbers("e2el_ms")
    parts = {"client_queue": np.where(spans.counts, queue_ms, np.nan)}
    granted = None
    excess_ms = np.zeros(len(records))
    if slots is not None:
        granted = _granted(spans, slots)
        excess_ms = _queue_excess_ms(spans, granted, slots)
    known_parts = _before_the_answer(spans, prefills, granted) | _answer(
        spans, prefills, gaps["shared_gap_ms"] * NS_PER_MS
    )
    for key, (known, ns) in known_parts.items():
        parts[key] = np.where(known & spans.counts, ns / NS_PER_MS, np.nan)
    total_ms = np.where(spans.counts, e2el_ms + np.nan_to_num(queue_ms), np.nan)
    rest = total_ms.copy()
    for values in parts.values():
        rest -= np.nan_to_num(values)
    parts["unattributed"] = np.where(np.abs(rest) < ROUNDING_MS, 0.0, rest)
    from_sent = (spans.counts & spans.streamed & ~spans.knows_prompt).astype(np.float64)
    more = {"total_ms": total_ms, "from_sent": from_sent, "queue_excess": excess_ms}
    return parts | more | gaps


def _queue_excess_ms(spans: _Spans, granted: Instants, slots: int) -> Durations:
    """The column `queue_excess` of `RequestParts`. `granted`: see `_granted`.

    Who delays answers, such as a proxy, makes slots look taken: requests behind seem to wait for
    them. By the server's own times they were free. Of requests without such times, and of those
    with images, whose encoding is in none, the time is what the client saw."""
    is_told = spans.has_times & ~spans.has_images
    own = spans.first - spans.prompt + spans.predicted
    took = np.where(is_told, own, np.maximum(0, spans.ended - granted))
    told = queue_grants(spans.sent, took, slots)
    excess = granted - np.minimum(told, spans.begun)
    return np.where(spans.has_queue, 0, excess) / NS_PER_MS


def _granted(spans: _Spans, slots: int) -> Instants:
    """When each request got a slot, by the ends of those before it, before its prompt began."""
    granted = slot_grants(spans.sent, spans.ended, slots)
    granted = np.where(spans.has_queue, spans.begun, granted)
    return np.clip(granted, spans.sent, spans.begun)


def _before_the_answer(
    spans: _Spans, prefills: Intervals, granted: Instants | None
) -> Found:
    """Connecting, waiting and prefill. `granted`: see `_granted`; None: slots are not known."""
    knows = spans.knows_prompt
    images = spans.has_images
    has_slots = np.full(len(knows), granted is not None) | spans.has_queue
    if granted is None:
        granted = spans.begun
    waited = np.where(
        spans.has_queue,
        np.minimum(spans.own_queue, spans.begun - spans.sent),
        granted - spans.sent,
    )
    others = np.minimum(prefills.covered(granted, spans.begun), spans.begun - granted)
    # A text is begun at once when it has a slot and a batch. Images are read before: while it waits
    # for a slot, or after sending.
    reading = np.where(
        images & (granted <= spans.sent), spans.begun - granted - others, 0.0
    )
    prefill = spans.first - spans.prompt
    own = np.minimum(prefills.share(spans.prompt, spans.first), prefill)
    own = np.where(spans.has_queue, prefill, own)
    return {
        "earlier_tries": (
            spans.tried > spans.started,
            (spans.tried - spans.started).astype(np.float64),
        ),
        "connect": (spans.counts, (spans.sent - spans.tried).astype(np.float64)),
        "slot_wait": (knows & has_slots, waited.astype(np.float64)),
        "batch_wait": (knows & has_slots, others + (prefill - own)),
        "image_prefill": (knows & images, own + np.where(has_slots, reading, 0.0)),
        "prefill": (knows & ~images, own),
    }


def _answer(spans: _Spans, prefills: Intervals, shared_ns: Durations) -> Found:
    """Decode, and the time beyond the server's own."""
    decode = spans.last - spans.first
    beyond = np.where(spans.has_times, np.maximum(0, decode - spans.predicted), 0)
    own_ratio = np.divide(
        decode - beyond, decode, out=np.zeros(len(decode)), where=decode > 0
    )
    shared = np.minimum(
        np.where(spans.streamed, shared_ns, prefills.covered(spans.first, spans.last)),
        decode,
    )
    decodes = spans.streamed | spans.has_times
    return {
        "decode_alone": (decodes, (decode - shared) * own_ratio),
        "decode_shared": (decodes, shared * own_ratio),
        "network": (
            spans.has_times,
            (beyond + (spans.prompt - spans.begun)).astype(np.float64),
        ),
    }


def _gaps(records: Records, prefills: Intervals) -> dict[str, Durations]:
    """Per request: number and sum of its gaps between tokens, and of those that others' prefill
    covers to `SHARED_FROM` or more."""
    names = ("gaps", "gap_ms", "shared_gaps", "shared_gap_ms")
    columns: dict[str, list[Durations]] = {name: [] for name in names}
    for batch in records.batches(*COLUMNS):
        counts, gaps_ms, ended_ns = gap_times(batch)
        request = np.repeat(np.arange(len(batch)), counts)
        until = prefills.covered_until(ended_ns)
        # a gap begins where the one before it ends
        since = np.concatenate(([0.0], until[:-1])) if len(until) else until
        first = batch.optional_instants("first_token_mono_ns")
        since[(np.cumsum(counts) - counts)[counts > 0]] = prefills.covered_until(
            first[counts > 0]
        )
        covered_ms = (until - since) / NS_PER_MS
        shared = (covered_ms >= SHARED_FROM * gaps_ms) & (gaps_ms > 0)
        weights = (None, gaps_ms, shared, gaps_ms * shared)
        for name, weight in zip(names, weights, strict=True):
            columns[name].append(
                np.bincount(request, weights=weight, minlength=len(batch)).astype(
                    np.float64
                )
            )
    return {
        name: np.concatenate(pieces) if pieces else np.zeros(0)
        for name, pieces in columns.items()
    }


def _ns(ms: Durations) -> Instants:
    return np.asarray(np.rint(ms * NS_PER_MS).astype(np.int64))


def _known_ns(ms: Durations) -> Instants:
    """Durations in ns; -1 where there is none, or not a valid one."""
    valid = (ms >= 0) & (ms < LONGEST_MS)
    return np.where(valid, _ns(np.where(valid, ms, 0.0)), -1)
