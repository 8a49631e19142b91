"""Flaws of gateways and proxies as users report them in public trackers: streams that are not
streams, buffers counted in bytes, answers that others gave, errors with status 200."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.search.answers import Answer, Piece
from tests.search.cache_flaws import GROUPS
from tests.search.case import Case, Change
from tests.search.count_flaws import OUTPUT_COUNTS
from tests.search.dialect import HEAD, event
from tests.search.effect import Effect, Reads
from tests.search.gateway_flaws import BUFFERING
from tests.search.strange_bytes import reframed

MS = 1_000_000
FAILURES = ("failure_ratio", "failed_shift", "failure_burst_ratio")
HELD = (
    *BUFFERING,
    "held_back_ratio",
    "stretched_stream_ratio",
    "unexplained_ratio",
    *GROUPS,
)
ODD_ANSWERS = (
    "equal_answer_ratio",
    "refused_ratio",
    "abrupt_answer_ratio",
    "short_answer_ratio",
    *GROUPS,
)
FOOTER = "\n\nThis answer was written by a machine. Check what it says."
TIMED_OUT = ["upstream", " request", " timeout", ",", " please", " try", " again"]
CACHED_GAP_MS, CACHED_FIRST_MS = 1.0, 15.0


class FakeStream(Effect):
    """A gateway waits for the whole answer and then sends it a token each `size` ms, as if it came
    now. Source: github.com/BerriAI/litellm/issues/5416, github.com/kekzl/imp/issues/754."""

    is_form = True
    checks = HELD
    sizes = (1.0, 8.0)
    shares = (1.0, 0.3)

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        if not self.hits(answer.ask):
            return
        ended_ns = answer.pieces[-1].at_ns
        for place, piece in enumerate(answer.pieces):
            piece.at_ns = ended_ns + round(place * self.size * MS)
        answer.tail_ns = answer.pieces[-1].at_ns + MS // 10


class BeginningHeldByBytes(Effect):
    """A compressing middleware or a scanner holds an answer until `size` bytes have come, then lets
    all through. Source: github.com/expressjs/compression/issues/171."""

    checks = HELD
    sizes = (1024.0, 4096.0)
    shares = (1.0, 0.3)

    def read(self, answer: Answer, reads: Reads) -> Reads:
        """See `Effect.read`."""
        if not self.hits(answer.ask):
            return reads
        held = b""
        for place, (at_ns, data) in enumerate(reads):
            held += data
            if len(held) >= self.size or place == len(reads) - 1:
                return [(at_ns, held), *reads[place + 1 :]]
        return reads


class BufferedByBytes(Effect):
    """A proxy writes when a buffer of `size` bytes is full. Source:
    github.com/confidential-dot-ai/c8s/issues/140 (nginx with its defaults)."""

    checks = HELD
    sizes = (512.0, 4096.0, 8192.0)

    def read(self, answer: Answer, reads: Reads) -> Reads:
        """See `Effect.read`."""
        lumps = []
        held = b""
        for at_ns, data in reads[1:]:
            held += data
            if len(held) >= self.size:
                lumps.append((at_ns, held))
                held = b""
        if held:
            lumps.append((reads[-1][0], held))
        return [reads[0], *lumps]


class Typed(Effect):
    """A gateway sends the characters of each token in `size` events over the time of the token, as
    a typewriter. Source: github.com/SillyTavern/SillyTavern/pull/2004."""

    is_form = True
    checks = (*OUTPUT_COUNTS, "tokens_per_event")
    sizes = (2.0, 3.0)

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        pieces: list[Piece] = []
        for place, piece in enumerate(answer.pieces):
            is_last = place == len(answer.pieces) - 1
            usual_ns = round(self.case.gap_ms * MS)
            next_ns = (
                piece.at_ns + usual_ns if is_last else answer.pieces[place + 1].at_ns
            )
            pieces += self.parts(piece, next_ns - piece.at_ns)
        answer.pieces = pieces
        answer.tail_ns = max(answer.tail_ns, pieces[-1].at_ns + MS // 10)

    def parts(self, piece: Piece, gap_ns: int) -> list[Piece]:
        """The pieces of a token, of some characters each."""
        count = min(round(self.size), len(piece.text))
        if count < 2:
            return [piece]
        ends = np.linspace(0, len(piece.text), count + 1).round().astype(int)
        return [
            replace(
                piece,
                at_ns=piece.at_ns + gap_ns * part // count,
                text=piece.text[ends[part] : ends[part + 1]],
                tokens=1 if part == 0 else 0,
            )
            for part in range(count)
        ]


class Smoothed(Effect):
    """A gateway evens a stream out: one event each `size` times the answer's mean gap. Source:
    github.com/vercel/ai/pull/4079 (smoothStream, 10 ms a word), huggingface/chat-ui/pull/2329."""

    checks = (*HELD, "tpot_bounds_ratio")
    sizes = (1.1, 1.5)

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        instants = [piece.at_ns for piece in answer.pieces]
        if len(instants) < 2:
            return
        pace_ns = round(self.size * (instants[-1] - instants[0]) / (len(instants) - 1))
        at_ns = instants[0]
        for piece in answer.pieces[1:]:
            at_ns = max(at_ns + pace_ns, piece.at_ns)
            piece.at_ns = at_ns
        answer.tail_ns = max(answer.tail_ns, at_ns + MS // 10)


class OpeningTag(Effect):
    """The opening tag of the thoughts is a part of the chat template: a gateway sends it as soon as
    it has the request, and no model generates it. Source: github.com/open-webui/open-webui/issues/9808,
    github.com/deepseek-ai/DeepSeek-R1/issues/526."""

    is_form = True
    checks = ("early_first_ratio", *OUTPUT_COUNTS, *GROUPS)
    shares = (1.0, 0.4)

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        if self.hits(answer.ask):
            at_ns = min(answer.begin_ns + 2 * MS, int(answer.instants[0]))
            answer.pieces.insert(0, Piece(at_ns, "<think>\n", tokens=0))


class FooterAdded(Effect):
    """A guardrail reads the finished answer for `size` ms and adds a sentence that no model
    generated. Modelled on post-call hooks: github.com/NVIDIA-NeMo/Guardrails."""

    is_form = True
    checks = (*OUTPUT_COUNTS, *HELD, "outlier_shift")
    sizes = (300.0, 2000.0)
    shares = (1.0, 0.3)

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        if self.hits(answer.ask):
            at_ns = answer.pieces[-1].at_ns + round(self.size * MS)
            answer.pieces.append(Piece(at_ns, FOOTER, tokens=0))
            answer.tail_ns = at_ns + MS // 10


class AnsweredAgain(Effect):
    """A backend fails in the middle of an answer; the gateway starts it again on another one, and
    the client reads half of it twice. Source: github.com/BerriAI/litellm/pull/36267."""

    is_form = True
    checks = (*OUTPUT_COUNTS, *GROUPS, "changed_ratio", "outlier_shift")
    shares = (0.05, 0.2)

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        if not self.hits(answer.ask) or len(answer.pieces) < 4:
            return
        half = answer.pieces[: len(answer.pieces) // 2]
        shift_ns = half[-1].at_ns - answer.begin_ns + 50 * MS
        again = [
            replace(piece, at_ns=piece.at_ns + shift_ns) for piece in answer.pieces
        ]
        answer.pieces = [*half, *again]
        answer.tail_ns += shift_ns


class SimilarCached(Effect):
    """A semantic cache answers a new prompt with the answer to an earlier one. Source:
    github.com/BerriAI/litellm/issues/12234."""

    checks = (
        "equal_answer_ratio",
        "changed_ratio",
        "buffered_ratio",
        "other_client_ratio",
        *GROUPS,
    )
    shares = (0.05, 0.15, 0.4)

    def __init__(self, change: Change, case: Case) -> None:
        super().__init__(change, case)
        self.earlier: list[tuple[list[str], str]] = []

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if not self.earlier or not self.hits(answer.ask):
            self.earlier.append((list(answer.words), answer.finish))
            return
        words, finish = self.earlier[
            int(self.rng(answer.ask).integers(len(self.earlier)))
        ]
        answer.words = list(words)
        answer.finish = finish
        answer.prefill_ns = round(CACHED_FIRST_MS * MS)
        answer.gaps_ns = np.full(len(words) - 1, CACHED_GAP_MS * MS)


class RoutedByLength(Effect):
    """A router gives prompts below the mean length to a model that is `size` times as fast, under
    the same name. Modelled on github.com/vllm-project/semantic-router."""

    checks = (*GROUPS, "answer_models", "mixed_up_models")
    sizes = (2.0, 4.0)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Prompts of different lengths."""
        return case.prompt_law != "fixed" and case.turns == 1

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if answer.prompt_tokens < self.case.prompt_tokens:
            answer.prefill_ns = round(answer.prefill_ns / self.size)
            answer.gaps_ns = answer.gaps_ns / self.size


