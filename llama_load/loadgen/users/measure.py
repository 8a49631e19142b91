"""Makes the record of a request from its exchange on the wire and its decoded events."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from llama_load.ground.units import NS_PER_MS
from llama_load.loadgen.users.answer_work import TOO_LONG, fault_of
from llama_load.loadgen.users.compared_prompts import ComparedPrompt
from llama_load.loadgen.users.long_texts import in_thread_if_long, text_digest
from llama_load.loadgen.users.session import SessionSettings, Ticket
from llama_load.loadgen.users.session_tokens import without_token
from llama_load.loadgen.users.text_sizes import TextSizes, tokens_between_events
from llama_load.loadgen.wire.exchange import Exchange
from llama_load.loadgen.wire.stamps import ReadCounts
from llama_load.outside.foreign_text import printable, redacted
from llama_load.run_folder.arithmetic import latencies as metric
from llama_load.run_folder.observed.record import ABORTED, CANCELLED, OK, RequestRecord
from llama_load.servers.answer import AnswerReader
from llama_load.servers.answer_form import AnswerForm
from llama_load.servers.apis import WITH_TEMPLATE
from llama_load.servers.counts import Bounds, Counts, checked_counts
from llama_load.servers.json_schema import schema_fault
from llama_load.servers.prompt import Prompt
from llama_load.servers.target import Target
from llama_load.servers.usage import server_times

# "stop", "length", "tool_calls" and similar.
MOST_REASON_CHARS = 60
MOST_MODEL_CHARS = 200
# An error quotes the prompt if it shares this many consecutive letters and digits with it, however
# they are escaped.
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
    # of the text that was put before the prompt; None: not counted
    prefix_tokens: int | None = 0
    choices: int = 1  # answers to the same prompt (`n`)
    form: AnswerForm | None = None  # of the run
    answer_form: str | None = (
        None  # of this request; None: neither it nor the run has one
    )
    # of the body; None with images, whose tokens it does not bound
    sent_bytes: int | None = None
    stop_bytes: int | None = None  # of the longest `stop`; None: it has none
    start: int | None = None  # number of the conversation's first request
    adapter: str | None = None
    token: str | None = None  # of the session
    # characters of the prompt before in its conversation, and of those that this one begins with
    compared: ComparedPrompt = field(default_factory=ComparedPrompt)
    # when the answer before this turn had ended; None: a first turn
    after_ns: int | None = None


def new_request_id() -> str:
    """An id sent as X-Request-Id, to match the server's log with the record."""
    return uuid.uuid4().hex


