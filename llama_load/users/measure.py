"""Makes the record of a request from its exchange on the wire and its decoded events."""

from __future__ import annotations

import re
import time
import uuid
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from llama_load.foreign_text import printable, redacted
from llama_load.metrics import latencies as metric
from llama_load.observed.record import ABORTED, CANCELLED, OK, RequestRecord
from llama_load.targets.answer import AnswerReader
from llama_load.targets.answer_form import FREE, AnswerForm
from llama_load.targets.apis import WITH_TEMPLATE
from llama_load.targets.counts import Bounds, Counts, checked_counts
from llama_load.targets.target import Target
from llama_load.users.answer_work import TOO_LONG, fault_of
from llama_load.users.long_texts import in_thread_if_long, text_digest
from llama_load.users.session import SessionSettings, Ticket
from llama_load.users.session_tokens import without_token
from llama_load.users.text_sizes import TextSizes, tokens_between_events
from llama_load.wire.exchange import Exchange
from llama_load.wire.stamps import ReadCounts
from llama_load.workloads.json_schema import schema_fault
from llama_load.workloads.prompt import Prompt

# "stop", "length", "tool_calls" and similar.
MOST_REASON_CHARS = 60
MOST_MODEL_CHARS = 200
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
    prompt: Prompt | None  # from the workload or the locustfile
    inputs: int | None = None  # number of texts to embed
    prefix_tokens: int | None = 0  # of the text that was put before the prompt; None: not counted
    choices: int = 1  # answers to the same prompt (`n`)
    form: AnswerForm | None = None  # of the run
    is_formed: bool = False  # whether this request has it
    sent_bytes: int | None = None  # of the body; None with images, whose tokens it does not bound
    stop_bytes: int | None = None  # of the longest `stop`; None: it has none
    start: int | None = None  # number of the conversation's first request
    adapter: str | None = None
    token: str | None = None  # of the session
    after_ns: int | None = None  # when the answer before this turn had ended; None: a first turn


def new_request_id() -> str:
    """An id sent as X-Request-Id, to match the server's log with the record."""
    return uuid.uuid4().hex