class ErrorEvent(Effect):
    """Some answers end in the middle with an event that has an error, and then [DONE]; the status
    was 200. Source: github.com/vllm-project/vllm/pull/57519, vllm-project/guidellm/issues/743."""

    is_form = True
    checks = FAILURES
    shares = (0.02, 0.1)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if self.hits(answer.ask):
            answer.words = answer.words[: max(2, len(answer.words) // 2)]

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        if self.hits(answer.ask):
            error = {
                "error": {
                    "message": "engine died",
                    "type": "InternalServerError",
                    "code": 500,
                }
            }
            answer.extra_events.append((answer.tail_ns - 1, event(error)))

    def read(self, answer: Answer, reads: Reads) -> Reads:
        """See `Effect.read`."""
        if not self.hits(answer.ask):
            return reads
        return reframed(reads, _without_end)


def _without_end(payload: bytes) -> bytes:
    is_end = b'"finish_reason"' in payload or b'"usage"' in payload
    return b"" if is_end else payload


class ErrorDocument(Effect):
    """Some requests are refused with status 200 and a JSON body that has an error. Source:
    github.com/nodetool-ai/nodetool/pull/5755 (OpenRouter)."""

    checks = FAILURES
    shares = (0.02, 0.1)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if self.hits(answer.ask):
            answer.prefill_ns = MS
            answer.words = answer.words[:1]
            answer.gaps_ns = answer.gaps_ns[:0]

    def read(self, answer: Answer, reads: Reads) -> Reads:
        """See `Effect.read`."""
        if not self.hits(answer.ask):
            return reads
        body = b'{"error": {"message": "no endpoints found", "code": 404}}'
        head = HEAD.partition(b"\r\n")[0] + b"\r\nContent-Type: application/json\r\n"
        length = b"Content-Length: %d\r\n\r\n" % len(body)
        return [(reads[-1][0], head + length + body)]


class ErrorAsText(Effect):
    """A gateway waits `size` s for a backend that does not answer, and gives its message as the
    answer, finish_reason "stop". Modelled on github.com/rksm/org-ai and pipelines of Open WebUI."""

    checks = (*ODD_ANSWERS, "changed_ratio", "outlier_shift")
    sizes = (2.0, 10.0)
    shares = (0.05, 0.2)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if self.hits(answer.ask):
            answer.words = list(TIMED_OUT)
            answer.gaps_ns = np.full(len(TIMED_OUT) - 1, MS / 100)
            answer.prefill_ns = round(self.size * 1000 * MS)
            answer.finish = "stop"


class RouteTimeout(Effect):
    """A proxy closes the connection of each request that takes `size` times the usual time: the
    long answers fail. Source: github.com/istio/istio/issues/1888 (15 s),
    github.com/nicolerenee/infra/pull/2078 (60 s)."""

    checks = (*FAILURES, "clipped_answer_ratio")
    sizes = (1.3, 2.0)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Answers of different lengths."""
        return case.output_law != "fixed"

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        case = self.case
        usual_ms = case.prefill_ms + case.prefill_token_ms * case.prompt_tokens
        usual_ms += (
            case.gap_ms * case.output_tokens * (1 + case.batching * (case.at_once - 1))
        )
        limit_ns = answer.start_ns + round(self.size * usual_ms * MS)
        if answer.tail_ns <= limit_ns:
            return
        answer.pieces = [piece for piece in answer.pieces if piece.at_ns < limit_ns]
        answer.tail_ns = limit_ns
        answer.is_cut_off = bool(answer.pieces)
        if not answer.pieces:
            answer.status = 504


class EmptyAnswers(Effect):
    """Some answers have no text at all: the model ends at once, finish_reason "stop". Source:
    github.com/vllm-project/vllm/issues/11089, /41902."""

    checks = (*FAILURES, *ODD_ANSWERS)
    shares = (0.05, 0.2)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if self.hits(answer.ask):
            answer.words = answer.words[:1]
            answer.gaps_ns = answer.gaps_ns[:0]
            answer.finish = "stop"

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        if self.hits(answer.ask):
            answer.pieces = [replace(answer.pieces[0], text="")]


STRANGE_GATEWAYS: dict[str, type[Effect]] = {
    "streaming faked": FakeStream,
    "first kilobytes held": BeginningHeldByBytes,
    "buffered by bytes": BufferedByBytes,
    "typed by characters": Typed,
    "smoothed": Smoothed,
    "opening tag sent early": OpeningTag,
    "footer added": FooterAdded,
    "answered again": AnsweredAgain,
    "similar prompts cached": SimilarCached,
    "routed by length": RoutedByLength,
    "error event": ErrorEvent,
    "error document with status 200": ErrorDocument,
    "error as text": ErrorAsText,
    "route timeout": RouteTimeout,
    "empty answers": EmptyAnswers,
}
