"""From an exchange on the wire and what its events meant to a record."""

from __future__ import annotations

import re
import time
import uuid
from dataclasses import dataclass

from llama_load.foreign_text import printable
from llama_load.metrics import latencies as metric
from llama_load.record import CANCELLED, OK, RequestRecord
from llama_load.targets.answer import AnswerReader
from llama_load.targets.body import CHAT
from llama_load.targets.counts import Bounds
from llama_load.targets.target import Target
from llama_load.users.content import in_thread_if_long, text_digest
from llama_load.users.session import Session, Ticket
from llama_load.wire.exchange import Exchange
from llama_load.workloads.prompt import Prompt

# "stop", "length", "tool_calls" and their like.
MOST_REASON_CHARS = 60
# An error quotes the prompt if it shares this many consecutive letters and digits with it, however they are escaped.
QUOTE_CHARS = 24
_BETWEEN = re.compile(r"[\W_]+")
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")


@dataclass(frozen=True, slots=True)
class SentRequest:
    """One request as it was sent."""

    request_id: str
    user: str
    workload: str
    name: str
    endpoint: str
    model: str | None
    text: str
    digest: str
    max_tokens: int | None
    prompt: Prompt | None  # of the workload, or what the locustfile made
    inputs: int | None = None  # texts to be embedded
    prefixed: bool = False  # with random text in front
    choices: int = 1  # answers to the same prompt (`n`)
    sent_bytes: int | None = None  # of the body; None with images, whose tokens it does not bound


def new_request_id() -> str:
    """An id that is sent as X-Request-Id, so that the server's log and the record can be laid side by side."""
    return uuid.uuid4().hex


def make_record(session: Session, ticket: Ticket, asked: SentRequest, exchange: Exchange, answer: AnswerReader) -> RequestRecord:
    """The record of an exchange that has ended. A failed or cancelled one has its stamps, but no latencies."""
    failure = None if exchange.cancelled else answer.failure(exchange)
    status = CANCELLED if exchange.cancelled else OK if failure is None else failure[0]
    started = exchange.started_ns
    first = answer.token_ns[0] if answer.token_ns else None
    last = answer.token_ns[-1] if answer.token_ns else None
    counts = answer.counts(_bounds(asked, exchange))
    ok = status == OK
    ttft = metric.ttft_ms(started, first) if ok else None
    # Without a stream there is no last token to be seen: the answer's end is the nearest thing.
    e2el = metric.e2el_ms(started, last if answer.streams else exchange.ended_ns) if ok else None
    timings = answer.timings
    prompt = asked.prompt
    prompt_tokens, prompt_token_source = counts.prompt_tokens, counts.prompt_token_source
    if failure is not None and (refused_tokens := answer.refused_prompt_tokens(exchange)) is not None:
        prompt_tokens, prompt_token_source = refused_tokens, "refusal"
    reported_tokens = prompt_tokens
    if prompt_tokens is None and prompt is not None and not prompt.images and (prompt.turn or 1) == 1:
        prompt_tokens, prompt_token_source = _planned(asked, prompt, ticket.target)
    output = answer.generated
    return RequestRecord(
        request_id=asked.request_id,
        worker=session.worker,
        user=asked.user,
        workload=asked.workload,
        name=asked.name,
        stage=ticket.stage,
        host=ticket.target.address.url,
        endpoint=asked.endpoint,
        model=asked.model,
        warmup=ticket.warmup,
        prompt_index=ticket.index,
        conversation=prompt.conversation if prompt else None,
        turn=prompt.turn if prompt else None,
        max_tokens=asked.max_tokens,
        status=status,
        http_status=exchange.status,
        error=printable(_error_text(failure[1], exchange, asked, session)) if failure else None,
        finish_reason=None if answer.finish_reason is None else printable(answer.finish_reason, MOST_REASON_CHARS),
        scheduled_mono_ns=ticket.scheduled_ns,
        started_mono_ns=started,
        connected_mono_ns=exchange.connected_ns,
        secured_mono_ns=exchange.secured_ns,
        sent_mono_ns=exchange.sent_ns,
        headers_mono_ns=exchange.headers_ns,
        first_token_mono_ns=first,
        first_answer_mono_ns=answer.first_answer_ns,
        last_token_mono_ns=last,
        ended_mono_ns=exchange.ended_ns or time.monotonic_ns(),
        started_wall_ns=time.time_ns() - (time.monotonic_ns() - started),
        client_queue_ms=metric.client_queue_ms(ticket.scheduled_ns, started),
        late_ms=metric.late_ms(ticket.scheduled_ns, ticket.allowed_ns, started),
        queue_ms=metric.queue_ms(
            exchange.sent_ns,
            exchange.headers_ns,
            headers_alone=exchange.headers_alone,
            # A whole answer's headers come with it, and images are decoded before a slot is asked for.
            held=ticket.target.holds_headers and answer.streams and not (prompt is not None and prompt.images),
        ),
        connect_ms=metric.connect_ms(exchange.attempt_ns, exchange.connected_ns),
        tls_ms=metric.tls_ms(exchange.connected_ns, exchange.secured_ns),
        tls_resumed=exchange.tls_resumed if exchange.secured_ns is not None else None,
        own_delay_ms=metric.own_delay_ms(
            started,
            None if exchange.reopened else exchange.connected_ns,
            exchange.handshake_ns,
            first_write_ns=exchange.first_write_ns if exchange.reused else None,
        ),
        connection_reused=exchange.reused,
        connection_reopened=exchange.reopened,
        answered_by=_answered_by(exchange),
        ttft_ms=ttft,
        answer_ttft_ms=metric.answer_ttft_ms(started, answer.first_answer_ns) if ok else None,
        tpot_ms=metric.tpot_ms(
            ttft, e2el, counts.output_tokens, token_events=len(answer.token_ns), first_event_tokens=counts.first_event_tokens
        ),
        e2el_ms=e2el,
        # Of a cancelled one, too: its tokens are part of the throughput.
        itl_ms=metric.itl_ms(answer.token_ns) if ok or exchange.cancelled else (),
        prompt_tokens=prompt_tokens,
        prompt_token_source=prompt_token_source,
        cached_tokens=counts.cached_tokens,
        output_tokens=counts.output_tokens,
        reasoning_tokens=counts.reasoning_tokens,
        token_events=len(answer.token_ns),
        event_tokens=counts.event_tokens if any(tokens != 1 for tokens in counts.event_tokens) else (),
        first_event_tokens=counts.first_event_tokens,
        output_chars=len(output),
        prompt_chars=len(asked.text),
        images=len(prompt.images) if prompt and prompt.images else None,
        image_tokens=None if asked.prefixed else _image_tokens(prompt, reported_tokens, ticket.target),
        inputs=asked.inputs,
        prompt_sha256=asked.digest,
        output_sha256=text_digest(output) if output else None,
        prompt_text=asked.text if session.save_texts else None,
        output_text=output if session.save_texts else None,
        token_source=counts.token_source,
        count_doubt=counts.doubt,
        clock_source=_clock_source(exchange),
        merged_events=exchange.merged,
        first_merged=exchange.first_merged,
        server_prompt_tokens=counts.processed_tokens,
        server_prompt_ms=timings.prompt_ms if timings else None,
        server_predict_ms=timings.predicted_ms if timings else None,
        draft_tokens=counts.draft_tokens,
        draft_accepted=counts.draft_accepted,
    )