def make_record(
    settings: SessionSettings,
    ticket: Ticket,
    sent: SentRequest,
    exchange: Exchange,
    answer: AnswerReader,
    *,
    tries: int = 1,
) -> RequestRecord:
    """The record of an ended exchange, the last of `tries`. A failed or cancelled one has its
    stamps, but no latencies."""
    lease = ticket.lease
    stamps = exchange.stamps
    opening = exchange.opening
    read = exchange.counts
    token_ns = answer.token_ns
    blank_ns = answer.blank_ns
    output = answer.generated
    saves_texts = settings.save_texts
    turn = _turn_facts(sent)

    is_unfinished = exchange.cancelled or exchange.aborted
    failure = None
    end_note = None
    if not is_unfinished:
        failure = answer.failure(exchange, ends_by_reason=ticket.target.ends_by_reason)
        if failure is None:
            end_note = answer.end_note(exchange)
            ticket.target.dialect.note(finish_reason=answer.finish_reason)

    counts = checked_counts(answer, _bounds(sent, exchange))
    text_sizes = TextSizes.of(answer, output, counts.output_tokens)

    # What a latency of a failed request ends with is None, and so is the latency.
    first = None
    last = None
    first_answer = None
    between = None
    itl_ms: Sequence[float] = ()
    tool_calls = None
    valid_answer = None
    refused_tokens = None
    error = None
    if failure is None:
        first, last, first_answer = _ends_of_latencies(exchange, answer)
        between = tokens_between_events(
            answer, counts, text_sizes, choices=sent.choices
        )
        # Also of cancelled requests, whose tokens count in the throughput.
        itl_ms = metric.itl_ms(token_ns)
        if answer.calls or turn.has_tools:
            tool_calls = len(answer.calls)
        if not is_unfinished:
            valid_answer = _is_valid(sent, answer)
    else:
        refused_tokens = answer.refused_prompt_tokens(exchange)
        error = _error_text(failure[1], exchange, sent, keeps_texts=saves_texts)
        error = printable(error)

    tokens = _prompt_tokens(sent, ticket.target, counts, refused_tokens)
    finish_reason = answer.finish_reason
    if finish_reason is not None:
        finish_reason = printable(finish_reason, MOST_REASON_CHARS)

    answered_model = answer.model
    if answered_model is not None:
        answered_model = printable(answered_model, MOST_MODEL_CHARS)

    # A whole answer's headers arrive with it, and images are decoded before the request gets a
    # slot.
    holds_headers = ticket.target.kind.holds_headers and answer.streams
    if turn.images:
        holds_headers = False

    first_token_ns = None
    last_token_ns = None
    if token_ns:
        first_token_ns = token_ns[0]
        last_token_ns = token_ns[-1]

    first_blank_ns = None
    if blank_ns:
        first_blank_ns = blank_ns[0]

    tls_resumed = None
    if opening.secured_ns is not None:
        tls_resumed = opening.tls_resumed

    own_connected_ns = opening.connected_ns
    if exchange.reopened:
        own_connected_ns = None

    own_first_write_ns = None
    if exchange.reused:
        own_first_write_ns = stamps.first_write_ns

    own_delay_ms = metric.own_delay_ms(
        stamps.attempt_ns,
        own_connected_ns,
        opening.handshake_ns,
        first_write_ns=own_first_write_ns,
    )
    # What the client took for itself is in no latency.
    own_delay_ns = 0
    asked_ns = None
    if own_delay_ms is not None:
        own_delay_ns = round(own_delay_ms * NS_PER_MS)
        asked_ns = stamps.started_ns
    started_ns = stamps.started_ns + own_delay_ns
    ttft_ms = metric.ttft_ms(started_ns, first)
    e2el_ms = metric.e2el_ms(started_ns, last)

    retry_ms = None
    if tries > 1:
        retry_ms = metric.retry_ms(stamps.started_ns, stamps.attempt_ns)

    prompt_text = None
    output_text = None
    if saves_texts:
        prompt_text = redacted(sent.text)
        output_text = redacted(output)

    output_sha256 = None
    if output:
        output_sha256 = text_digest(output)

    event_tokens: Sequence[int] = ()
    if any(number != 1 for number in counts.event_tokens):
        event_tokens = counts.event_tokens

    own_times = server_times(answer.timings, answer.metrics)

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
        conversation=turn.conversation,
        turn=turn.turn,
        turns=turn.turns,
        conversation_start=turn.start,
        agent=turn.agent,
        delay_ms=turn.delay_ms,
        waited_ms=metric.waited_ms(sent.after_ns, started_ns),
        tool_calls=tool_calls,
        recorded_calls=turn.recorded_calls,
        max_tokens=sent.max_tokens,
        choices=sent.choices if sent.choices > 1 else None,
        answer_form=sent.answer_form,
        # how it ended
        status=_status(exchange, failure),
        http_status=exchange.status,
        error=error,
        finish_reason=finish_reason,
        end_note=end_note,
        valid_answer=valid_answer,
        answered_by=_answered_by(exchange),
        replica=settings.session_headers.replica_in(exchange.headers),
        session=settings.session_headers.state(sent.token, exchange.headers),
        answered_model=answered_model,
        # when
        scheduled_mono_ns=lease.scheduled_ns,
        asked_mono_ns=asked_ns,
        started_mono_ns=started_ns,
        connected_mono_ns=opening.connected_ns,
        secured_mono_ns=opening.secured_ns,
        sent_mono_ns=stamps.sent_ns,
        headers_mono_ns=stamps.headers_ns,
        first_token_mono_ns=first_token_ns,
        first_blank_mono_ns=first_blank_ns,
        first_answer_mono_ns=answer.first_answer_ns,
        last_token_mono_ns=last_token_ns,
        ended_mono_ns=stamps.ended_ns or time.monotonic_ns(),
        started_wall_ns=time.time_ns() - (time.monotonic_ns() - started_ns),
        # how long it waited: at the client, for the connection, in the server's queue, however it
        # ended
        client_queue_ms=metric.client_queue_ms(lease.scheduled_ns, started_ns),
        late_ms=metric.late_ms(lease.scheduled_ns, lease.allowed_ns, started_ns),
        queue_ms=metric.queue_ms(
            stamps.sent_ns,
            stamps.headers_ns,
            headers_alone=read.headers_alone,
            held=holds_headers,
        ),
        connect_ms=metric.connect_ms(
            stamps.attempt_ns + own_delay_ns, opening.connected_ns
        ),
        tls_ms=metric.tls_ms(opening.connected_ns, opening.secured_ns),
        tls_resumed=tls_resumed,
        own_delay_ms=own_delay_ms,
        tries=tries,
        retry_ms=retry_ms,
        connection_reused=exchange.reused,
        connection_reopened=exchange.reopened,
        # how long the answer took
        ttft_ms=ttft_ms,
        answer_ttft_ms=metric.answer_ttft_ms(started_ns, first_answer),
        tpot_ms=metric.tpot_ms(ttft_ms, e2el_ms, between),
        e2el_ms=e2el_ms,
        e2el_per_token_ms=metric.e2el_per_token_ms(e2el_ms, counts.output_tokens),
        itl_ms=itl_ms,
        # the prompt
        prompt_tokens=tokens.number,
        prompt_token_source=tokens.source,
        planned_prompt_tokens=tokens.planned,
        cached_tokens=counts.cached_tokens,
        prompt_chars=len(sent.text),
        prompt_bytes=len(sent.text.encode("utf-8", "surrogatepass")),
        earlier_chars=sent.compared.earlier_chars,
        common_chars=sent.compared.common_chars,
        changed_in=sent.compared.changed_in,
        earlier_request=sent.compared.earlier_request,
        images=turn.images,
        image_tokens=tokens.of_images,
        inputs=sent.inputs,
        prompt_sha256=sent.digest,
        prompt_text=prompt_text,
        # the answer
        output_tokens=counts.output_tokens,
        reasoning_tokens=counts.reasoning_tokens,
        token_events=len(token_ns),
        blank_events=len(blank_ns),
        event_tokens=event_tokens,
        first_event_tokens=counts.first_event_tokens,
        token_source=counts.token_source,
        count_doubt=counts.doubt,
        output_chars=text_sizes.chars,
        output_bytes=text_sizes.bytes,
        first_event_chars=text_sizes.first_chars,
        first_event_bytes=text_sizes.first_bytes,
        longest_event_chars=text_sizes.longest_chars,
        call_chars=text_sizes.call_chars,
        stop_bytes=sent.stop_bytes,
        output_sha256=output_sha256,
        output_text=output_text,
        # how well it was measured
        clock_source=_clock_source(read),
        merged_events=read.merged,
        first_merged=read.first_merged,
        # what the server reports of itself
        server_prompt_tokens=counts.processed_tokens,
        server_queue_ms=own_times.queue_ms,
        server_prompt_ms=own_times.prompt_ms,
        server_predict_ms=own_times.predict_ms,
        draft_tokens=counts.draft_tokens,
        draft_accepted=counts.draft_accepted,
    )


