"""What a server's /metrics counts, where that explains what its clients saw. Prometheus' text format."""

from __future__ import annotations

import requests

from llama_load.metrics.speculative import Speculation
from llama_load.targets.control import control_session
from llama_load.targets.target import Target
from llama_load.wire.tls import TlsOptions

TIMEOUT_S = 5
# llama-server and vLLM use the same names behind their prefixes.
_DRAFTS, _DRAFT_TOKENS = "spec_decode_num_drafts", "spec_decode_num_draft_tokens"
_ACCEPTED, _PER_POSITION = "spec_decode_num_accepted_tokens", "spec_decode_num_accepted_tokens_per_pos"
_NAMES = (_DRAFTS, _DRAFT_TOKENS, _ACCEPTED, _PER_POSITION)
# No count of a server is larger, no draft longer; what claims to be is nonsense.
MOST, LONGEST_DRAFT = 2**53, 255


def speculation(target: Target, tls: TlsOptions) -> Speculation | None:
    """The counters of speculative decoding since the server's start; None where the server has none or does not tell."""
    with control_session(target.headers, tls) as session:
        try:
            answer = session.get(target.address.url + "/metrics", timeout=TIMEOUT_S)
        except requests.RequestException:
            return None
    return parse_speculation(answer.text) if answer.ok else None


def parse_speculation(text: str) -> Speculation | None:
    """The same out of a /metrics text; engines are summed."""
    from prometheus_client.parser import text_string_to_metric_families

    sums: dict[str, int] = {}
    positions: dict[int, int] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                name = sample.name.partition(":")[2].removesuffix("_total")
                if name not in _NAMES or not 0 <= sample.value < MOST:
                    continue
                if name == _PER_POSITION:
                    place = min(int(sample.labels.get("position", 0)), LONGEST_DRAFT)
                    positions[place] = positions.get(place, 0) + int(sample.value)
                else:
                    sums[name] = sums.get(name, 0) + int(sample.value)
    except ValueError:
        return None
    if _DRAFT_TOKENS not in sums:
        return None
    per_position = [positions.get(place, 0) for place in range(max(positions, default=-1) + 1)]
    return Speculation(sums[_DRAFT_TOKENS], sums.get(_ACCEPTED, 0), sums.get(_DRAFTS), per_position)
