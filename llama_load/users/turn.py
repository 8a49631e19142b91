"""A turn of a conversation on its way: what is asked, what was built of it, and how its request ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from gevent import GreenletExit

from llama_load.errors import UsageError
from llama_load.observed.record import OK, RequestRecord
from llama_load.targets.answer import AnswerReader
from llama_load.targets.apis import Api
from llama_load.targets.apis.prompt_content import Messages
from llama_load.targets.body import BodyOptions
from llama_load.users.answer_check import rejected
from llama_load.users.measure import SentRequest, make_record
from llama_load.users.retry import Tries
from llama_load.users.session import OpenRecord, Prefix, Session, Ticket
from llama_load.wire.request import Request
from llama_load.workloads.prompt import Message, Prompt


@dataclass(slots=True, eq=False)
class ActiveConversation:
    """A user's current conversation, often of one turn: its last turn's ticket, its prefix, its model, and its history."""

    ticket: Ticket
    session: Session
    prefix: Prefix
    model: str | None
    history: tuple[Message, ...]

    def broken_off(self, _: object) -> None:
        """The user stopped in the middle: other users may send the rest."""
        if self.ticket.following:
            self.session.abandon(self.ticket)

    def goes_on(self, answer: str | None) -> None:
        """Add this turn to the history, with this answer (None: the data set's)."""
        prompt = self.ticket.lease.prompt
        if prompt is not None:
            text = prompt.answer or "" if answer is None else answer
            self.history += (Message("user", prompt.text), Message("assistant", text))


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a task: its API, its prompt (a workload's, or a text or messages of the locustfile), the options of its body
    with its length, the conversation that it belongs to, its name in Locust's statistics and further fields of its body."""

    api: Api
    prompt: str | Messages | Prompt
    options: BodyOptions
    conversation: ActiveConversation
    name: str | None
    fields: Mapping[str, object]

    @property
    def planned(self) -> Prompt | None:
        """The prompt, unless it is a plain text or messages."""
        return self.prompt if isinstance(self.prompt, Prompt) else None


@dataclass(frozen=True, slots=True)
class BuiltRequest:
    """The request of a turn, the facts for its record, and what makes readers of its answer."""

    facts: SentRequest
    request: Request
    new_reader: Callable[[], AnswerReader]


class Sending:
    """The sending of one turn. Its record and the reader of its answer are there once the block of `sending` has ended.

    `is_answered`: nothing went wrong on the user's side, so that the task gets the answer and may reject it.
    """

    open_record: OpenRecord
    reader: AnswerReader
    is_answered = False

    def __init__(self, conversation: ActiveConversation) -> None:
        self._conversation = conversation
        self._facts: SentRequest | None = None
        self._tries: Tries | None = None

    def send(self, built: BuiltRequest) -> None:
        """Send the request and wait for its answer. May raise UsageError: this API's answers cannot be read so."""
        target = self._conversation.ticket.target
        self._facts = built.facts
        self._tries = Tries(self._conversation.session, target.address, built.request, built.new_reader)
        self._tries.run()

    def fail(self, error: BaseException) -> None:
        """The user stopped waiting, for example by a gevent.Timeout of the locustfile."""
        if self._tries is not None and self._tries.exchange is not None:
            self._tries.exchange.fail("client_timeout", f"the locustfile stopped waiting: {type(error).__name__}")

    def end(self) -> None:
        """Pass on the record of what was sent; if nothing was, return the ticket."""
        session, ticket = self._conversation.session, self._conversation.ticket
        tries = self._tries
        if tries is None or self._facts is None or (exchange := tries.exchange) is None:
            session.give_back(ticket)
            return
        exchange.cancel()
        self.reader = tries.reader
        self.reader.settle(exchange)
        record = make_record(session.settings, ticket, self._facts, exchange, self.reader, tries=tries.count)
        record = _as_expected(record, self._facts.prompt, self.reader)
        session.done(ticket, record)
        self.open_record = OpenRecord(session, record)
        if not self.is_answered:
            self.open_record.publish()


def _as_expected(record: RequestRecord, prompt: Prompt | None, reader: AnswerReader) -> RequestRecord:
    """The record, as a failure if the answer is not what the data set expects."""
    if prompt is None or prompt.expect is None or record.status != OK:
        return record
    fault = prompt.expect.fault(reader.choices[0].text)
    return record if fault is None else rejected(record, fault)


@contextmanager
def sending(conversation: ActiveConversation) -> Iterator[Sending]:
    """The sending of this conversation's present turn. No ticket is lost, also if the user is killed or the body cannot be encoded;
    what cannot be sent (UsageError) ends the run."""
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
