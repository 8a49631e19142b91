"""The text that goes before prompts, so that no server has them in its cache."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from llama_load.loadgen.users.session import NO_PREFIX, Prefix, Ticket
from llama_load.servers.counting import TokenCounter

# Enough digits that no two prompts begin the same way during a server's life, and no two runs:
# hexadecimal ones for each prompt, decimal ones for a run. (Most tokenizers spend the same number
# of tokens on all decimal numbers of a length.)
PREFIX_DIGITS = 24
RUN_DIGITS = 8
# Numbers that are tried for a run: enough for others with as many tokens as the first.
TRIED = 32
# A text of which every tokenizer makes the same tokens at the start of a line and at the start of a
# prompt.
_ANY_TEXT = "The"


@dataclass(frozen=True, slots=True)
class Beginning:
    """How prompts begin: each with other random text (`tokens` is None), or all of a run with the
    same text of so many tokens.

    The same text keeps what a run's prompts share by design (a system prompt, a conversation's
    history) in the cache, and makes the run new to a server that answered the same prompts in an
    earlier run. `nonce`: random digits, drawn for the run. A prompt that a run sends again (its
    `round`) begins with another text: `lines` have these, `tokens` each, the first is that of round
    0. The rounds before `first_round` are sent as they are.
    """

    nonce: str
    tokens: int | None = None
    lines: tuple[str, ...] = ()
    first_round: int = 0

    @property
    def is_of_run(self) -> bool:
        """Whether it makes all planned prompts new, by the same text for all of a round."""
        return self.tokens is not None and not self.first_round

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
        if lease.prompt is None or lease.prompt.inputs:
            return NO_PREFIX
        turn = lease.prompt.round
        if turn < self.first_round or (lease.prompt.is_new and not turn):
            return NO_PREFIX
        lines = self._lines_of(turn)
        return Prefix("".join(lines), self.tokens * len(lines))

    def _lines_of(self, turn: int) -> list[str]:
        """The round's number with these lines as its digits: of 30 lines round 31 has two."""
        lines: list[str] = []
        rest = turn
        while rest or not lines:
            rest, digit = divmod(rest, len(self.lines))
            lines.append(self.lines[digit])
        return lines


def one_for_the_run(
    nonce: str, counter: TokenCounter, *, first_round: int = 0
) -> Beginning:
    """The same text for all prompts of a round. Numbers of other digits may have other tokens: of
    those tried it keeps the ones with as many as the first."""
    texts = [run_text(f"{nonce} {number}") for number in range(TRIED)]
    alone, *begun = counter.count([_ANY_TEXT, *(text + _ANY_TEXT for text in texts)])
    lines = []
    for text, tokens in zip(texts, begun, strict=True):
        if tokens == begun[0]:
            lines.append(text)
    return Beginning(nonce, max(0, begun[0] - alone), tuple(lines), first_round)


def run_text(nonce: str) -> str:
    """A line before prompts, so that a prompt's first word is tokenized as before."""
    digest = hashlib.sha256(nonce.encode()).hexdigest()
    return f"{int(digest, 16) % 10**RUN_DIGITS:0{RUN_DIGITS}d}\n"
