"""What the streams of other APIs than OpenAI's chat and completions have in common: one answer, whose parts come one by one."""

from __future__ import annotations

from llama_load.targets.answer import AnswerReader, is_visible


class PartReader(AnswerReader):
    """Reads one answer, part by part."""

    def token(self, at_ns: int, *, text: str | None = None, thought: str | None = None, call: bool = False) -> bool:
        """A part of the answer, of the reasoning before it, or of a tool call; True if there is anything in it."""
        if thought:
            self.thoughts.append(thought)
        if text:
            self.pieces.append(text)
        if self.first_answer_ns is None and (call or is_visible(text)):
            self.first_answer_ns = at_ns
        is_empty = not (text or thought or call)
        return not is_empty and self.is_token(at_ns, visible=self.first_answer_ns is not None or is_visible(thought))
