"""What OpenAI-compatible APIs answer to an empty body, so that nothing is generated: whether they
are there, and whether they refuse the key."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from llama_load.outside.plain_http import Answer, NoAnswerError, Session
from llama_load.servers.address import Address
from llama_load.servers.apis import APIS
from llama_load.servers.json_fields import fields
from llama_load.servers.server_errors import describe_error, page_status

# An API is there that takes no such body.
NO_REQUEST = (400, 415, 422)
_IS_THERE = (*NO_REQUEST, 401, 403)
# With these it is there if its words are about a request: servers say so of a path that they do not
# have, too.
_MAY_BE_THERE = (404, 500)
_OF_A_REQUEST = re.compile(r"\bmodels?\b|messages|prompt|deployment", re.IGNORECASE)
# Words of a path that is not there, which say nothing else.
_BARE = re.compile(r"(404 )?(page |resource )?not found\W*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class EmptyBodyAnswer:
    """The HTTP status, whether an API is there, and the server's own words ("": it has none)."""

    status: int = 0
    is_there: bool = False
    words: str = ""

    @property
    def refuses_the_key(self) -> bool:
        """Whether a key is missing, or another is needed."""
        return self.status in (401, 403)

    @property
    def needs_a_model(self) -> bool:
        """Whether it is there, and has nothing for a request without a model."""
        return self.is_there and self.status != 200


def answer_to_nothing(
    session: Session, address: Address, within_s: float
) -> EmptyBodyAnswer:
    """The first answer of an API at this address; where there is none, that of the server to the
    first of them."""
    first = EmptyBodyAnswer()
    for api in APIS.values():
        try:
            answer = session.post(address.url_of(api.path), {}, within_s=within_s)
        except NoAnswerError:
            continue
        value = json_or_none(answer)
        status = page_status(answer.status, value)
        words = own_words(status, value)
        kind = answer.headers.get("content-type", "")
        is_answer = "event-stream" in kind or "choices" in fields(value)
        said = EmptyBodyAnswer(
            status,
            status in _IS_THERE
            or (status in _MAY_BE_THERE and bool(_OF_A_REQUEST.search(words)))
            or (status == 200 and is_answer),
            words,
        )
        if said.is_there:
            return said
        first = first if first.status else said
    return first


def own_words(status: int, value: object) -> str:
    """What a server says of a request that it refuses, beyond that nothing is there."""
    if status < 400 or not isinstance(value, dict) or not value:
        return ""
    words = describe_error(msgspec.json.encode(value))
    return "" if _BARE.fullmatch(words) else words


def json_or_none(answer: Answer) -> Any:
    """The JSON value of an answer; None if it is none."""
    try:
        return answer.json()
    except ValueError:
        return None
