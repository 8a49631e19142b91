"""Token counting by the server where it has an endpoint for it, else an estimate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from llama_load.outside.plain_http import LateError, NoAnswerError, Session
from llama_load.servers.counting import EstimatedCounter
from llama_load.servers.json_fields import fields
from llama_load.servers.kinds import FORMS
from llama_load.servers.kinds.server_kind import Form

AT_A_TIME = 4
TIMEOUT_S = 30
MOST = 2**53


class NotCounted(Exception):
    """The server gave no token count; the message is the reason."""


# Has at least one token, and at most its bytes plus a few special tokens.
SAMPLE = "question"
_SAMPLE_MOST = 16


class Tokenization:
    """Token counts from one server, with one form of endpoint. Raises NotCounted."""

    def __init__(
        self, session: Session, url: str, form: Form, model: str | None
    ) -> None:
        self._session = session
        self._url = url
        self.model = model
        self.form = form

    def count(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text, special tokens included."""
        if len(texts) == 1:
            return [self._ask(self.form.body(self.model, texts[0]))]
        bodies = [self.form.body(self.model, text) for text in texts]
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            return list(pool.map(self._ask, bodies))

    def count_messages(self, messages: Sequence[Mapping[str, Any]]) -> int:
        """The number of tokens of a conversation with its chat template.

        Only where the form counts messages.
        """
        return self._ask({"model": self.model or "", "messages": list(messages)})

    def templated(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """A conversation as the chat template renders it, where the form has a path for that.

        Raises NoAnswerError, and others where the answer has no prompt.
        """
        body = {"model": self.model or "", "messages": list(messages)}
        url = self._url + self.form.template_path
        answer = self._session.post(url, body, within_s=TIMEOUT_S)
        prompt: str = answer.json()["prompt"]
        return prompt

    def _ask(self, body: dict[str, Any]) -> int:
        path = self.form.path
        try:
            response = self._session.post(self._url + path, body, within_s=TIMEOUT_S)
            answer = response.json() if response.ok else None
        except LateError:
            raise NotCounted(f"{path} did not answer within {TIMEOUT_S} s") from None
        except NoAnswerError:
            raise NotCounted(f"{path} did not answer") from None
        except ValueError:
            raise NotCounted(f"{path} did not answer in JSON") from None
        if not response.ok:
            raise NotCounted(f"{path} answered HTTP {response.status}")

        count = fields(answer).get("count")
        tokens = answer if self.form.is_list else fields(answer).get("tokens")
        if count is None and isinstance(tokens, list):
            return len(tokens)
        if (
            not isinstance(count, int)
            or isinstance(count, bool)
            or not 0 <= count <= MOST
        ):
            raise NotCounted(f"{path} returned no count")
        return count


def tokenization(session: Session, url: str, model: str | None) -> Tokenization | None:
    """The form that this server supports, found by counting a word; None if it supports none."""
    for form in FORMS:
        asked = Tokenization(session, url, form, model)
        try:
            (found,) = asked.count([SAMPLE])
        except NotCounted:
            continue
        if 1 <= found <= _SAMPLE_MOST:
            return asked
    return None


class ServerCounter:
    """Counts with the server, and by estimate once that fails: `why` is then the reason.

    Earlier counts stay valid; `source` is "estimate" if any count was estimated.
    """

    def __init__(self, asked: Tokenization | None) -> None:
        self._asked = asked
        self.why = (
            None if asked is not None else "the server has no token counting endpoint"
        )

    @property
    def source(self) -> str:
        """ "server", or "estimate" if any text had to be estimated."""
        return "server" if self.why is None else EstimatedCounter.source

    def count(self, texts: Sequence[str]) -> list[int]:
        """See `TokenCounter.count`."""
        if self._asked is not None and self.why is None:
            try:
                return self._asked.count(texts)
            except NotCounted as error:
                self.why = str(error)
        return EstimatedCounter().count(texts)