def make_record(
    settings: SessionSettings, ticket: Ticket, sent: SentRequest, exchange: Exchange, answer: AnswerReader, *, tries: int = 1
) -> RequestRecord:
    """The record of an ended exchange, the last of `tries`. A failed or cancelled one has its stamps, but no latencies."""
    lease, prompt, stamps, opening, read = ticket.lease, sent.prompt, exchange.stamps, exchange.opening, exchange.counts
    is_unfinished = exchange.cancelled or exchange.aborted
    failure = None if is_unfinished else answer.failure(exchange)
    counts = checked_counts(answer, _bounds(sent, exchange))
    tokens = _prompt_tokens(sent, ticket.target, counts, None if failure is None else answer.refused_prompt_tokens(exchange))
    token_ns, blank_ns, timings, output = answer.token_ns, answer.blank_ns, answer.timings, answer.generated
    text_sizes = TextSizes.of(answer, output)
    between = tokens_between_events(answer, counts, text_sizes, choices=sent.choices) if failure is None else None
    # What a latency of a failed request ends with is None, and so is the latency.
    first, last, first_answer = _ends_of_latencies(exchange, answer) if failure is None else (None, None, None)
    ttft, e2el = metric.ttft_ms(stamps.started_ns, first), metric.e2el_ms(stamps.started_ns, last)
    return RequestRecord(
        # who and what
        request_id=sent.request_id,
        worker=settings.worker,
        user=sent.user,
        workload=sent.workload,
        name=sent.name,
        stage=lease.stage,
        host=ticket.target.address.url,
        endpoint=sent.endpoint,
        model=sent.model,
        adapter=sent.adapter,
        warmup=lease.warmup,
        prompt_index=lease.index,
        conversation=prompt.conversation if prompt else None,
        turn=prompt.turn if prompt else None,
        turns=prompt.turns if prompt else None,
        conversation_start=sent.start if prompt and prompt.turn else None,
        agent=prompt.agent if prompt else None,
        delay_ms=1e3 * prompt.delay_s if prompt and prompt.delay_s is not None and sent.after_ns is not None else None,
        waited_ms=metric.waited_ms(sent.after_ns, stamps.started_ns),
        tool_calls=len(answer.calls) if failure is None and (answer.calls or (prompt and prompt.fields.get("tools"))) else None,
        recorded_calls=len(prompt.calls) if prompt and prompt.fields.get("tools") and prompt.answer is not None else None,
        max_tokens=sent.max_tokens,
        choices=sent.choices if sent.choices > 1 else None,
        answer_form=None if sent.form is None else sent.form.kind if sent.is_formed else FREE,
        # how it ended
        status=CANCELLED if exchange.cancelled else ABORTED if exchange.aborted else OK if failure is None else failure[0],
        http_status=exchange.status,
        error=printable(_error_text(failure[1], exchange, sent, keeps_texts=settings.save_texts)) if failure else None,
        finish_reason=None if answer.finish_reason is None else printable(answer.finish_reason, MOST_REASON_CHARS),
        valid_answer=_is_valid(sent, answer) if failure is None and not is_unfinished else None,
        answered_by=_answered_by(exchange),
        replica=settings.session_headers.replica_in(exchange.headers),
        session=settings.session_headers.state(sent.token, exchange.headers),
        answered_model=None if answer.model is None else printable(answer.model, MOST_MODEL_CHARS),
        # when
        scheduled_mono_ns=lease.scheduled_ns,
        started_mono_ns=stamps.started_ns,
        connected_mono_ns=opening.connected_ns,
        secured_mono_ns=opening.secured_ns,
        sent_mono_ns=stamps.sent_ns,
        headers_mono_ns=stamps.headers_ns,
        first_token_mono_ns=token_ns[0] if token_ns else None,
        first_blank_mono_ns=blank_ns[0] if blank_ns else None,
        first_answer_mono_ns=answer.first_answer_ns,
        last_token_mono_ns=token_ns[-1] if token_ns else None,
        ended_mono_ns=stamps.ended_ns or time.monotonic_ns(),
        started_wall_ns=time.time_ns() - (time.monotonic_ns() - stamps.started_ns),
        # how long it waited: at the client, for the connection, in the server's queue, however it ended
        client_queue_ms=metric.client_queue_ms(lease.scheduled_ns, stamps.started_ns),
        late_ms=metric.late_ms(lease.scheduled_ns, lease.allowed_ns, stamps.started_ns),
        queue_ms=metric.queue_ms(
            stamps.sent_ns,
            stamps.headers_ns,
            headers_alone=read.headers_alone,
            # A whole answer's headers arrive with it, and images are decoded before the request gets a slot.
            held=ticket.target.kind.holds_headers and answer.streams and not (prompt is not None and prompt.images),
        ),
        connect_ms=metric.connect_ms(stamps.attempt_ns, opening.connected_ns),
        tls_ms=metric.tls_ms(opening.connected_ns, opening.secured_ns),
        tls_resumed=opening.tls_resumed if opening.secured_ns is not None else None,
        own_delay_ms=metric.own_delay_ms(
            stamps.attempt_ns,
            None if exchange.reopened else opening.connected_ns,
            opening.handshake_ns,
            first_write_ns=stamps.first_write_ns if exchange.reused else None,
        ),
        tries=tries,
        retry_ms=metric.retry_ms(stamps.started_ns, stamps.attempt_ns) if tries > 1 else None,
        connection_reused=exchange.reused,
        connection_reopened=exchange.reopened,
        # how long the answer took
        ttft_ms=ttft,
        answer_ttft_ms=metric.answer_ttft_ms(stamps.started_ns, first_answer),
        tpot_ms=metric.tpot_ms(ttft, e2el, between),
        e2el_ms=e2el,
        itl_ms=metric.itl_ms(token_ns) if failure is None else (),  # also of cancelled ones, whose tokens count in the throughput
        # the prompt
        prompt_tokens=tokens.number,
        prompt_token_source=tokens.source,
        planned_prompt_tokens=tokens.planned,
        cached_tokens=counts.cached_tokens,
        prompt_chars=len(sent.text),
        prompt_bytes=len(sent.text.encode("utf-8", "surrogatepass")),
        images=len(prompt.images) if prompt and prompt.images else None,
        image_tokens=tokens.of_images,
        inputs=sent.inputs,
        prompt_sha256=sent.digest,
        prompt_text=redacted(sent.text) if settings.save_texts else None,
        # the answer
        output_tokens=counts.output_tokens,
        reasoning_tokens=counts.reasoning_tokens,
        token_events=len(token_ns),
        blank_events=len(blank_ns),
        event_tokens=counts.event_tokens if any(number != 1 for number in counts.event_tokens) else (),
        first_event_tokens=counts.first_event_tokens,
        token_source=counts.token_source,
        count_doubt=counts.doubt,
        output_chars=text_sizes.chars,
        output_bytes=text_sizes.bytes,
        first_event_chars=text_sizes.first_chars,
        first_event_bytes=text_sizes.first_bytes,
        call_chars=text_sizes.call_chars,
        stop_bytes=sent.stop_bytes,
        output_sha256=text_digest(output) if output else None,
        output_text=redacted(output) if settings.save_texts else None,
        # how well it was measured
        clock_source=_clock_source(read),
        merged_events=read.merged,
        first_merged=read.first_merged,
        # what the server reports of itself
        server_prompt_tokens=counts.processed_tokens,
        server_prompt_ms=timings.prompt_ms if timings else None,
        server_predict_ms=timings.predicted_ms if timings else None,
        draft_tokens=counts.draft_tokens,
        draft_accepted=counts.draft_accepted,
    )


def _ends_of_latencies(exchange: Exchange, answer: AnswerReader) -> tuple[int | None, int | None, int | None]:
    """When the first token, the last and the first that is not reasoning arrived; None for cancelled and aborted requests."""
    if exchange.cancelled or exchange.aborted:
        return None, None, None
    first, last = (answer.token_ns[0], answer.token_ns[-1]) if answer.token_ns else (None, None)
    # Without a stream, or where no token was sent, there is no last token: the answer's end is the nearest stamp.
    has_last = answer.streams and last is not None
    return first, last if has_last else exchange.stamps.ended_ns, answer.first_answer_ns


