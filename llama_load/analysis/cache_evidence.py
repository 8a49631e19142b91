"""What a run's manifest says of the prompt cache."""

from __future__ import annotations

from llama_load.metrics.prompt_cache import CHAT, CacheEvidence
from llama_load.runs import Manifest

# Where the server does not say what its chat template adds: templates of today's models add 10 to 40 tokens.
GUESSED_HEAD_TOKENS = 40


def cache_evidence(manifest: Manifest) -> CacheEvidence:
    """The evidence besides the records. Of a template of which only the whole is known, all of it may be the head."""
    heads = {}
    for target in manifest.targets:
        told = (target.get(name) for name in ("head_tokens", "template_tokens"))
        guess = GUESSED_HEAD_TOKENS if manifest.endpoint == CHAT else 0
        heads[str(target.get("url"))] = next((tokens for tokens in told if tokens is not None), guess)
    return CacheEvidence(
        intended=manifest.cache_meant,
        is_off=manifest.cache_off,
        head_tokens=heads,
        shared_tokens=manifest.shared_tokens,
        estimated=manifest.tokenizer == "estimate",
        counters=manifest.counters,
        stage_counters=[stage.counters for stage in manifest.stages],
        sent_before=manifest.prompts_sent_before,
    )
