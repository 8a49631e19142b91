"""The preflight rows about load."""

from __future__ import annotations

from llama_load.load.segments import LoadModel, Segment, total_requests
from llama_load.run_folder import PreflightRow
from llama_load.units import quantity


def load_rows(model: LoadModel, segments: list[Segment]) -> list[PreflightRow]:
    """Rows for the preflight table; none for a plain closed loop, which -u and --num-prompts describe."""
    if model.stages:
        return [PreflightRow("stages", _stages(model, segments))]
    if not model.is_open:
        return []
    (segment,) = segments
    last_s = float(segment.scheduled_s[-1]) if segment.scheduled_s is not None else 0.0
    requests = quantity(segment.total or 0, "request")
    if model.arrivals:
        what = "arrivals of a trace"
    else:
        shape = f"gamma, burstiness {model.burstiness:g}" if model.process == "gamma" else model.process
        what = f"{model.rate_rps:g} requests/s ({shape})" if model.rate_rps is not None else ""
        if model.conversations_per_min is not None:
            what = f"{model.conversations_per_min:g} conversations/min ({shape})"
            requests = f"{quantity(segment.conversations or 0, 'conversation')} with {requests}"
        if model.ramp is not None:
            what = f"{model.ramp} ramp from {model.ramp_start_rps:g} to {what}"
    return [PreflightRow("load", f"open loop: {what}, {requests} in {last_s:.1f} s{_limit(model)}")]


def _limit(model: LoadModel) -> str:
    if model.max_in_flight is None:
        return ""
    return f"; at most {model.max_in_flight} in flight, the rest is {'dropped' if model.drops else 'queued'}"


def _stages(model: LoadModel, segments: list[Segment]) -> str:
    names = ", ".join(stage.name for stage in model.stages)
    total = total_requests(segments)
    count = "as many prompts as fit its time each" if total is None else f"{quantity(total, 'prompt')} in all"
    which = "the same in every stage" if model.same_prompts else "new ones of similar lengths in every stage while there are any"
    return f"{names}: {count}, {which}{_limit(model)}"