class _TurnFacts(NamedTuple):
    """What a record says of the prompt and of its place in a conversation."""

    conversation: str | None = None
    turn: int | None = None
    turns: int | None = None
    start: int | None = None  # number of the conversation's first request
    agent: str | None = None
    delay_ms: float | None = None
    has_tools: bool = False
    recorded_calls: int | None = None
    images: int | None = None


def _turn_facts(sent: SentRequest) -> _TurnFacts:
    prompt = sent.prompt
    if prompt is None:
        return _TurnFacts()

    start = None
    if prompt.turn:
        start = sent.start

    delay_ms = None
    if prompt.delay_s is not None and sent.after_ns is not None:
        delay_ms = 1e3 * prompt.delay_s

    has_tools = bool(prompt.fields.get("tools"))
    recorded_calls = None
    if has_tools and prompt.answer is not None:
        recorded_calls = len(prompt.calls)

    return _TurnFacts(
        prompt.conversation,
        prompt.turn,
        prompt.turns,
        start,
        prompt.agent,
        delay_ms,
        has_tools,
        recorded_calls,
        images=len(prompt.images) or None,
    )


def _status(exchange: Exchange, failure: tuple[str, str] | None) -> str:
    if exchange.cancelled:
        return CANCELLED
    if exchange.aborted:
        return ABORTED
    if failure is None:
        return OK

    kind, _ = failure

    return kind


def _ends_of_latencies(
    exchange: Exchange, answer: AnswerReader
) -> tuple[int | None, int | None, int | None]:
    """When the first token, the last and the first that is not reasoning arrived; None for
    cancelled and aborted requests."""
    if exchange.cancelled or exchange.aborted:
        return None, None, None

    # Without a stream, or where no token was sent, there is no last token: the answer's end is the
    # nearest stamp.
    first = None
    last = exchange.stamps.ended_ns
    if answer.token_ns:
        first = answer.token_ns[0]
        if answer.streams:
            last = answer.token_ns[-1]

    return first, last, answer.first_answer_ns


class _PromptTokens(NamedTuple):
    """Tokens of a prompt, who counted them, how many were planned, and how many of them are those
    of images."""

    number: int | None
    source: str | None
    planned: int | None
    of_images: int | None


