"""Did prompts come from a cache?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from llama_load.metrics.check import LIMITS, Check, limited
from llama_load.metrics.evidence import Evidence


def cached(evidence: Evidence) -> Check:
    """Requests whose prompt was more than half cached. The chat template's head, which all prompts share, does not count."""
    name, ok, head_tokens = "cached_prompt_ratio", evidence.records.ok(), evidence.head_tokens
    cached, prompt = ok.numbers("cached_tokens"), ok.numbers("prompt_tokens")
    if not len(ok) or np.isnan(cached).all():
        return limited(name, None, "the server does not report cached prompt tokens")
    with np.errstate(invalid="ignore"):
        mostly = int(np.nansum(cached - head_tokens > (prompt - head_tokens) / 2))
    ratio = mostly / len(ok)
    tokens, total = int(np.nansum(cached)), int(np.nansum(prompt))
    text = f"{tokens} of {total} prompt tokens came from the cache; {mostly} of {len(ok)} prompts were mostly cached"
    if evidence.cache_meant:
        return Check(name, ratio, None, True, text + ", as declared")
    if ratio > LIMITS[name].limit:
        text += " (--bust-prefix-cache or --cache-prompt off avoids it, --cache-prompt on declares that caching is intended)"
    return limited(name, ratio, text)


def repeated(evidence: Evidence) -> Iterator[Check]:
    """Prompts that an earlier stage had sent, where the server does not report cached prompt tokens."""
    ok, repeated = evidence.records.ok(), evidence.repeated_prompts
    if not repeated or not np.isnan(ok.numbers("cached_tokens")).all():
        return
    text = f"{repeated} prompts had been sent in an earlier stage (a larger data set or --bust-prefix-cache avoids it)"
    yield limited("repeated_prompt_ratio", repeated / len(ok) if len(ok) else None, text)
