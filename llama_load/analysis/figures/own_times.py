"""The server's own times of the answers of a run, where its histograms count these alone."""

from __future__ import annotations

from llama_load.analysis.figures.evidence import Evidence
from llama_load.run_folder.observed.server_counters import ServerTimes

# Fewer answers than this show no pattern.
LEAST_ANSWERS = 10


def own_times(evidence: Evidence) -> ServerTimes | None:
    """The sums of the server's histograms (vLLM); None where they have other requests than the
    streamed answers of this run, one to each request."""
    times = None if evidence.counters is None else evidence.counters.times
    ok = evidence.records.ok()
    if times is None or len(ok) < LEAST_ANSWERS:
        return None
    are_ours = times.requests == len(ok) == len(evidence.sent)
    are_streams = (ok.optional_instants("first_token_mono_ns") >= 0).all()
    are_single = not (ok.numbers("choices") > 1).any()
    are_known = are_ours and bool(are_streams) and are_single
    return times if are_known and not evidence.others.requests else None
