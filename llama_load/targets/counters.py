"""The counters of a server's /metrics that help to explain client figures. Prometheus text format."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from dataclasses import replace
from email.utils import parsedate_to_datetime

from llama_load.observed.server_counters import ServerCounters, ServerTimes
from llama_load.observed.speculation import Speculation
from llama_load.plain_http import NoAnswerError, Session
from llama_load.targets.target import Target
from llama_load.wire.tls import TlsOptions

TIMEOUT_S = 5
# llama-server and vLLM use the same names behind their prefixes.
_DRAFTS, _DRAFT_TOKENS = "spec_decode_num_drafts", "spec_decode_num_draft_tokens"
_ACCEPTED, _PER_POSITION = "spec_decode_num_accepted_tokens", "spec_decode_num_accepted_tokens_per_pos"
_PROMPT_TOKENS, _CACHED_TOKENS = "prompt_tokens", "prompt_tokens_cached"
_QUERIES, _HITS = "prefix_cache_queries", "prefix_cache_hits"
_REQUESTS, _PREEMPTIONS = "request_success", "num_preemptions"
# Output tokens of llama-server and of vLLM.
_PREDICTED, _GENERATED = "tokens_predicted", "generation_tokens"
# vLLM's histograms, in s, by the fields of `ServerTimes`.
_TIMES = {
    "ttft_ms": "time_to_first_token_seconds",
    "e2el_ms": "e2e_request_latency_seconds",
    "queue_ms": "request_queue_time_seconds",
    "prefill_ms": "request_prefill_time_seconds",
    "decode_ms": "request_decode_time_seconds",
}
_ENDED = "e2e_request_latency_seconds_count"
_STARTED = "process_start_time_seconds"
# Older versions of vLLM named these counters after the device; some have both names for one count.
_OLD_NAMES = {_QUERIES: "gpu_prefix_cache_queries", _HITS: "gpu_prefix_cache_hits"}
_NAMES = frozenset(
    (
        *(_DRAFTS, _DRAFT_TOKENS, _ACCEPTED, _PER_POSITION),
        *(_PROMPT_TOKENS, _CACHED_TOKENS, _QUERIES, _HITS, _REQUESTS, _PREEMPTIONS, _PREDICTED, _GENERATED),
        *_OLD_NAMES.values(),
    )
)
_LLAMA_SERVER = "llamacpp"
# A value printed with an exponent: name, digits, exponent. llama-server prints six significant digits (1.23457e+06).
_ROUNDED = re.compile(r"^[a-z]+:(\w+)(?:\{[^\n]*\})?[ \t]+(\d(?:\.\d+)?)e\+?(\d{1,2})\b", re.MULTILINE)
_DIGITS = 6
_SUMS = frozenset((*(f"{histogram}_sum" for histogram in _TIMES.values()), _ENDED))
# Larger counts and longer drafts are invalid.
MOST, LONGEST_DRAFT = 2**53, 255


def read_counters(target: Target, tls: TlsOptions) -> ServerCounters | None:
    """The counters since the server's start; None where it has no /metrics, or does not answer."""
    session = Session(target.headers, tls.context)
    try:
        answers = [session.get(url, within_s=TIMEOUT_S) for url in target.control_urls("/metrics")]
    except NoAnswerError:
        return None
    found = parse_counters("\n".join(answer.text for answer in answers)) if all(answer.ok for answer in answers) else None
    return None if found is None else replace(found, read_s=_date_s(answers[-1].headers.get("date", "")))


def _date_s(date: str) -> float:
    """The server's clock, to compare with its start time: the answer's Date, in s; without one, this machine's clock."""
    with suppress(ValueError, OverflowError):
        return parsedate_to_datetime(date).timestamp()
    return time.time()