class _PromptTokens(NamedTuple):
    """Tokens of a prompt, who counted them, how many were planned, and how many of them are those of images."""

    number: int | None
    source: str | None
    planned: int | None
    of_images: int | None


def _prompt_tokens(sent: SentRequest, target: Target, counts: Counts, refused: int | None) -> _PromptTokens:
    """Prompt tokens from the server's answer or its refusal (`refused`), else from the count before the run."""
    prompt = sent.prompt
    tokens, source = (counts.prompt_tokens, counts.prompt_token_source) if refused is None else (refused, "refusal")
    of_images = _image_tokens(prompt, sent.prefix_tokens, tokens, target)
    planned: int | None = None
    if prompt is not None and not prompt.images and (prompt.turn or 1) == 1:
        planned, how = _planned(sent, prompt, target)
        if tokens is None and not target.counts_differ(sent.model):
            tokens, source = planned, how
        if prompt.fields or len(prompt.added) > 1 or prompt.history or target.counts_differ(sent.model):
            planned = None  # a chat template renders tools in its own way, and adds to every message
    return _PromptTokens(tokens, source, planned, of_images)


def _planned(sent: SentRequest, prompt: Prompt, target: Target) -> tuple[int | None, str]:
    """Prompt tokens counted before the run, plus the chat template's if known, and if nothing else was added."""
    if prompt.prompt_tokens is None or sent.prefix_tokens is None:
        return prompt.prompt_tokens, "plan"
    tokens = prompt.prompt_tokens + sent.prefix_tokens
    if target.template_tokens is None or sent.endpoint not in WITH_TEMPLATE:
        return tokens, "plan"
    return tokens + target.template_tokens, "plan+template"


def _is_valid(sent: SentRequest, answer: AnswerReader) -> bool | None:
    """Whether the answer follows the JSON schema of the run; None without one, and where that took too long to check."""
    schema = None if sent.form is None else sent.form.schema
    if schema is None:
        return None
    text = answer.choices[0].text.strip()
    fault = fault_of(partial(schema_fault, schema, text))
    return None if fault == TOO_LONG else fault is None


def _bounds(sent: SentRequest, exchange: Exchange) -> Bounds:
    # For llama-cpp-python, 0 means no limit but the context.
    most = sent.max_tokens * sent.choices if sent.max_tokens else None
    return Bounds(most, sent.sent_bytes, exchange.counts.received_bytes, exchange.counts.merged)


def _image_tokens(prompt: Prompt | None, prefix: int | None, prompt_tokens: int | None, target: Target) -> int | None:
    """Prompt tokens - text tokens - chat template tokens: all images together. None if any is unknown."""
    if prompt is None or not prompt.images or prompt_tokens is None:
        return None
    texts = (prefix, prompt.prompt_tokens, target.template_tokens)
    known = [tokens for tokens in texts if tokens is not None]
    return max(0, prompt_tokens - sum(known)) if len(known) == len(texts) else None


def _error_text(sentence: str, exchange: Exchange, sent: SentRequest, *, keeps_texts: bool) -> str:
    """The failure's message, without the prompt if it came from the server."""
    if exchange.status is None:
        return sentence
    sentence = without_token(sentence, sent.token)
    return sentence if keeps_texts or not sent.text else in_thread_if_long(_without_prompt, sent.text, sentence)


def _without_prompt(prompt: str, error: str) -> str:
    """The failure's message. Some servers quote the prompt in it, and prompts are stored only on request."""
    if ";base64," in error:  # the server quotes an image
        return error.partition(":")[0] + ": … (the server quotes the request; --save-texts stores it)"
    quoting, letters = _letters(error), _letters(prompt)
    # Any quotation of 1.5 times this length contains one of these windows; a short prompt is one window.
    size = min(QUOTE_CHARS, len(letters))
    windows = (quoting[at : at + size] for at in range(0, max(1, len(quoting) - size + 1), max(1, size // 2)))
    if size < QUOTE_CHARS // 2 or not any(window in letters for window in windows):
        return error
    return error.partition(":")[0] + ": … (the server quotes the prompt; --save-texts stores it)"


def _letters(text: str) -> str:
    """Letters and digits alone, with JSON's escapes undone: a quotation keeps these."""
    plain = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text).replace("\\n", " ").replace("\\t", " ")
    return _BETWEEN.sub("", plain)


def _answered_by(exchange: Exchange) -> str | None:
    """The server and proxies in the answer's header fields Server and Via."""
    names = (exchange.headers.get("server"), exchange.headers.get("via"))
    return ", via ".join(name for name in names if name) or None


def _clock_source(read: ReadCounts) -> str:
    if not read.user_space_reads:
        return "kernel"
    return "user" if read.user_space_reads == read.reads else "mixed"