def _planned(asked: SentRequest, prompt: Prompt, target: Target) -> tuple[int | None, str]:
    """Prompt tokens as counted before the run, with those of the chat template where they are known and nothing else was added."""
    if prompt.prompt_tokens is None or target.template_tokens is None or asked.endpoint != CHAT or asked.prefixed:
        return prompt.prompt_tokens, "plan"
    return prompt.prompt_tokens + target.template_tokens, "plan+template"


def _bounds(asked: SentRequest, exchange: Exchange) -> Bounds:
    # 0 asks llama-cpp-python for as many as there is room for.
    most = asked.max_tokens * asked.choices if asked.max_tokens else None
    return Bounds(most, asked.sent_bytes, exchange.received_bytes)


def _image_tokens(prompt: Prompt | None, prompt_tokens: int | None, target: Target) -> int | None:
    """Prompt tokens - those of the text - those of the chat template: what the images cost together. None where any is unknown."""
    if prompt is None or not prompt.images or None in (prompt_tokens, prompt.prompt_tokens, target.template_tokens):
        return None
    return max(0, (prompt_tokens or 0) - (prompt.prompt_tokens or 0) - (target.template_tokens or 0))


def _error_text(sentence: str, exchange: Exchange, asked: SentRequest, session: Session) -> str:
    """The failure's sentence, without the prompt where a server had a part in it."""
    if exchange.status is None:
        return sentence
    return sentence if session.save_texts or not asked.text else in_thread_if_long(_without_prompt, asked.text, sentence)


def _without_prompt(prompt: str, error: str) -> str:
    """The failure's sentence; servers quote the prompt in some, and no prompt goes to disk unasked."""
    if ";base64," in error:  # the server quotes an image
        return error.partition(":")[0] + ": … (the server quotes the request; --save-texts keeps that)"
    said, asked = _letters(error), _letters(prompt)
    # Any quotation of 1.5 times the length holds one of these windows; a short prompt is one window.
    size = min(QUOTE_CHARS, len(asked))
    windows = (said[at : at + size] for at in range(0, max(1, len(said) - size + 1), max(1, size // 2)))
    if size < QUOTE_CHARS // 2 or not any(window in asked for window in windows):
        return error
    return error.partition(":")[0] + ": … (the server quotes the prompt; --save-texts keeps that)"


def _letters(text: str) -> str:
    """Letters and digits alone, JSON's escapes undone: what a quotation keeps."""
    plain = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text).replace("\\n", " ").replace("\\t", " ")
    return _BETWEEN.sub("", plain)


def _answered_by(exchange: Exchange) -> str | None:
    """What the answer's head says of who sent it: the fields Server and Via."""
    names = (exchange.headers.get("server"), exchange.headers.get("via"))
    return ", via ".join(name for name in names if name) or None


def _clock_source(exchange: Exchange) -> str:
    if not exchange.user_space_reads:
        return "kernel"
    return "user" if exchange.user_space_reads == exchange.reads else "mixed"
