"""The Locust user that talks to LLM servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, ClassVar, cast

import gevent
import msgspec
from gevent.local import local
from locust import HttpUser
from locust.clients import HttpSession
from locust.exception import StopTest

from llama_load.errors import UsageError
from llama_load.observed.record import OK, RequestRecord
from llama_load.targets.answer import AnswerReader
from llama_load.targets.body import (
    CHAT,
    COMPLETION,
    COMPLETIONS,
    EMBEDDINGS,
    INFILL,
    MESSAGES,
    PATHS,
    RERANK,
    RESPONSES,
    asked_choices,
    asked_tokens,
    is_text,
    request_body,
)
from llama_load.targets.other_streams import MessagesReader, NativeReader, ResponsesReader
from llama_load.targets.unstreamed import JsonAnswer
from llama_load.units import NS_PER_S
from llama_load.users.content import Messages, as_text, content_of, images_of, in_thread_if_long, text_digest, with_images
from llama_load.users.measure import SentRequest, new_request_id
from llama_load.users.request_headers import Headers, filled, has_fields
from llama_load.users.session import Session, Ticket
from llama_load.users.sub_agents import run_agents
from llama_load.users.turn import ActiveConversation, BuiltRequest, Turn, sending
from llama_load.wire.address import split_hosts
from llama_load.wire.request import Request
from llama_load.workloads.prompt import Image, Message, Prompt, ToolCall, Workload

# In a closed loop, the delay from the start of a failed request to the next one; it doubles with each consecutive failure.
# Otherwise a server that refuses at once would receive, and the disk store, thousands of requests per second.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 1.0

CONFIG_EVERY_S = 0.02
# A token's event takes 300 bytes, 4000 with its 20 most likely tokens; refusals, comments and usage are extra.
MOST_BYTES_A_TOKEN, MOST_BYTES_BESIDE = 4 * 1024, 64 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a task's request: the answer's text and reasoning, as far as the server sends them (both empty after a
    failure; with `n` above 1, the first choice's), the full record, and its tool calls."""

    text: str
    record: RequestRecord
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether this was a valid, complete answer."""
        return self.record.status == OK


def pause_s(failures: int) -> float:
    """Delay from a failed request's start to the next request, after this many failures in a row: 0.1, 0.2, 0.4, 0.8, 1.0, 1.0 …"""
    return float(min(FIRST_PAUSE_S * 2 ** min(failures - 1, 10), LONGEST_PAUSE_S))


def _start_conversation(session: Session, ticket: Ticket, history: tuple[Message, ...]) -> ActiveConversation:
    index = ticket.lease.index
    return ActiveConversation(ticket, session, session.prefix(ticket), ticket.target.model_for(index), history, index)


_STREAM_READERS: Mapping[str, type[AnswerReader]] = {
    MESSAGES: MessagesReader,
    RESPONSES: ResponsesReader,
    COMPLETION: NativeReader,
    INFILL: NativeReader,
}


def _reader(endpoint: str, inputs: int | None, *, streams: bool) -> AnswerReader:
    """The reader of this API's answers; `inputs` is the number of texts to embed or rank. May raise UsageError."""
    if streams and inputs is None:
        return _STREAM_READERS.get(endpoint, AnswerReader)()
    if endpoint in _STREAM_READERS:
        raise UsageError(f"--endpoint {endpoint} is supported with streams only: leave out --no-stream")
    return JsonAnswer(inputs)


