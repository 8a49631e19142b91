"""What servers call the end of an answer, in OpenAI's words.

Sources: the API references of OpenAI, Anthropic, Cohere, DeepSeek, Google, Mistral, Together, xAI
and Zhipu, and the code of koboldcpp, llama.cpp, SGLang, TGI and vLLM.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Engines and relays fill these in while an answer goes on.
_NOTHING: Final = frozenset(
    ("", "none", "null", "nil", "undefined", "finish_reason_unspecified")
)
_NAMES: Final[Mapping[str, str]] = {
    "stop": "stop stopped end end_turn end_of_turn eos eos_token stop_sequence stop_token stop_str "
    "word complete completed finish finished done normal",
    "length": "length limit max_tokens max_output_tokens max_length max_new_tokens model_length "
    "token_limit context_length model_context_window_exceeded",
    "tool_calls": "tool_calls tool_call tool_use function_call",
    "content_filter": "content_filter content_filtered sensitive safety blocklist spii "
    "prohibited_content recitation guardrail_intervened",
    "refusal": "refusal",
    "repetition": "repetition",
    "pause_turn": "pause_turn",
    "error": "error error_toxic error_limit failed timeout network_error malformed_function_call",
    "abort": "abort aborted cancel cancelled canceled interrupted",
    "insufficient_system_resource": "insufficient_system_resource",
}
_WORDS: Final = {word: name for name, words in _NAMES.items() for word in words.split()}
# The engine, or a router whose provider failed, ended the answer before its end.
GIVEN_UP: Final = frozenset(("abort", "error", "insufficient_system_resource"))


def finish_reason_of(sent: str) -> str | None:
    """OpenAI's word for what a server sent; an unknown one as it is, None where it says nothing.

    "MAX_TOKENS": "length"; "null": None.
    """
    word = sent.strip()
    low = word.lower().replace("-", "_")
    if low in _NOTHING:
        return None
    return _WORDS.get(low, word)


def is_known(reason: str | None) -> bool:
    """Whether this reason, as `finish_reason_of` returns it, is known to end an answer."""
    return reason in _NAMES
