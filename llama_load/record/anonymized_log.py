"""A log of requests as a trace without texts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from llama_load.ground.errors import RunError
from llama_load.ground.units import quantity
from llama_load.record.digest_lines import DigestLines
from llama_load.record.joined_conversations import Conversations
from llama_load.record.private_lines import PrivateLines
from llama_load.record.request_logs import RequestLog
from llama_load.servers.token_blocks import PromptTokens


def anonymize(log: Path, out: Path, tokens: PromptTokens) -> list[str]:
    """Write the trace of a log. What was written, a sentence each. UsageError: the log is not
    understood, or `out` exists; RunError: it cannot be written."""
    requests = RequestLog(log)
    lines = PrivateLines(out)
    conversations = Conversations(keeps_texts=False)
    digest: DigestLines | None = None
    for seen in requests:
        if digest is None:
            digest = DigestLines(tokens, seen.started_ns)
        blocks = digest.blocks(seen)
        # This forgets the texts.
        turn = None if seen.messages is None else conversations.add(seen)
        lines.add(digest.line(seen, turn, blocks))
        if lines.fault:
            raise RunError(f"{out}: {lines.fault}")
    lines.close()

    said = [
        f"{quantity(lines.lines, 'request')} of "
        f"{quantity(conversations.count, 'conversation')} in {out}, without texts; tokens come "
        f"from {tokens.source}"
    ]
    said += _of_left_out(requests.left_out)
    return said


def _of_left_out(left_out: Counter[str]) -> list[str]:
    return [
        f"Left out, {quantity(count, 'time')}: {why}"
        for why, count in left_out.most_common(5)
    ]
