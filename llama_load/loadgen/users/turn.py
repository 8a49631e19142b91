"""A turn of a conversation on its way: what is asked, what was built of it, and how its request
ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby, takewhile
from typing import Any

import gevent
from gevent import GreenletExit

from llama_load.ground.errors import UsageError
from llama_load.ground.failure_kind import FailureKind
from llama_load.loadgen.dispatch.leases import Lease
from llama_load.loadgen.users.answer_check import rejected
from llama_load.loadgen.users.answer_work import fault_of
from llama_load.loadgen.users.compared_prompts import ComparedPrompt, compared
from llama_load.loadgen.users.length_field import is_refused, tell, with_other_field
from llama_load.loadgen.users.measure import SentRequest, make_record
from llama_load.loadgen.users.retry import Tries
from llama_load.loadgen.users.session import OpenRecord, Prefix, Session, Ticket
from llama_load.loadgen.wire.request import Request
from llama_load.run_folder.observed.record import OK, RequestRecord
from llama_load.servers.answer import AnswerReader
from llama_load.servers.apis import Api
from llama_load.servers.apis.prompt_content import Messages
from llama_load.servers.body import BodyOptions
from llama_load.servers.prompt import Message, Prompt


@dataclass(slots=True, eq=False)
class ActiveConversation:
    """A user's current conversation, often of one turn: its last turn's ticket, its prefix, its
    model and adapter, its history, the number of its first request, when its last answer ended,
    the token of the server's session, and the text of its last prompt.

    `renamed` are the ids of the model's own tool calls, by those of the recorded calls whose
    results follow."""

    ticket: Ticket
    session: Session
    prefix: Prefix
    model: str | None
    history: tuple[Message, ...]
    start: int
    adapter: str | None = None
    ended_ns: int | None = None
    token: str | None = None
    sent_text: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)

    def broken_off(self, _: object) -> None:
        """The user stopped in the middle: other users may send the rest."""
        if self.ticket.following:
            self.session.abandon(self.ticket)

    def compared(self, text: str) -> ComparedPrompt:
        """This prompt beside the one before. The next one is compared with this."""
        earlier = self.sent_text
        self.sent_text = text
        return compared(earlier, text)

    @property
    def prompt(self) -> Prompt | None:
        """The workload's prompt of the present turn."""
        return self.ticket.lease.prompt

    def take_next(self) -> None:
        """Wait as long as the record did, and go on with the next turn. Its tool results are those
        of the model's own calls."""
        following = self.ticket.following[0].prompt
        if following is not None and following.delay_s:
            gevent.sleep(following.delay_s)
        ticket = self.session.follow(self.ticket)
        prompt = ticket.lease.prompt
        if prompt is not None and prompt.resets:
            self.history = prompt.history
        elif prompt is not None and self.renamed:
            results = []
            for message in prompt.messages:
                call_id = self._renamed(message.call_id)
                results.append(replace(message, call_id=call_id))

            prompt = replace(prompt, messages=tuple(results))
            lease = replace(ticket.lease, prompt=prompt)
            ticket = replace(ticket, lease=lease)

        self.ticket = ticket

    def _renamed(self, call_id: str | None) -> str | None:
        return self.renamed.get(call_id or "", call_id)

    def goes_on(self, answer: Message | None) -> None:
        """Add this turn to the history, with this answer (None: the data set's).

        The recorded results of tool calls follow, so the answer needs as many calls as the recorded
        one: with fewer it gets the recorded ones, further ones are left out."""
        prompt = self.prompt
        if prompt is None:
            return

        recorded = prompt.recorded
        kept = recorded
        if answer is not None:
            kept = answer

        calls = recorded.calls
        if len(kept.calls) >= len(recorded.calls):
            calls = kept.calls[: len(recorded.calls)]

        kept = replace(kept, calls=calls)
        if not (kept.text or kept.calls):
            kept = recorded

        self.renamed = {}
        for old, new in zip(recorded.calls, kept.calls, strict=True):
            self.renamed[old.id] = new.id

        self.history += (*prompt.added, kept)


def run_agents(
    conversation: ActiveConversation, exchange: Callable[[ActiveConversation], Any]
) -> None:
    """Send the turns of the sub-agents that come before the conversation's next own turn, and wait
    for the last one.

    Every sub-agent has a history of its own, and its turns follow each other. If the user is
    stopped, all of them are.
    """
    leases = list(takewhile(_is_of_agent, conversation.ticket.following))
    if not leases:
        return
    ticket = conversation.ticket
    conversation.ticket = replace(ticket, following=ticket.following[len(leases) :])
    agents = [
        _agent_conversation(conversation, list(own))
        for _, own in groupby(leases, key=_name_of_lease)
    ]
    greenlets = [gevent.spawn(_send_all, agent, exchange) for agent in agents]
    try:
        gevent.joinall(greenlets, raise_error=True)
    finally:
        gevent.killall(greenlets)
        for agent in agents:
            agent.broken_off(None)


def _is_of_agent(lease: Lease) -> bool:
    return lease.prompt is not None and lease.prompt.agent is not None


def _name_of_lease(lease: Lease) -> str | None:
    if lease.prompt is None:
        return None
    return lease.prompt.agent


