"""The Locust user that talks to LLM servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, ClassVar, Never, cast

import gevent
from gevent.local import local
from locust import HttpUser
from locust.clients import HttpSession
from locust.env import Environment
from locust.exception import StopTest

from llama_load.ground.errors import UsageError
from llama_load.ground.failure_kind import FailureKind
from llama_load.ground.units import NS_PER_S
from llama_load.loadgen.users.answer_check import Answer
from llama_load.loadgen.users.compared_prompts import ComparedPrompt, comparable_text
from llama_load.loadgen.users.long_texts import in_thread_if_long, text_digest
from llama_load.loadgen.users.measure import SentRequest, new_request_id
from llama_load.loadgen.users.request_headers import filled, has_fields
from llama_load.loadgen.users.sent_beginnings import WRITTEN_CHARS, Cache
from llama_load.loadgen.users.session import OpenRecord, Session, Ticket
from llama_load.loadgen.users.turn import ActiveConversation, Turn, run_agents, sending
from llama_load.loadgen.wire.request import Request
from llama_load.loadgen.workloads.prompt_plan import Workload
from llama_load.outside.bound_headers import Headers
from llama_load.run_folder.observed.common_beginnings import LONG_CHARS
from llama_load.run_folder.observed.record import ABORTED, OK, RequestRecord
from llama_load.servers.adapters import adapter_fields
from llama_load.servers.address import split_hosts
from llama_load.servers.answer import AnswerReader
from llama_load.servers.answer_form import FREE, form_of
from llama_load.servers.apis import APIS, CHAT, COMPLETIONS, EMBEDDINGS, RERANK, Api
from llama_load.servers.apis.prompt_content import (
    Fields,
    Messages,
    as_text,
    images_of,
    with_images,
)
from llama_load.servers.body import asked_choices, asked_tokens, longest_stop
from llama_load.servers.counting import tokenizer_at
from llama_load.servers.prompt import Image, Message, Prompt

# In a closed loop, the delay from the start of a failed request to the next one; it doubles with
# each consecutive failure. Otherwise a server that refuses at once would receive, and the disk
# store, thousands of requests per second.
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 1.0

CONFIG_EVERY_S = 0.02


def pause_s(failures: int) -> float:
    """Delay from a failed request's start to the next request, after this many failures in a row:
    0.1, 0.2, 0.4, 0.8, 1.0, 1.0 …"""
    return float(min(FIRST_PAUSE_S * 2 ** min(failures - 1, 10), LONGEST_PAUSE_S))


def _start_conversation(
    session: Session, ticket: Ticket, history: tuple[Message, ...]
) -> ActiveConversation:
    lease = ticket.lease
    models = session.settings.models
    adapters = session.settings.adapters
    model = models.of(lease.workload, lease.plan_index, warmup=lease.warmup)
    adapter = adapters.of(lease.workload, lease.plan_index, warmup=lease.warmup)
    prefix = session.prefix(ticket)
    prompt = lease.prompt
    start = lease.index
    # the rest of a conversation that another user began belongs to it
    if prompt is not None and prompt.turns is not None:
        start -= prompt.turns - 1 - prompt.more
    return ActiveConversation(
        ticket, session, prefix, model or ticket.target.model, history, start, adapter
    )


def _least_beginning(planned: Prompt | None) -> int:
    """How many characters prompts must have in common to be compared."""
    return WRITTEN_CHARS if planned is None else LONG_CHARS


def _cache_of(turn: Turn, model: str | None) -> Cache:
    """The prompt cache that a turn's prompt goes to."""
    conversation = turn.conversation
    url = conversation.ticket.target.address.url
    return url, turn.api.name, model, conversation.adapter


