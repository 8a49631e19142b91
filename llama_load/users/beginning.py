"""The text that goes before prompts, so that no server has them in its cache."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from llama_load.users.session import NO_PREFIX, Prefix, Ticket
from llama_load.workloads.counting import TokenCounter

# Enough digits that no two prompts begin the same way during a server's life, and no two runs:
# hexadecimal ones for each prompt, decimal ones for a run. (Most tokenizers spend the same number
# of tokens on all decimal numbers of a length.)
PREFIX_DIGITS = 24
RUN_DIGITS = 8
# A text of which every tokenizer makes the same tokens at the start of a line and at the start of a
# prompt.
_ANY_TEXT = "The"


@dataclass(frozen=True, slots=True)
class Beginning:
    """How prompts begin: each with other random text (`tokens` is None), or all of a run with the
    same text of so many tokens.

    The same text keeps what a run's prompts share by design (a system prompt, a conversation's
    history) in the cache, and makes the run new to a server that answered the same prompts in an
    earlier run. `nonce`: random digits, drawn for the run.
    """

    nonce: str
    tokens: int | None = None

    @property
    def most_tokens(self) -> int:
        """At most so many tokens are added to a prompt: a digit each where they are not counted."""
        if self.tokens is None:
            return PREFIX_DIGITS
        return self.tokens

    def prefix(self, ticket: Ticket) -> Prefix:
        """The text before the prompt of this ticket. A text for the whole run goes before the
        planned prompts alone: those that a locustfile writes are sent as they are, and embeddings
        are not cached."""
        lease = ticket.lease
        if self.tokens is None:
            drawn = hashlib.sha256(
                f"{self.nonce} {lease.warmup} {lease.index}".encode()
            ).hexdigest()
            return Prefix(drawn[:PREFIX_DIGITS] + " ", None)
        if lease.prompt is None or lease.prompt.is_new or lease.prompt.inputs:
            return NO_PREFIX
        return Prefix(run_text(self.nonce), self.tokens)


def one_for_the_run(nonce: str, counter: TokenCounter) -> Beginning:
    """The same text for all prompts of a run."""
    alone, begun = counter.count([_ANY_TEXT, run_text(nonce) + _ANY_TEXT])
    return Beginning(nonce, max(0, begun - alone))


def run_text(nonce: str) -> str:
    """The text before the prompts of a run: a line, so that the prompt's first word is tokenized as
    before."""
    return f"{int(nonce, 16) % 10**RUN_DIGITS:0{RUN_DIGITS}d}\n"
