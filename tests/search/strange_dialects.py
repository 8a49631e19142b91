"""Clean but odd streams, as real servers and gateways send them: other fields, other line ends,
other places of the same things."""

from __future__ import annotations

import json

from tests.search.answers import CALL_BEGIN, Answer
from tests.search.case import LLAMA_SERVER, OPENAI, Case, Change
from tests.search.dialect import HEAD, chunk, event
from tests.search.effect import Reads, with_case
from tests.search.oddities import BLURS, NO_TPOT, Oddity
from tests.search.strange_bytes import reframed

MS = 1_000_000
HEARTBEAT_NS = 50 * MS
EMPTY = event({"choices": [{"index": 0, "delta": {"content": ""}}]})
FILTERED = {"hate": {"filtered": False, "severity": "safe"}}
PADDING = ("aB3", "xK9dPq", "Zt", "mN4vRw7Y")
CHOICE = b'"choices": [{"index": 0, '


class OtherLines(Oddity):
    """Events end with CRLF, have a name and a number, and no blank after the colon. Source:
    github.com/vllm-project/vllm/pull/27412."""

    def read(self, answer: Answer, reads: Reads) -> Reads:
        """See `Effect.read`."""

        def change(payload: bytes) -> bytes:
            lines = payload.replace(b"data: ", b"data:").replace(b"\n\n", b"\r\n\r\n")
            return b"event: message\r\nid: 7\r\n" + lines

        return reframed(reads, change)


class SplitEvents(Oddity):
    """Each event comes in two reads, as where a proxy or TLS cuts; the first one a little
    earlier."""

    cuts_reads = True

    def read(self, answer: Answer, reads: Reads) -> Reads:
        """See `Effect.read`."""
        split: Reads = []
        last_ns = 0
        for at_ns, data in reads:
            middle = len(data) // 2
            split.append((max(last_ns, at_ns - MS // 20), data[:middle]))
            split.append((at_ns, data[middle:]))
            last_ns = at_ns
        return split


class LogProbabilities(Oddity):
    """Each event has the probabilities of twenty other tokens, some thousand bytes."""

    def read(self, answer: Answer, reads: Reads) -> Reads:
        """See `Effect.read`."""
        others = [{"token": f" other{place}", "logprob": -place} for place in range(20)]
        told = json.dumps(
            {"content": [{"token": " one", "logprob": -0.1, "top_logprobs": others}]}
        )
        probable = CHOICE + b'"logprobs": ' + told.encode() + b", "
        return reframed(reads, lambda payload: payload.replace(CHOICE, probable))


class Azure(Oddity):
    """The first event has no choices but a filter's results, each has the results of its text and
    padding of any length. Source: github.com/AbanteAI/archive-old-cli-mentat/issues/429,
    github.com/microsoft/autogen/issues/6465."""

    def read(self, answer: Answer, reads: Reads) -> Reads:
        """See `Effect.read`."""
        if not reads[0][1].startswith(HEAD):
            return reads
        results = json.dumps(FILTERED).encode()
        filtered = CHOICE + b'"content_filter_results": ' + results + b", "
        count = 0

        def change(payload: bytes) -> bytes:
            nonlocal count
            count += 1
            padding = PADDING[count % len(PADDING)].encode()
            padded = payload.replace(
                b"data: {", b'data: {"obfuscation": "' + padding + b'", ', 1
            )
            return padded.replace(CHOICE, filtered)

        first = event(
            {"choices": [], "prompt_filter_results": [{"prompt_index": 0, **FILTERED}]}
        )
        at_ns, data = reads[0]
        opened = HEAD + chunk(first) + data[len(HEAD) :]
        return reframed([(at_ns, opened), *reads[1:]], change)


class Escaped(Oddity):
    """Answers are Chinese, and their signs are escaped in JSON."""

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """See `Effect.changed`."""
        return with_case(case, language="chinese")

    def read(self, answer: Answer, reads: Reads) -> Reads:
        """See `Effect.read`."""

        def change(payload: bytes) -> bytes:
            kind, _, document = payload.partition(b": ")
            if not document.startswith(b"{"):
                return payload
            return kind + b": " + json.dumps(json.loads(document)).encode() + b"\n\n"

        return reframed(reads, change)


class EmptyDeltas(Oddity):
    """Until the first token an event with empty content comes each 50 ms. Source: several providers
    behind routers keep connections alive so, instead of comments."""

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        until_ns = int(answer.instants[0])
        for at_ns in range(answer.begin_ns + HEARTBEAT_NS, until_ns, HEARTBEAT_NS):
            answer.extra_events.append((at_ns, EMPTY))


class LateEnd(Oddity):
    """finish_reason, usage and [DONE] come `size` ms after the last token: the gateway writes its
    accounts first."""

    sizes = (300.0, 1500.0)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """A closed loop, whose users wait for the end."""
        return bool(case.users)

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        answer.tail_ns += round(self.size * MS)


class Alias(Oddity):
    """The model was asked for by an alias; each answer has its full name."""

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        answer.model = "planned-2026-01-15"


class OtherReasoning(Oddity):
    """The first third of the tokens are thoughts in the field `reasoning`, as newer servers name
    it."""

    is_form = True

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        thoughts = len(answer.pieces) // 3
        for piece in answer.pieces[:thoughts]:
            piece.field = "reasoning"
        if answer.reported is not None:
            answer.reported.reasoning = thoughts


class WholeToolCalls(Oddity):
    """Some answers are tool calls, which the parser sends whole when they are complete. Source:
    github.com/vllm-project/vllm/issues/30999."""

    is_form = True
    checks = (*BLURS, *NO_TPOT)
    shares = (0.3,)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """One kind of API."""
        return case.server == OPENAI and case.output_tokens >= 30

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        if not self.hits(answer.ask):
            return
        text = "".join(piece.text for piece in answer.pieces)
        last = len(answer.pieces) - 1
        answer.show([last])
        answer.pieces[0].text = text
        answer.pieces[0].tokens = last + 1
        answer.pieces[0].field = CALL_BEGIN
        answer.finish = "tool_calls"


class TotalTold(Oddity):
    """Usage has total_tokens, too."""

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Any but llama-server, which is known."""
        return case.server != LLAMA_SERVER

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        reported = answer.reported
        if (
            reported is not None
            and reported.prompt is not None
            and reported.output is not None
        ):
            reported.total = reported.prompt + reported.output


STRANGE_DIALECTS: dict[str, type[Oddity]] = {
    "other lines": OtherLines,
    "events in two reads": SplitEvents,
    "log probabilities": LogProbabilities,
    "Azure's fields": Azure,
    "escaped signs": Escaped,
    "empty deltas": EmptyDeltas,
    "late end": LateEnd,
    "alias": Alias,
    "reasoning by another name": OtherReasoning,
    "whole tool calls": WholeToolCalls,
    "total reported": TotalTold,
}