def _agent_conversation(
    parent: ActiveConversation, leases: Sequence[Lease]
) -> ActiveConversation:
    """A sub-agent before its first turn."""
    ticket = replace(parent.ticket, following=tuple(leases))
    history: tuple[Message, ...] = ()
    prompt = leases[0].prompt
    if prompt is not None:
        history = prompt.history

    return replace(parent, ticket=ticket, history=history, renamed={}, sent_text="")


def _send_all(
    agent: ActiveConversation, exchange: Callable[[ActiveConversation], Any]
) -> None:
    while agent.ticket.following:
        agent.take_next()
        exchange(agent)


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a task: the conversation that it belongs to, its prompt (a workload's, or a
    text or messages of the locustfile), its API, the options of its body with its length, its name
    in statistics and further fields of its body."""

    conversation: ActiveConversation
    prompt: str | Messages | Prompt
    api: Api
    options: BodyOptions
    name: str | None
    fields: Mapping[str, object]

    @property
    def planned(self) -> Prompt | None:
        """The prompt, unless it is a plain text or messages."""
        if isinstance(self.prompt, Prompt):
            return self.prompt
        return None

    @property
    def begins(self) -> bool:
        """Whether it is the first turn of its conversation, or belongs to none."""
        return self.planned is None or self.planned.turn in (None, 1)


class Sending:
    """The sending of one turn. Its record and the reader of its answer are there once the block of
    `sending` has ended.

    `is_answered`: nothing went wrong on the user's side, so that the task gets the answer and may
    reject it.
    """

    open_record: OpenRecord
    reader: AnswerReader
    is_answered = False

    def __init__(self, conversation: ActiveConversation) -> None:
        self._conversation = conversation
        self._facts: SentRequest | None = None
        self._tries: Tries | None = None

    def send(
        self,
        facts: SentRequest,
        request: Request,
        new_reader: Callable[[], AnswerReader],
    ) -> None:
        """Send the request and wait for its answer. May raise UsageError: this API's answers cannot
        be read so."""
        target = self._conversation.ticket.target
        url = target.address.url
        self._facts = facts
        session = self._conversation.session
        if url in session.other_length_field:
            request = with_other_field(request) or request
        self._tries = Tries(session, target.address, request, new_reader)
        session.under_way.add(self)
        self._tries.run()
        if not is_refused(self._tries.exchange):
            return

        other = with_other_field(request)
        if other is not None:
            if url not in session.other_length_field:
                tell(url)
            session.other_length_field.add(url)
            self._tries = Tries(session, target.address, other, new_reader)
            self._tries.run()

    @property
    def lease(self) -> Lease:
        """See `AnswerUnderWay.lease`."""
        return self._conversation.ticket.lease

    @property
    def started_ns(self) -> int:
        """See `AnswerUnderWay.started_ns`."""
        if self._tries is None or self._tries.exchange is None:
            return 0
        return self._tries.exchange.stamps.started_ns

    @property
    def token_ns(self) -> Sequence[int]:
        """See `AnswerUnderWay.token_ns`."""
        if self._tries is None:
            return ()
        return self._tries.reader.token_ns

    def fail(self, error: BaseException) -> None:
        """The user stopped waiting, for example by a gevent.Timeout of the locustfile."""
        if self._tries is not None and self._tries.exchange is not None:
            self._tries.exchange.fail(
                FailureKind.CLIENT_TIMEOUT,
                f"the locustfile stopped waiting: {type(error).__name__}",
            )

    def end(self) -> None:
        """Pass on the record of what was sent; if nothing was, return the ticket."""
        session = self._conversation.session
        session.under_way.discard(self)
        ticket = self._conversation.ticket
        tries = self._tries
        if tries is None or self._facts is None or tries.exchange is None:
            session.give_back(ticket)
            return

        exchange = tries.exchange
        exchange.cancel()
        self.reader = tries.reader
        self.reader.settle(exchange)
        record = make_record(
            session.settings,
            ticket,
            self._facts,
            exchange,
            self.reader,
            tries=tries.count,
        )
        record = _as_expected(record, self._facts.prompt, self.reader)
        self._conversation.ended_ns = record.ended_mono_ns
        self._conversation.token = (
            self._conversation.token
            or session.settings.session_headers.token_in(exchange.headers)
        )
        session.done(ticket, record)
        self.open_record = OpenRecord(session, record)
        if not self.is_answered:
            self.open_record.publish()


def _as_expected(
    record: RequestRecord, prompt: Prompt | None, reader: AnswerReader
) -> RequestRecord:
    """The record, as a failure if the answer is not what the data set expects."""
    if prompt is None or prompt.expect is None or record.status != OK:
        return record
    text = reader.choices[0].text
    fault = fault_of(partial(prompt.expect.fault, text))
    if fault is None:
        return record

    return rejected(record, fault)


@contextmanager
def sending(conversation: ActiveConversation) -> Iterator[Sending]:
    """The sending of this conversation's present turn. No ticket is lost, also if the user is
    killed or the body cannot be encoded; what cannot be sent (UsageError) ends the run."""
    this = Sending(conversation)
    try:
        yield this
    except UsageError as error:
        conversation.session.abort(str(error))
    except GreenletExit:
        raise
    except BaseException as error:
        this.fail(error)
        conversation.goes_on(None)
        raise
    else:
        this.is_answered = True
    finally:
        this.end()