class LlamaUser(HttpUser):
    """Base class of every LLM user. Subclass it, write a `@task` that calls `self.chat(…)`,
    `self.document(…)`, `self.vision(…)`, `self.complete(…)`, `self.embed(…)` or `self.rerank(…)`.

    `workload` names the requests in reports and in Locust's statistics, and provides prompts when a
    task gives none: a class from `llama_load.loadgen.workloads`, or None for tasks with their own
    prompts. All of Locust's HttpUser still works, including `self.client` for ordinary HTTP calls.

    `body` has fields for the body of every request of this class, such as `body = {"priority": 1}`;
    a workload may have the attribute too. They override --extra-body; `extra` of a call overrides
    both. `cache_prompt = True` declares that prompts are meant to come from the server's cache, as
    --cache-prompt on does.
    """

    abstract = True
    workload: ClassVar[Workload | None] = None
    body: ClassVar[Fields] = {}
    cache_prompt: ClassVar[bool | None] = None
    _numbers: ClassVar[Iterator[int]] = count(1)

    def __init__(self, environment: Environment) -> None:
        """Same as Locust's HttpUser, without creating its client: that costs 3 ms per user, and few
        tasks need it."""
        begin: Any = super(HttpUser, self).__init__
        begin(environment)
        self._client: HttpSession | None = None
        self._local = local()
        self._number = next(self._numbers)
        self._failures = 0  # in a row

    @property
    def client(self) -> HttpSession:
        """Locust's client for ordinary HTTP calls, created on first use. With several URLs in
        --host it uses the first."""
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
        session = HttpSession(
            hosts[0],
            request_event=self.environment.events.request,
            user=self,
            pool_manager=self.pool_manager,
        )
        session.trust_env = False
        return session

    @property
    def _session(self) -> Session:
        # a late worker has users before it has the run's configuration
        while self.environment.llama_load is None:
            gevent.sleep(CONFIG_EVERY_S)
        return cast(Session, self.environment.llama_load)

    def chat(
        self,
        prompt: str | Messages | None = None,
        *,
        max_tokens: int | None = None,
        name: str | None = None,
        extra: Fields | None = None,
        catch_response: bool = False,
        **unknown: Never,
    ) -> Answer:
        """Send one chat request and wait for its answer.

        `prompt` is a text or a list of messages; None takes the workload's next prompt, or the next
        turn of this user's conversation (an explicit prompt ends the conversation). With
        `--endpoint completions` a text goes to /v1/completions instead. Server failures never
        raise: check `Answer.ok`.

        `max_tokens`: the longest answer, in tokens, unless --max-tokens is given. `name`: the
        request's name in Locust's statistics. `extra`: further fields of the body, such as
        `extra={"top_k": 5}`. `catch_response=True` is accepted as Locust's client has it: every
        answer can be the subject of a `with` statement and be rejected with `Answer.fail`.
        """
        return self._ask(
            "chat", prompt, None, max_tokens, name=name, extra=extra, unknown=unknown
        )

    def document(
        self,
        text: str | None = None,
        question: str = "Summarise this.",
        *,
        max_tokens: int | None = None,
        name: str | None = None,
        extra: Fields | None = None,
        catch_response: bool = False,
        **unknown: Never,
    ) -> Answer:
        """Send a question about a document: its text, a blank line, the question; None takes both
        from the workload."""
        prompt = None
        if text is not None:
            prompt = f"{text}\n\n{question}"

        return self._ask(
            "document",
            prompt,
            None,
            max_tokens,
            name=name,
            extra=extra,
            unknown=unknown,
        )

    def vision(
        self,
        prompt: str | None = None,
        images: Sequence[Image] = (),
        *,
        max_tokens: int | None = None,
        name: str | None = None,
        extra: Fields | None = None,
        catch_response: bool = False,
        **unknown: Never,
    ) -> Answer:
        """Send a question about images (`llama_load.loadgen.workloads.images.image_of` makes one
        from the bytes of a file); None takes prompt and images from the workload."""
        content = None
        if prompt is not None:
            content = Prompt(prompt, images=tuple(images))

        return self._ask(
            "vision", content, CHAT, max_tokens, name=name, extra=extra, unknown=unknown
        )

    def complete(
        self,
        prompt: str | None = None,
        *,
        max_tokens: int | None = None,
        name: str | None = None,
        extra: Fields | None = None,
        catch_response: bool = False,
        **unknown: Never,
    ) -> Answer:
        """Send one request to /v1/completions; otherwise like `chat`."""
        return self._ask(
            "complete",
            prompt,
            COMPLETIONS,
            max_tokens,
            name=name,
            extra=extra,
            unknown=unknown,
        )

    def embed(
        self,
        inputs: str | Sequence[str] | None = None,
        *,
        name: str | None = None,
        extra: Fields | None = None,
        catch_response: bool = False,
        **unknown: Never,
    ) -> Answer:
        """Send one request with one text or several to /v1/embeddings; None takes the next batch.
        `Answer.text` is empty: vectors are counted, not kept."""
        if isinstance(inputs, str):
            inputs = (inputs,)

        content = None
        if inputs is not None:
            content = Prompt("", inputs=tuple(inputs))

        return self._ask(
            "embed", content, EMBEDDINGS, None, name=name, extra=extra, unknown=unknown
        )

    def rerank(
        self,
        query: str | None = None,
        documents: Sequence[str] = (),
        *,
        name: str | None = None,
        extra: Fields | None = None,
        catch_response: bool = False,
        **unknown: Never,
    ) -> Answer:
        """Send one request to /v1/rerank: how relevant is each document to the query? Without a
        query both come from the workload. `Answer.text` is empty: the scores are counted, not
        kept."""
        content = None
        if query is not None:
            content = Prompt(query, inputs=tuple(documents))

        return self._ask(
            "rerank", content, RERANK, None, name=name, extra=extra, unknown=unknown
        )

    def _ask(
        self,
        method: str,
        prompt: str | Messages | Prompt | None,
        chosen_api: Api | None,
        max_tokens: int | None,
        *,
        name: str | None,
        extra: Fields | None,
        unknown: Mapping[str, object],
    ) -> Answer:
        session = self._session
        given = session.settings.body_options
        self._publish_last()
        if unknown:
            word = next(iter(unknown))
            session.abort(
                f"self.{method}() takes no {word!r}: a field of the body goes into "
                f"extra={{{word!r}: …}}"
            )
        options = replace(given, max_tokens=given.max_tokens or max_tokens)
        api = chosen_api or APIS[given.endpoint]
        if prompt is None and self.workload is None:
            session.abort(
                f"{type(self).__name__} has no workload to take a prompt from: write "
                "self.chat('some text')"
            )
        if not api.takes_messages and not isinstance(prompt, str | None):
            session.abort(
                f"a list of messages can only be sent to the chat endpoint, not to {api.path}"
            )
        make = partial(Turn, api=api, options=options, name=name, fields=extra or {})
        if prompt is None:
            conversation = self._next_turn(session, make)
            prompt = conversation.prompt or ""
        else:
            conversation = self._own(session, prompt)

        return self._exchange(make(conversation, prompt))

    def _exchange(self, turn: Turn) -> Answer:
        """Send a turn, and add it to its conversation's history."""
        conversation = turn.conversation
        with sending(conversation) as sent:
            facts, request, new_reader = self._build_request(turn)
            sent.send(facts, request, new_reader)
        opened = self._local.open_record = sent.open_record
        if opened.record.status == OK and turn.begins and turn.api.is_cached:
            beginnings = conversation.session.beginnings
            beginnings.add(
                _cache_of(turn, facts.model),
                facts.text,
                facts.request_id,
                _least_beginning(facts.prompt),
            )
        self._pause_after(opened.record)
        # One object: a record is published when its answer is dropped.
        if opened.record.status in (OK, FailureKind.WRONG_ANSWER):
            first = sent.reader.choices[0]
            answer = Answer(first.text, opened, first.reasoning, first.calls)
        else:
            answer = Answer("", opened)

        message = None
        if answer.ok and conversation.session.settings.generated_history:
            message = Message("assistant", answer.text, calls=answer.calls)

        conversation.goes_on(message)

        return answer

    def _publish_last(self) -> None:
        """The answer to this greenlet's last request can no longer be rejected."""
        last: OpenRecord | None = getattr(self._local, "open_record", None)
        if last is not None:
            last.publish()

    def _pause_after(self, record: RequestRecord) -> None:
        """See `FIRST_PAUSE_S`. A failure that took longer needs no pause; an open loop keeps its
        schedule."""
        if record.status in (OK, FailureKind.WRONG_ANSWER, ABORTED):
            self._failures = 0
        else:
            self._failures += 1

        if self._failures and record.scheduled_mono_ns is None:
            took_s = (record.ended_mono_ns - record.started_mono_ns) / NS_PER_S
            gevent.sleep(max(0.0, pause_s(self._failures) - took_s))

    def _build_request(
        self, turn: Turn
    ) -> tuple[SentRequest, Request, Callable[[], AnswerReader]]:
        """The facts for the record of a turn, its request, and what makes readers of its answer.
        May raise UsageError."""
        api = turn.api
        planned = turn.planned
        conversation = turn.conversation
        try:
            content = api.content(
                turn.prompt, conversation.history, conversation.prefix.text
            )
        except UsageError as error:
            raise UsageError(f"{self.workload_name()} {error}") from None

        results = api.results(content)
        workload = self.workload_name()
        max_tokens = turn.options.max_tokens or None
        images: Sequence[Image] = ()
        fields_of_prompt: Fields = {}
        if planned is not None:
            workload = planned.task or workload
            max_tokens = max_tokens or planned.max_tokens
            fields_of_prompt = planned.fields
            images = images_of((*conversation.history, *planned.added))

        lease = conversation.ticket.lease
        target = conversation.ticket.target
        options = turn.options
        form = options.form
        is_formed = form is not None and form.holds_for(lease.index)
        if not is_formed:
            options = replace(options, form=None)

        payload = api.build(content, target, options, max_tokens, conversation.model)
        payload |= self._body_of(planned)
        payload |= fields_of_prompt
        payload |= turn.fields
        prompt = payload.get("prompt")
        if options.token_ids_of is not None and isinstance(prompt, str):
            tokenizer = tokenizer_at(options.token_ids_of)
            payload["prompt"] = in_thread_if_long(tokenizer.ids, prompt)
        if conversation.adapter is not None:
            if "lora" in payload:
                raise UsageError(
                    "requests name adapters with --adapter and with 'lora' in their body; give "
                    "only one of them"
                )
            payload |= adapter_fields(target, api.name, conversation.adapter)

        try:
            text = as_text(content)
            content_type, encoded = api.encoded(payload)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"the body of a {workload} request cannot be sent as JSON: {error}"
            ) from None

        model = None
        if "model" in payload:
            model = str(payload["model"])

        answer_form = form_of(payload)
        if form is not None:
            answer_form = form.kind if is_formed else answer_form or FREE

        compared = ComparedPrompt()
        if planned is not None and planned.turn is not None and planned.turns != 1:
            compared = conversation.compared(comparable_text(api, content, text))
        if turn.begins and api.is_cached:
            beginnings = conversation.session.beginnings
            compared = beginnings.compared(
                _cache_of(turn, model), text, _least_beginning(planned)
            )

        facts = SentRequest(
            request_id=new_request_id(),
            user=type(self).__name__,
            workload=workload,
            name=str(turn.name or workload),
            endpoint=api.name,
            model=model,
            adapter=conversation.adapter,
            text=text,
            digest=in_thread_if_long(text_digest, text),
            inputs=results,
            prefix_tokens=conversation.prefix.tokens,
            max_tokens=asked_tokens(payload),
            prompt=planned,
            choices=asked_choices(payload),
            stop_bytes=longest_stop(payload),
            form=form,
            answer_form=answer_form,
            sent_bytes=api.prompt_bytes(payload, len(encoded), results),
            start=conversation.start,
            compared=compared,
            after_ns=conversation.ended_ns,
            token=conversation.token,
        )
        keys = target.headers
        if has_fields(keys.fields):
            keys = keys.only(self._filled(keys.fields, conversation, planned))
        headers: Headers = (
            ("Content-Type", content_type),
            ("X-Request-Id", facts.request_id),
        )
        settings = conversation.session.settings
        headers += settings.session_headers.to_send(conversation.token)

        pieces: bytes | tuple[bytes, ...] = encoded
        if images:
            pieces = with_images(encoded, images)

        most_tokens = None
        if facts.max_tokens:
            most_tokens = facts.max_tokens * facts.choices

        most_bytes = api.most_bytes(most_tokens, results)
        give_up = None
        if settings.hang_ups is not None and not lease.warmup:
            give_up = settings.hang_ups.of(lease.index)

        request = Request(
            "POST", api.path, headers, pieces, target.reuse, give_up, most_bytes, keys
        )
        new_reader = partial(api.reader, results, streams=bool(payload.get("stream")))

        return facts, request, new_reader

    def _body_of(self, planned: Prompt | None) -> dict[str, object]:
        """The body fields of the workload (in a mixture: of the task) and of this class."""
        workload = self.workload
        if planned is not None and planned.task is not None:
            workload = getattr(workload, "tasks", {}).get(planned.task, workload)
        return {**getattr(workload, "body", {}), **self.body}

    def _filled(
        self, headers: Headers, conversation: ActiveConversation, planned: Prompt | None
    ) -> Headers:
        lease = conversation.ticket.lease
        worker = conversation.session.settings.worker
        prompt = str(lease.index)
        if lease.warmup:
            prompt = f"w{lease.index}"

        name = prompt
        if planned is not None and planned.conversation:
            name = planned.conversation

        values = {
            "conversation": name,
            "prompt": prompt,
            "user": f"{worker}-{self._number}",
            "worker": worker,
        }

        return filled(headers, values)

    # ------------------------------------------------------------------ conversations

    def _own(
        self, session: Session, prompt: str | Messages | Prompt
    ) -> ActiveConversation:
        """Permission for a request with the locustfile's own prompt. It ends a conversation, whose
        further turns go to other users. (Waiting for a permission while holding others could
        deadlock.)"""
        conversation = self._leave()
        if conversation is not None:
            conversation.broken_off(None)

        ticket = session.take(self.workload_name())
        if ticket.following:
            session.abandon(ticket)

        lease = replace(ticket.lease, prompt=None)
        ticket = replace(ticket, lease=lease, following=())
        history: tuple[Message, ...] = ()
        if isinstance(prompt, Prompt):
            history = prompt.history

        return _start_conversation(session, ticket, history)

    def _next_turn(
        self, session: Session, make: Callable[[ActiveConversation, Prompt | str], Turn]
    ) -> ActiveConversation:
        """Permission for the next turn of this greenlet's conversation, after its sub-agents and
        its wait, else for the next request of any kind. `make` makes the turns of sub-agents."""
        conversation: ActiveConversation | None = getattr(
            self._local, "conversation", None
        )
        if conversation is not None:
            run_agents(
                conversation,
                lambda agent: self._exchange(make(agent, agent.prompt or "")),
            )
        if conversation is not None and conversation.ticket.following:
            conversation.take_next()
        else:
            self._leave()
            ticket = session.take(self.workload_name())
            prompt = ticket.lease.prompt
            history: tuple[Message, ...] = ()
            if prompt is not None:
                history = prompt.history

            conversation = _start_conversation(session, ticket, history)
            if ticket.following:
                gevent.getcurrent().link(conversation.broken_off)
                self._local.conversation = conversation
        if not conversation.ticket.following:
            self._leave()
        return conversation

    def _leave(self) -> ActiveConversation | None:
        """Forget this greenlet's conversation, and give it."""
        conversation: ActiveConversation | None = getattr(
            self._local, "conversation", None
        )
        if conversation is not None:
            self._local.conversation = None
            gevent.getcurrent().unlink(conversation.broken_off)
        return conversation

    @classmethod
    def workload_name(cls) -> str:
        """The name of this class's traffic in reports."""
        if cls.workload is None:
            return cls.__name__
        return cls.workload.name
