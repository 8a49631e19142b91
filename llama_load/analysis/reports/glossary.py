"""What the words of a report mean, for readers who meet them there for the first time."""

from __future__ import annotations

from collections.abc import Sequence

from llama_load.run_folder.vocabulary.verdict_words import (
    BLURRED,
    CLIENT_BOUND,
    FAILED,
    INCOMPLETE,
    NOT_COMPARABLE,
    VALID,
)

LATENCIES = {
    "TTFT": "time to first token: from the start of a request, connecting included, "
    "to the first token of its answer",
    "TPOT": "time per output token: (last token - first token) / (output tokens - 1), "
    "one mean per request",
    "ITL": "inter-token latency: every gap between two token events, of all requests together",
    "E2EL": "end-to-end latency: from the start of a request to the last token of its answer",
}
VERDICTS = {
    INCOMPLETE: "requests, stages or workers are missing from the records",
    FAILED: "over 1 % of the requests failed",
    NOT_COMPARABLE: "something other than the configured load was measured",
    CLIENT_BOUND: "the client was too slow: delays of its own are part of the figures",
    BLURRED: "some figures, which are marked, are not what they seem; the others can be used",
    VALID: "no check found a reason against the figures; "
    "the small print says what could not have been seen",
}
OTHERS = {
    "p99": "99 % of the values are at most this large; it needs 100 values, p99.9 needs 1,000",
    "c=8": "8 users: each sends its next request when the last one is answered, or after its wait",
}


def glossary(words: Sequence[str]) -> list[tuple[str, str]]:
    """Each word and what it means: latencies, then the verdicts of this run."""
    meanings = LATENCIES | OTHERS
    for word in words:
        if word in VERDICTS:
            meanings[word] = VERDICTS[word]
    return list(meanings.items())