def parse_counters(text: str) -> ServerCounters | None:
    """The counters in a /metrics text, summed over engines. None if it has none of an LLM server."""
    from prometheus_client.parser import text_string_to_metric_families

    sums: dict[str, int] = {}
    positions: dict[int, int] = {}
    seconds: dict[str, float] = {}  # sums of histograms, and the count of one
    started_s = None
    excludes_cached = False
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == _STARTED and 0 < sample.value < MOST:
                    started_s = float(sample.value)
                prefix, _, name = sample.name.partition(":")
                name = name.removesuffix("_total")
                if name in _SUMS and 0 <= sample.value < MOST:
                    seconds[name] = seconds.get(name, 0.0) + float(sample.value)
                if name not in _NAMES or not 0 <= sample.value < MOST:
                    continue
                excludes_cached |= prefix == _LLAMA_SERVER
                if name == _PER_POSITION:
                    place = min(int(sample.labels.get("position", 0)), LONGEST_DRAFT)
                    positions[place] = positions.get(place, 0) + int(sample.value)
                else:
                    sums[name] = sums.get(name, 0) + int(sample.value)
    except ValueError:
        return None
    if not sums:
        return None
    prompt = sums.get(_PROMPT_TOKENS)
    queries, hits = (sums.get(name, sums.get(_OLD_NAMES[name])) for name in (_QUERIES, _HITS))
    if excludes_cached:  # llama-server counts processed prompt tokens, without cached ones, and looks up every prompt
        hits = sums.get(_CACHED_TOKENS)
        prompt = queries = None if prompt is None or hits is None else prompt + hits
    errors = _rounding_errors(text)
    cached_error = errors.get(_CACHED_TOKENS, 0.0)
    prompt_error = errors.get(_PROMPT_TOKENS, 0.0) + (cached_error if excludes_cached else 0.0)
    named = {
        "prompt_tokens": prompt_error,
        "output_tokens": errors.get(_PREDICTED, errors.get(_GENERATED, 0.0)),
        "cache_queries": prompt_error if excludes_cached else errors.get(_QUERIES, 0.0),
        "cache_hits": cached_error if excludes_cached else errors.get(_HITS, 0.0),
        "requests": errors.get(_REQUESTS, 0.0),
    }
    return ServerCounters(
        speculation=_speculation(sums, positions),
        prompt_tokens=prompt,
        cache_queries=queries,
        cache_hits=hits,
        requests=sums.get(_REQUESTS),
        preemptions=sums.get(_PREEMPTIONS),
        started_s=started_s,
        output_tokens=sums.get(_PREDICTED, sums.get(_GENERATED)),
        times=_times(seconds),
        errors={name: error for name, error in named.items() if error},
    )


def _rounding_errors(text: str) -> dict[str, float]:
    """By how much the printed counts may differ from the counted ones, summed over engines.

    1.23457e+06 stands for 1,234,565 to 1,234,575: 5. More digits than six are those of a client that prints all: exact.
    """
    errors: dict[str, float] = {}
    for name, digits, exponent in _ROUNDED.findall(text):
        if len(digits) - 1 <= _DIGITS and int(exponent) >= _DIGITS:
            name = name.removesuffix("_total")
            errors[name] = errors.get(name, 0.0) + 10.0 ** (int(exponent) - _DIGITS + 1) / 2
    return errors


def _times(seconds: dict[str, float]) -> ServerTimes | None:
    if len(seconds) < len(_SUMS):
        return None
    sums_ms = {name: 1e3 * seconds[f"{histogram}_sum"] for name, histogram in _TIMES.items()}
    return ServerTimes(requests=int(seconds[_ENDED]), **sums_ms)


def _speculation(sums: dict[str, int], positions: dict[int, int]) -> Speculation | None:
    if _DRAFT_TOKENS not in sums:
        return None
    per_position = [positions.get(place, 0) for place in range(max(positions, default=-1) + 1)]
    return Speculation(sums[_DRAFT_TOKENS], sums.get(_ACCEPTED, 0), sums.get(_DRAFTS), per_position)
