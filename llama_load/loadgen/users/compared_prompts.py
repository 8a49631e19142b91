"""How much of a conversation's next prompt is the one before: what a prompt cache could reuse."""

from __future__ import annotations

from dataclasses import dataclass

from llama_load.servers.apis import Api
from llama_load.servers.apis.changed_prompts import changed_message, common_length
from llama_load.servers.apis.prompt_content import Content, as_messages, as_text


def comparable_text(api: Api, content: Content, text: str) -> str:
    """A prompt as a text that the next prompt of its conversation begins with, if that adds
    messages alone. `text`: the content as one text."""
    if not api.takes_messages:
        return text
    messages = text
    if isinstance(content, str):  # a first question alone
        messages = as_text(as_messages(content))
    return messages.removesuffix("]")


@dataclass(frozen=True, slots=True)
class ComparedPrompt:
    """`earlier_chars`: of the prompt before, None without one; `common_chars`: how many this one
    begins with; `changed_in`: the first message that is another one, None if all are the same;
    `earlier_request`: the request that had the prompt before, where it is of no conversation."""

    earlier_chars: int | None = None
    common_chars: int | None = None
    changed_in: str | None = None
    earlier_request: str | None = None


def compared(earlier: str, text: str) -> ComparedPrompt:
    """A prompt beside the one before; both are comparable texts, "" if there is none before."""
    if not earlier:
        return ComparedPrompt()
    common = common_length(earlier, text)
    changed_in = None
    if common < len(earlier):
        changed_in = changed_message(earlier, common)
    return ComparedPrompt(len(earlier), common, changed_in)