class LlamaUser(HttpUser):
    """Base class of every LLM user. Subclass it, write a `@task` that calls `self.chat(…)`, `self.document(…)`, `self.vision(…)`,
    `self.complete(…)`, `self.embed(…)` or `self.rerank(…)`.

    `workload` names the requests in reports and in Locust's statistics, and provides prompts when a task gives none: a class
    from `llama_load.workloads`, or None for tasks with their own prompts. All of Locust's HttpUser still works, including
    `self.client` for ordinary HTTP calls.

    `body` has fields for the body of every request of this class, such as `body = {"priority": 1}`; a workload may have the
    attribute too. They override --extra-body; keywords of a call override both.
    """

    abstract = True
    workload: ClassVar[Workload | None] = None
    body: ClassVar[Mapping[str, Any]] = {}
    _numbers: ClassVar[Iterator[int]] = count(1)

    def __init__(self, environment: Any) -> None:
        """Same as Locust's HttpUser, without creating its client: that costs 3 ms per user, and few tasks need it."""
        begin: Any = super(HttpUser, self).__init__
        begin(environment)
        self._client: HttpSession | None = None
        self._local = local()
        self._number = next(self._numbers)
        self._failures = 0  # in a row

    @property
    def client(self) -> HttpSession:
        """Locust's client for ordinary HTTP calls, created on first use. With several URLs in --host it uses the first."""
        if self._client is None:
            self._client = self._new_client()
        return self._client

    @client.setter
    def client(self, client: HttpSession) -> None:
        self._client = client

    def _new_client(self) -> HttpSession:
        hosts = split_hosts(self.host or "")
        if not hosts:
            raise StopTest("give the server with --host, or as host in the class")
        session = HttpSession(hosts[0], request_event=self.environment.events.request, user=self, pool_manager=self.pool_manager)
        session.trust_env = False
        return session

    @property
    def _session(self) -> Session:
        while self.environment.llama_load is None:  # a late worker has users before it has the run's configuration
            gevent.sleep(CONFIG_EVERY_S)
        return cast(Session, self.environment.llama_load)

    def chat(
        self, prompt: str | Messages | None = None, *, max_tokens: int | None = None, name: str | None = None, **body: Any
    ) -> Answer:
        """Send one chat request and wait for its answer.

        `prompt` is a text or a list of messages; None takes the workload's next prompt, or the next turn of this user's
        conversation (an explicit prompt ends the conversation). Further keywords go into the request body. Server failures never
        raise: check `Answer.ok`. With `--endpoint completions` a text goes to /v1/completions instead.
        """
        return self._ask(prompt, None, max_tokens, name, body)

    def document(
        self, text: str | None = None, question: str = "Summarise this.", *, max_tokens: int | None = None, **body: Any
    ) -> Answer:
        """Send a question about a document: its text, a blank line, the question; None takes both from the workload."""
        return self._ask(None if text is None else f"{text}\n\n{question}", None, max_tokens, None, body)

    def vision(
        self, prompt: str | None = None, images: Sequence[Image] = (), *, max_tokens: int | None = None, **body: Any
    ) -> Answer:
        """Send a question about images (`llama_load.workloads.images.image_of` makes one from the bytes of a file); None takes
        prompt and images from the workload."""
        return self._ask(None if prompt is None else Prompt(prompt, images=tuple(images)), CHAT, max_tokens, None, body)

    def complete(self, prompt: str | None = None, *, max_tokens: int | None = None, name: str | None = None, **body: Any) -> Answer:
        """Send one request to /v1/completions; otherwise like `chat`."""
        return self._ask(prompt, COMPLETIONS, max_tokens, name, body)

    def embed(self, inputs: str | Sequence[str] | None = None, *, name: str | None = None, **body: Any) -> Answer:
        """Send one request with one text or several to /v1/embeddings; None takes the next batch. `Answer.text` is empty:
        vectors are counted, not kept."""
        texts = (inputs,) if isinstance(inputs, str) else inputs
        return self._ask(None if texts is None else Prompt("", inputs=tuple(texts)), EMBEDDINGS, None, name, body)

    def rerank(self, query: str | None = None, documents: Sequence[str] = (), *, name: str | None = None, **body: Any) -> Answer:
        """Send one request to /v1/rerank: how relevant is each document to the query? Without a query both come from the workload.
        `Answer.text` is empty: the scores are counted, not kept."""
        return self._ask(None if query is None else Prompt(query, inputs=tuple(documents)), RERANK, None, name, body)

    def _ask(
        self,
        prompt: str | Messages | Prompt | None,
        endpoint: str | None,
        max_tokens: int | None,
        name: str | None,
        body: dict[str, Any],
    ) -> Answer:
        session = self._session
        given = session.settings.body_options
        options = replace(given, endpoint=endpoint or given.endpoint, max_tokens=given.max_tokens or max_tokens)
        if prompt is None and self.workload is None:
            session.abort(f"{type(self).__name__} has no workload to take a prompt from: write self.chat('some text')")
        if options.endpoint in (COMPLETIONS, COMPLETION, INFILL) and not isinstance(prompt, str | None):
            session.abort(f"a list of messages can only be sent to the chat endpoint, not to {PATHS[options.endpoint]}")
        make = partial(Turn, options=options, name=name, fields=body)
        conversation = self._next_turn(session, make) if prompt is None else self._own(session, prompt)
        return self._exchange(conversation, make(conversation, prompt if prompt is not None else conversation.prompt or ""))

    def _exchange(self, conversation: ActiveConversation, turn: Turn) -> Answer:
        """Send this conversation's present turn, and add it to the history."""
        with sending(conversation) as sent:
            sent.send(self._build_request(turn))
        self._pause_after(sent.record)
        first = sent.reader.choices[0]
        answer = Answer("", sent.record)
        if answer.ok:
            answer = Answer(first.text, sent.record, first.reasoning, first.calls)
        generated = answer.ok and conversation.session.settings.dialogue.generated
        conversation.goes_on(Message("assistant", answer.text, calls=answer.calls) if generated else None)
        return answer

    def _pause_after(self, record: RequestRecord) -> None:
        """See `FIRST_PAUSE_S`. A failure that took longer needs no pause; an open loop keeps its schedule."""
        self._failures = 0 if record.status == OK else self._failures + 1
        if self._failures and record.scheduled_mono_ns is None:
            took_s = (record.ended_mono_ns - record.started_mono_ns) / NS_PER_S
            gevent.sleep(max(0.0, pause_s(self._failures) - took_s))

    def _build_request(self, turn: Turn) -> BuiltRequest:
        """The request of a turn. May raise UsageError."""
        planned, conversation, options = turn.planned, turn.conversation, turn.options
        try:
            content = content_of(turn.prompt, options.endpoint, conversation.history, conversation.prefix.text)
        except UsageError as error:
            raise UsageError(f"{self.workload_name()} {error}") from None
        inputs = {EMBEDDINGS: len(content), RERANK: len(content) - 1}.get(options.endpoint)  # the query is not an input
        max_tokens = options.max_tokens or (planned.max_tokens if planned is not None else None)
        target = conversation.ticket.target
        of_prompt = {} if planned is None else planned.fields
        payload = request_body(content, target, options, max_tokens, conversation.model)
        payload |= {**self._body_of(planned), **of_prompt, **turn.fields}
        workload = (planned.task if planned is not None else None) or self.workload_name()
        try:
            text, encoded = as_text(content), msgspec.json.encode(payload)
        except (TypeError, ValueError) as error:
            raise UsageError(f"the body of a {workload} request cannot be sent as JSON: {error}") from None
        facts = SentRequest(
            request_id=new_request_id(),
            user=type(self).__name__,
            workload=workload,
            name=str(turn.name or workload),
            endpoint=options.endpoint,
            model=conversation.model,
            text=text,
            digest=in_thread_if_long(text_digest, text),
            inputs=inputs,
            prefix_tokens=conversation.prefix.tokens,
            max_tokens=asked_tokens(payload),
            prompt=planned,
            choices=asked_choices(payload),
            # Each document to be ranked is computed with the whole query before it.
            sent_bytes=len(encoded) * (inputs or 1 if options.endpoint == RERANK else 1) if is_text(payload) else None,
            start=conversation.start,
            after_ns=conversation.ended_ns,
        )
        headers = target.headers if not has_fields(target.headers) else self._filled(target.headers, conversation, planned)
        headers = (*headers, ("Content-Type", "application/json"), ("X-Request-Id", facts.request_id))
        images = () if planned is None else images_of((*conversation.history, *planned.added))
        pieces = with_images(encoded, images) if images else encoded
        new_reader = partial(_reader, options.endpoint, inputs, streams=bool(payload.get("stream")))
        request = Request("POST", PATHS[options.endpoint], headers, pieces, target.reuse, _most_bytes(facts))
        return BuiltRequest(facts, request, new_reader)

    def _body_of(self, planned: Prompt | None) -> dict[str, Any]:
        """The body fields of the workload (in a mixture: of the task) and of this class."""
        workload = self.workload
        if planned is not None and planned.task is not None:
            workload = getattr(workload, "tasks", {}).get(planned.task, workload)
        return {**getattr(workload, "body", {}), **self.body}

    def _filled(self, headers: Headers, conversation: ActiveConversation, planned: Prompt | None) -> Headers:
        lease, worker = conversation.ticket.lease, conversation.session.settings.worker
        prompt = f"{'w' if lease.warmup else ''}{lease.index}"
        known = None if planned is None else planned.conversation
        user = f"{worker}-{self._number}"
        return filled(headers, {"conversation": known or prompt, "prompt": prompt, "user": user, "worker": worker})

    # ------------------------------------------------------------------ conversations

    def _own(self, session: Session, prompt: str | Messages | Prompt) -> ActiveConversation:
        """Permission for a request with the locustfile's own prompt. It ends a conversation, whose further turns go to other users.
        (Waiting for a permission while holding others could deadlock.)"""
        conversation: ActiveConversation | None = getattr(self._local, "conversation", None)
        if conversation is not None:
            self._local.conversation = None
            conversation.broken_off(None)
            gevent.getcurrent().unlink(conversation.broken_off)
        ticket = session.take(self.workload_name())
        if ticket.following:
            session.abandon(ticket)
        ticket = replace(ticket, lease=replace(ticket.lease, prompt=None), following=())
        return _start_conversation(session, ticket, prompt.history if isinstance(prompt, Prompt) else ())

    def _next_turn(self, session: Session, make: Callable[[ActiveConversation, Prompt | str], Turn]) -> ActiveConversation:
        """Permission for the next turn of this greenlet's conversation, after its sub-agents and its wait, else for the next
        request of any kind. `make` makes the turns of sub-agents."""
        conversation: ActiveConversation | None = getattr(self._local, "conversation", None)
        if conversation is not None:
            run_agents(conversation, lambda agent: self._exchange(agent, make(agent, agent.prompt or "")))
            if not conversation.ticket.following:
                self._local.conversation = None
                gevent.getcurrent().unlink(conversation.broken_off)
                conversation = None
        if conversation is not None:
            conversation.take_next()
        else:
            ticket = session.take(self.workload_name())
            prompt = ticket.lease.prompt
            conversation = _start_conversation(session, ticket, () if prompt is None else prompt.history)
            if not ticket.following:
                return conversation
            gevent.getcurrent().link(conversation.broken_off)
        self._local.conversation = conversation if conversation.ticket.following else None
        if not conversation.ticket.following:
            gevent.getcurrent().unlink(conversation.broken_off)
        return conversation

    @classmethod
    def workload_name(cls) -> str:
        """The name of this class's traffic in reports."""
        return cls.workload.name if cls.workload is not None else cls.__name__


def _most_bytes(sent: SentRequest) -> int | None:
    """Maximum bytes of the answer: 64 KiB plus 4 KiB per token, for embeddings 1 MiB plus 256 KiB per input (a number takes up
    to 24 bytes: 10,000 dimensions); None if the request limits neither."""
    if sent.endpoint == EMBEDDINGS and sent.inputs:
        return 2**20 + 2**18 * sent.inputs
    return MOST_BYTES_BESIDE + MOST_BYTES_A_TOKEN * sent.max_tokens * sent.choices if sent.max_tokens else None
