"""What an answer is forced to be, by a JSON schema or a grammar, and how servers want to get it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from llama_load.errors import UsageError

if TYPE_CHECKING:
    from llama_load.targets.target import Target

JSON_SCHEMA, GRAMMAR, FREE = "json_schema", "grammar", "free"
# Since this version vLLM takes `structured_outputs`; before, each kind had a field of its own.
_STRUCTURED_OUTPUTS_SINCE = (0, 11)
_CHAT, _TEXT, _RESPONSES = "chat", "completions", "responses"
_NATIVE = ("completion", "infill")


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """A JSON schema (as JSON text) or a grammar for a share of the requests (1: all); the others are free text."""

    kind: str
    text: str
    share: float = 1.0

    def holds_for(self, index: int) -> bool:
        """Whether the request with this index has it. Evenly spread: with a share of 0.5 every second request."""
        return int((index + 1) * self.share) > int(index * self.share)

    @property
    def schema(self) -> str | None:
        """The JSON schema, if it is one."""
        return self.text if self.kind == JSON_SCHEMA else None


def form_fields(form: AnswerForm, api: str, target: Target) -> dict[str, Any]:
    """The fields of a body. UsageError: this API or this server has none."""
    fields = _schema_fields(form, api, target.backend) if form.kind == JSON_SCHEMA else _grammar_fields(form, api, target)
    if fields is None:
        flag = f"--{form.kind.replace('_', '-')}"
        raise UsageError(f"{flag} is not supported for {target.backend} with --endpoint {api}: see docs/workloads.md")
    return fields


def _schema_fields(form: AnswerForm, api: str, backend: str) -> dict[str, Any] | None:
    schema = msgspec.json.decode(form.text)
    named = {"name": "answer", "schema": schema, "strict": True}
    if api == _RESPONSES:
        return {"text": {"format": {"type": JSON_SCHEMA} | named}}
    if backend == "llama-cpp-python":
        return {"response_format": {"type": "json_object", "schema": schema}} if api == _CHAT else None
    if backend == "llama-server" and api in (_TEXT, *_NATIVE):
        return {JSON_SCHEMA: schema}
    if api == _CHAT or (backend == "vllm" and api == _TEXT):
        return {"response_format": {"type": JSON_SCHEMA, JSON_SCHEMA: named}}
    return None


def _grammar_fields(form: AnswerForm, api: str, target: Target) -> dict[str, Any] | None:
    is_text = api in (_CHAT, _TEXT)
    if target.backend == "vllm" and is_text:
        is_old = (_version(target.facts.build) or _STRUCTURED_OUTPUTS_SINCE) < _STRUCTURED_OUTPUTS_SINCE
        return {"guided_grammar": form.text} if is_old else {"structured_outputs": {GRAMMAR: form.text}}
    takes_grammars = (target.backend == "llama-server" and api in (*_NATIVE, _CHAT, _TEXT)) or (
        target.backend == "llama-cpp-python" and is_text
    )
    return {GRAMMAR: form.text} if takes_grammars else None


def _version(build: str | None) -> tuple[int, int] | None:
    """Major and minor number; None for versions between releases."""
    numbers = re.match(r"v?(\d{1,4})\.(\d{1,4})", build or "")
    return (int(numbers[1]), int(numbers[2])) if numbers else None