def _prompt_tokens(
    sent: SentRequest, target: Target, counts: Counts, refused: int | None
) -> _PromptTokens:
    """Prompt tokens from the server's answer or its refusal (`refused`), else from the count before
    the run."""
    prompt = sent.prompt
    tokens = counts.prompt_tokens
    source = counts.prompt_token_source
    if refused is not None:
        tokens = refused
        source = "refusal"

    of_images = _image_tokens(prompt, sent.prefix_tokens, tokens, target)
    planned: int | None = None
    if prompt is not None and not prompt.images and (prompt.turn or 1) == 1:
        planned, how = _planned(sent, prompt, target)
        if tokens is None and not target.counts_differ(sent.model):
            tokens = planned
            source = how

        if (
            prompt.fields
            or len(prompt.added) > 1
            or prompt.history
            or target.counts_differ(sent.model)
        ):
            # a chat template renders tools in its own way, and adds to every message
            planned = None
    return _PromptTokens(tokens, source, planned, of_images)


def _planned(
    sent: SentRequest, prompt: Prompt, target: Target
) -> tuple[int | None, str]:
    """Prompt tokens counted before the run, plus the chat template's if known, and if nothing else
    was added."""
    if prompt.prompt_tokens is None or sent.prefix_tokens is None:
        return prompt.prompt_tokens, "plan"
    tokens = prompt.prompt_tokens + sent.prefix_tokens
    if target.template_tokens is None or sent.endpoint not in WITH_TEMPLATE:
        return tokens, "plan"
    return tokens + target.template_tokens, "plan+template"


def _is_valid(sent: SentRequest, answer: AnswerReader) -> bool | None:
    """Whether the answer follows the JSON schema of the run; None without one, and where that took
    too long to check."""
    if sent.form is None or sent.form.schema is None:
        return None

    text = answer.choices[0].text.strip()
    fault = fault_of(partial(schema_fault, sent.form.schema, text))
    if fault == TOO_LONG:
        return None

    return fault is None


def _bounds(sent: SentRequest, exchange: Exchange) -> Bounds:
    # For llama-cpp-python, 0 means no limit but the context.
    most = None
    if sent.max_tokens:
        most = sent.max_tokens * sent.choices

    read = exchange.counts

    return Bounds(most, sent.sent_bytes, read.received_bytes, read.merged)


def _image_tokens(
    prompt: Prompt | None, prefix: int | None, prompt_tokens: int | None, target: Target
) -> int | None:
    """Prompt tokens - text tokens - chat template tokens: all images together. None if any is
    unknown."""
    if prompt is None or not prompt.images or prompt_tokens is None:
        return None

    of_images = prompt_tokens
    for of_text in (prefix, prompt.prompt_tokens, target.template_tokens):
        if of_text is None:
            return None

        of_images -= of_text

    return max(0, of_images)


def _error_text(
    sentence: str, exchange: Exchange, sent: SentRequest, *, keeps_texts: bool
) -> str:
    """The failure's message, without the prompt if it came from the server."""
    if exchange.status is None:
        return sentence

    sentence = without_token(sentence, sent.token)
    if keeps_texts or not sent.text:
        return sentence

    return in_thread_if_long(_without_prompt, sent.text, sentence)


def _without_prompt(prompt: str, error: str) -> str:
    """The failure's message. Some servers quote the prompt in it, and prompts are stored only on
    request."""
    begin, _, _ = error.partition(":")
    if ";base64," in error:  # the server quotes an image
        return f"{begin}: … (the server quotes the request; --save-texts stores it)"

    quoting = _letters(error)
    letters = _letters(prompt)
    # Any quotation of 1.5 times this length contains one of these windows; a short prompt is one
    # window.
    size = min(QUOTE_CHARS, len(letters))
    if size < QUOTE_CHARS // 2:
        return error

    after_last = max(1, len(quoting) - size + 1)
    for at in range(0, after_last, max(1, size // 2)):
        window = quoting[at : at + size]
        if window in letters:
            return f"{begin}: … (the server quotes the prompt; --save-texts stores it)"

    return error


def _letters(text: str) -> str:
    """Letters and digits alone, with JSON's escapes undone: a quotation keeps these."""
    plain = (
        _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)
        .replace("\\n", " ")
        .replace("\\t", " ")
    )
    return _BETWEEN.sub("", plain)


def _answered_by(exchange: Exchange) -> str | None:
    """The server and proxies in the answer's header fields Server and Via."""
    names = (exchange.headers.get("server"), exchange.headers.get("via"))
    return ", via ".join(name for name in names if name) or None


def _clock_source(read: ReadCounts) -> str:
    if not read.user_space_reads:
        return "kernel"
    if read.user_space_reads == read.reads:
        return "user"
    return "mixed"
