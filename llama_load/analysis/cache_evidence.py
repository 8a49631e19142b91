"""Evidence about the prompt cache from a run's manifest."""

from __future__ import annotations

from llama_load.metrics.prompt_cache import CacheEvidence
from llama_load.run_folder import Manifest
from llama_load.targets.apis import WITH_TEMPLATE

# Used where the server does not report it: the chat templates of current models add 10 to 40 tokens.
GUESSED_HEAD_TOKENS = 40


def cache_evidence(manifest: Manifest) -> CacheEvidence:
    """The evidence besides the records. Where only a template's total length is known, it counts as its head."""
    heads = {}
    for target in manifest.targets:
        reported = (target.get(name) for name in ("head_tokens", "template_tokens"))
        guess = GUESSED_HEAD_TOKENS if manifest.endpoint in WITH_TEMPLATE else 0
        heads[str(target.get("url"))] = next((tokens for tokens in reported if tokens is not None), guess)
    return CacheEvidence(
        intended=manifest.cache_meant,
        is_off=manifest.cache_off,
        head_tokens=heads,
        prefix_tokens=manifest.prefix_tokens or 0,
        shared_tokens=manifest.shared_tokens,
        estimated=manifest.tokenizer == "estimate",
        template_known=manifest.endpoint not in WITH_TEMPLATE
        or (bool(manifest.targets) and all(target.get("template_tokens") is not None for target in manifest.targets)),
        counters=manifest.counters,
        stage_counters=[stage.counters for stage in manifest.stages],
        sent_before=manifest.prompts_sent_before,
    )
