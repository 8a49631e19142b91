"""Rows of the preflight about the servers, their models and slots."""

from __future__ import annotations

import math
from collections.abc import Sequence

from llama_load.ground.units import quantity
from llama_load.loadgen.options.options import RunOptions
from llama_load.loadgen.preflight.change_rows import differences
from llama_load.loadgen.preflight.slot_budget import least_context
from llama_load.outside.bound_headers import AUTHORIZATION
from llama_load.run_folder import PreflightRow
from llama_load.servers.target import Target
from llama_load.servers.weighted_choice import WeightedChoice

# A server that has run for less than this may still compile kernels or fill its caches.
JUST_STARTED_S = 60.0
# A way to the server and back that is longer than this is worth a note: within a data centre it
# takes under a millisecond.
FAR_MS = 5.0
# What one decimal shows.
LEAST_MS = 0.1


def target_rows(targets: Sequence[Target], users: int | None) -> list[PreflightRow]:
    """What the servers reported, and whether they have enough slots for the concurrent requests."""
    first = targets[0]
    rows = []
    for target in targets:
        rows.append(PreflightRow("server", _server(target)))

    for other in targets[1:]:
        differing = differences(first.described(), other.described())
        if differing:
            text = f"they differ: {'; '.join(differing)}"
            rows.append(PreflightRow("replicas", text, "warning"))

    rows += _path_rows(targets)
    for target in targets:
        uptime_s = target.facts.uptime_s
        if uptime_s is not None and uptime_s < JUST_STARTED_S:
            text = (
                f"{uptime_s:.0f} s at {target.address.url}: first requests may be slow (raise "
                "--warmup)"
            )
            rows.append(PreflightRow("uptime", text, "note"))

    key = "none given, none required"
    for name, _ in first.headers.fields:
        if name.lower() == AUTHORIZATION.lower():
            key = "accepted"

    rows.append(PreflightRow("key", key))
    rows += _model_rows(targets)
    rows += _slot_rows(targets, users)
    rows.append(_context_row(targets))

    return rows


def _model_rows(targets: Sequence[Target]) -> list[PreflightRow]:
    """The models that routers loaded, else the first server's."""
    rows = []
    for target in targets:
        if target.load_s:
            rows.append(PreflightRow("model", _loads(target)))

    if not rows:
        first = targets[0]
        text = first.model or "the server lists none"
        if first.alternatives:
            text += f", the first of {first.alternatives + 1} that it lists; --model chooses"
        rows.append(PreflightRow("model", text, "note" if first.alternatives else "ok"))

    return rows


def _path_rows(targets: Sequence[Target]) -> list[PreflightRow]:
    """How long the way to each server and back is: that of opening a connection."""
    longest_ms = 0.0
    times = []
    for target in targets:
        trip_ms = target.facts.round_trip_ms
        if trip_ms is not None:
            longest_ms = max(longest_ms, trip_ms)
            times.append(f"{trip_ms:.1f}" if trip_ms >= LEAST_MS else "under 0.1")

    if not times:
        return []

    text = f"{', '.join(times)} ms to the server and back"
    if longest_ms > FAR_MS:
        return [PreflightRow("path", f"{text}, a part of every TTFT", "note")]

    return [PreflightRow("path", text)]


def _slot_rows(targets: Sequence[Target], users: int | None) -> list[PreflightRow]:
    """The slots of each server, and how many of the concurrent requests wait for one."""
    per_target = math.ceil((users or 1) / len(targets))
    waiting = 0
    known = []
    notes: dict[str, PreflightRow] = {}
    for target in targets:
        of_models = target.slots_by_model
        if len(of_models) > 1:
            known += [f"{slots} of {model}" for model, slots in of_models.items()]
            per_model = math.ceil(per_target / len(of_models))
            waiting += sum(max(0, per_model - slots) for slots in of_models.values())
        elif target.slots is not None:
            known.append(str(target.slots))
            waiting += max(0, per_target - target.slots)

        note = target.kind.slots_note
        if note:
            notes[note] = PreflightRow("slots", note, "note")

    rows = []
    text = " + ".join(known)
    if known and users is not None and waiting:
        waits = quantity(waiting, "waits", "wait")
        text += f" for {quantity(users, 'concurrent request')}"
        text += f": up to {waits} in the server's queue"
        rows.append(PreflightRow("slots", text, "note"))
    elif known:
        rows.append(PreflightRow("slots", text))

    return [*rows, *notes.values()]


def _context_row(targets: Sequence[Target]) -> PreflightRow:
    context = least_context(targets)
    if context is not None:
        return PreflightRow("context", f"{context} tokens per request")
    unknown = "not reported by the server; prompts that are too long will fail"
    return PreflightRow("context", unknown, "note")


def choice_rows(targets: Sequence[Target], options: RunOptions) -> list[PreflightRow]:
    """The shares of models and adapters, whether the warm-up reaches all of them, and models that
    count tokens in another way."""
    rows = []
    models = options.models
    adapters = options.adapters
    if len(models.names) > 1:
        rows.append(_choice_row("models", models, options.warmup))
    if adapters.names:
        rows.append(_choice_row("adapters", adapters, options.warmup))

    for target in targets:
        if target.other_counts:
            text = (
                f"{', '.join(target.other_counts)} of {target.address.url} may count tokens "
                f"differently: prompts are counted by {target.model}, so give prompts that are "
                "short enough for all"
            )
            rows.append(PreflightRow("tokens", text, "note"))
    return rows


def _choice_row(name: str, choice: WeightedChoice, warmup: int) -> PreflightRow:
    text = choice.described()
    count = len(choice.names)
    if warmup >= count:
        return PreflightRow(name, text)
    return PreflightRow(
        name, f"{text}; --warmup {count} would warm up all of them", "note"
    )


def _server(target: Target) -> str:
    name = target.backend
    if target.load_s:
        name += " (router)"
    if target.facts.build:
        name += f" {target.facts.build}"

    return f"{name} at {target.address.url}"


def _loads(target: Target) -> str:
    """`small loaded in 1.2 s, tiny was loaded`."""
    texts = []
    for name, seconds in target.load_s.items():
        how = f"loaded in {seconds:.1f} s" if seconds else "was loaded"
        texts.append(f"{name} {how}")
    return ", ".join(texts)
