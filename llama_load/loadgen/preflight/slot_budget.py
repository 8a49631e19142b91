"""What a request takes of a slot's context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llama_load.servers.apis import Api
from llama_load.servers.target import Target

# Assumed if the server does not report its chat template: current models' templates add 10 to 40
# tokens.
GUESSED_TEMPLATE_TOKENS = 40


@dataclass(frozen=True, slots=True)
class Budget:
    """What a request takes of a slot's context, in tokens. `context` is None if the server does not
    report it.

    `overhead` is chat template and random prefix; `answer` is the answer's length if a flag sets it
    for all prompts.
    """

    context: int | None
    overhead: int
    answer: int | None = None
    template: int = 0  # the chat template's part of the overhead

    def need(self, prompt_tokens: int, output_tokens: int) -> int:
        """prefix + template + prompt + answer."""
        return prompt_tokens + self.overhead + (self.answer or output_tokens)

    def fits(self, prompt_tokens: int, output_tokens: int) -> bool:
        """Whether prompt and answer fit a slot. llama-server divides `-c` by its slots: 4096 over
        16 leaves 256 per request."""
        return (
            self.context is None
            or self.need(prompt_tokens, output_tokens) <= self.context
        )

    def room(self, output_tokens: int) -> int | None:
        """How many prompt tokens fit a slot with such an answer; None if unknown."""
        if self.context is None:
            return None
        return max(0, self.context - self.need(0, output_tokens))


def slot_budget(
    targets: Sequence[Target],
    api: Api,
    *,
    max_tokens: int | None = None,
    prefix_tokens: int = 0,
) -> Budget:
    """The smallest budget of all replicas."""
    template = 0
    if api.has_template:
        template = max(map(_template_tokens, targets))
    return Budget(
        least_context(targets), prefix_tokens + template, max_tokens, template
    )


def _template_tokens(target: Target) -> int:
    if target.template_tokens is None:
        return GUESSED_TEMPLATE_TOKENS
    return target.template_tokens


def least_context(targets: Sequence[Target]) -> int | None:
    """The smallest context of a slot; None where no server reports it."""
    contexts = []
    for target in targets:
        if target.ctx_per_slot is not None:
            contexts.append(target.ctx_per_slot)

    return min(contexts, default=None)
