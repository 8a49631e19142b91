"""The Locust user that talks to LLM servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import gevent
import msgspec
from gevent import GreenletExit
from locust import HttpUser
from locust.clients import HttpSession
from locust.exception import StopTest

from llama_load.record import OK, RequestRecord
from llama_load.targets.answer import AnswerReader
from llama_load.targets.body import CHAT, COMPLETIONS, PATHS, asked_tokens, stream_body
from llama_load.users.measure import Asked, make_record, new_request_id
from llama_load.users.session import Session
from llama_load.wire.address import split_hosts
from llama_load.wire.exchange import Exchange
from llama_load.wire.hub import Hub
from llama_load.wire.request import Request
from llama_load.workloads.prompt import Workload

# A user whose connection was refused does not try again in the same millisecond: a server that is gone would fill the disk with
# thousands of refusals a second.
AFTER_REFUSAL_S = 0.1

ORDERS_EVERY_S = 0.02

Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a task gets back: the text (empty after a failure) and the whole record."""

    text: str
    record: RequestRecord

    @property
    def ok(self) -> bool:
        """Whether this was a valid, complete answer."""
        return self.record.status == OK


class LlamaUser(HttpUser):
    """Base class of every LLM user. Subclass it, write a `@task` that calls `self.chat(…)` or `self.complete(…)`.

    `workload` names the requests in reports and in Locust's statistics, and says where prompts come from when a task
    gives none: a class from `llama_load.workloads`, or None for tasks that bring their own. Everything of Locust's
    HttpUser works as ever, `self.client` for ordinary HTTP calls included.
    """

    abstract = True
    workload: ClassVar[Workload | None] = None

    def __init__(self, environment: Any) -> None:
        """Everything that Locust's HttpUser does but make its client, which costs 3 ms a user and which few tasks need."""
        begin: Any = super(HttpUser, self).__init__
        begin(environment)
        self._client: HttpSession | None = None

    @property
    def client(self) -> HttpSession:
        """Locust's client for ordinary HTTP calls, made when it is first used. With several URLs in --host: to the first."""
        if self._client is None:
            self._client = self._new_client()
        return self._client

    @client.setter
    def client(self, client: HttpSession) -> None:
        self._client = client

    def _new_client(self) -> HttpSession:
        hosts = split_hosts(self.host or "")
        if not hosts:
            raise StopTest("name the server with --host, or in the class as host")
        session = HttpSession(hosts[0], request_event=self.environment.events.request, user=self, pool_manager=self.pool_manager)
        session.trust_env = False
        return session

    @property
    def _session(self) -> Session:
        while self.environment.llama_load is None:  # a worker that came late has users before it has orders
            gevent.sleep(ORDERS_EVERY_S)
        return cast(Session, self.environment.llama_load)

    def chat(
        self, prompt: str | Messages | None = None, *, max_tokens: int | None = None, name: str | None = None, **body: Any
    ) -> Answer:
        """Send one chat request and wait for its answer.

        `prompt` is a text, or a list of messages; None takes the next prompt of the workload. Further keywords go into
        the request body. Never raises for what the server does: look at `Answer.ok`. With `--endpoint completions` a
        text goes to /v1/completions instead.
        """
        return self._ask(prompt, None, max_tokens, name, body)

    def complete(self, prompt: str | None = None, *, max_tokens: int | None = None, name: str | None = None, **body: Any) -> Answer:
        """Send one request to /v1/completions; otherwise like `chat`."""
        return self._ask(prompt, COMPLETIONS, max_tokens, name, body)

    def _ask(
        self,
        prompt: str | Messages | None,
        endpoint: str | None,
        max_tokens: int | None,
        name: str | None,
        body: dict[str, Any],
    ) -> Answer:
        session, options = self._session, self._session.body_options
        if endpoint is not None:
            options = replace(options, endpoint=endpoint)
        if prompt is None and self.workload is None:
            session.abort(f"{type(self).__name__} has no workload to take a prompt from: write self.chat('some text')")
        if options.endpoint != CHAT and not isinstance(prompt, str | None):
            session.abort("a list of messages can only be sent to the chat endpoint, not to /v1/completions")
        workload = self.workload_name()
        ticket = session.take(workload)
        exchange: Exchange | None = None
        try:
            content: str | Messages = prompt if prompt is not None else ticket.prompt.text if ticket.prompt else ""
            wanted = options.max_tokens or max_tokens or (ticket.prompt.max_tokens if prompt is None and ticket.prompt else None)
            content = _prefixed(content, session.prefix(ticket))
            text = content if isinstance(content, str) else msgspec.json.encode(content).decode()
            payload = stream_body(content, ticket.target, options, wanted) | body
            request_id = new_request_id()
            asked = Asked(
                request_id=request_id,
                user=type(self).__name__,
                workload=workload,
                name=str(name or workload),
                endpoint=options.endpoint,
                text=text,
                max_tokens=asked_tokens(payload),
            )
            headers = (*ticket.target.headers, ("Content-Type", "application/json"), ("X-Request-Id", request_id))
            try:
                encoded = msgspec.json.encode(payload)
            except (TypeError, ValueError) as error:
                session.abort(f"the body of a {workload} request cannot be sent as JSON: {error}")
            request = Request("POST", PATHS[options.endpoint], headers, encoded, reuse=ticket.target.reuse)
            reader = AnswerReader()
            exchange = Hub.of_this_process().begin(ticket.target.address, request, reader, session.timeouts)
            exchange.wait()
        except GreenletExit:
            raise
        except BaseException as error:  # a gevent.Timeout of the locustfile, say: this user has given up waiting
            if exchange is not None:
                exchange.fail("client_timeout", f"the locustfile gave up waiting: {type(error).__name__}")
            raise
        finally:  # also when this user is killed, or the body cannot be encoded: no ticket is lost
            if exchange is None:
                session.give_back(ticket)
            else:
                exchange.cancel()
                record = make_record(session, ticket, asked, exchange, reader)
                session.done(ticket, record)
        if record.status.startswith("connect_"):
            gevent.sleep(AFTER_REFUSAL_S)
        return Answer(reader.text if record.status == OK else "", record)

    @classmethod
    def workload_name(cls) -> str:
        """What reports call the traffic of this class."""
        return cls.workload.name if cls.workload is not None else cls.__name__


def _prefixed(content: str | Messages, prefix: str) -> str | Messages:
    """The content with `prefix` before its first text."""
    if not prefix or not content:
        return content
    if isinstance(content, str):
        return prefix + content
    first = content[0]
    return [{**first, "content": prefix + first["content"]}, *content[1:]] if isinstance(first.get("content"), str) else content
