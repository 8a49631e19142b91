"""How many tokens a chat template puts around a message, and whether two models count alike."""

from __future__ import annotations

from llama_load.outside.plain_http import NoAnswerError
from llama_load.servers.tokenize import SAMPLE, NotCounted, Tokenization

# Different tokenizers count this differently.
SCRIPTS = (
    "The quick brown fox: 3.14159 naïve Zürich 写一首关于春天的短诗 "
    "def f(x): return x ** 2  # 😀"
)


def template_tokens(tokens: Tokenization | None) -> tuple[int | None, int | None]:
    """Tokens that a chat template puts before a message, and in total around it.

    None where not reported.
    """
    messages = [{"role": "user", "content": SAMPLE}]
    try:
        if tokens is not None and tokens.form.counts_messages:
            return None, max(
                0, tokens.count_messages(messages) - tokens.count([SAMPLE])[0]
            )
        if tokens is not None and tokens.form.template_path:
            prompt = tokens.templated(messages)
            head, whole, bare = tokens.count(
                [prompt.rpartition(SAMPLE)[0], prompt, SAMPLE]
            )
            return head, max(0, whole - bare)
    except (NoAnswerError, ValueError, KeyError, TypeError, AttributeError, NotCounted):
        pass
    return None, None


def script_counts(tokens: Tokenization) -> tuple[int, int | None] | None:
    """The tokens of a text in several scripts, and those of the chat template.

    None if they are not reported.
    """
    try:
        return tokens.count([SCRIPTS])[0], template_tokens(tokens)[1]
    except NotCounted:
        return None
