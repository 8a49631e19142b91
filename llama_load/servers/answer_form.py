"""What an answer is forced to be, by a JSON schema or a grammar, and how servers want to get it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from llama_load.ground.errors import UsageError
from llama_load.servers.json_fields import fields

if TYPE_CHECKING:
    from llama_load.servers.target import Target

JSON_SCHEMA = "json_schema"
GRAMMAR = "grammar"
FREE = "free"

# What forces an answer into a form: fields of a body, types of its `response_format`, and fields of
# vLLM's `structured_outputs`.
_FORMS = {
    **dict.fromkeys(("json_schema", "json_object", "json", "guided_json"), JSON_SCHEMA),
    **dict.fromkeys(("grammar", "regex", "ebnf", "choice", "structural_tag"), GRAMMAR),
    **dict.fromkeys(("guided_grammar", "guided_regex", "guided_choice"), GRAMMAR),
}


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """A JSON schema (as JSON text) or a grammar for a share of the requests.

    `share`: 1 is all; the other requests get free text.
    """

    kind: str
    text: str
    share: float = 1.0

    def holds_for(self, index: int) -> bool:
        """Whether the request with this index has it.

        Evenly spread: with a share of 0.5 every second request.
        """
        return int((index + 1) * self.share) > int(index * self.share)

    @property
    def schema(self) -> str | None:
        """The JSON schema, if it is one."""
        return self.text if self.kind == JSON_SCHEMA else None


def form_of(body: Mapping[str, Any]) -> str | None:
    """The form that a body forces its answer into, under any API's names; None: free text."""
    asked = [name for name, value in body.items() if value is not None]
    asked += fields(body.get("structured_outputs"))
    of_responses = fields(body.get("text")).get("format")
    for asked_format in (body.get("response_format"), of_responses):
        kind = fields(asked_format).get("type")
        asked.append(str(kind))

    for name in asked:
        if name in _FORMS:
            return _FORMS[name]
    return None


def form_fields(form: AnswerForm, api: str, target: Target) -> dict[str, Any]:
    """The fields of a body. UsageError: this API or this server has none."""
    if form.kind == JSON_SCHEMA:
        own = target.kind.schema_fields(api, msgspec.json.decode(form.text))
    else:
        own = target.kind.grammar_fields(api, form.text, target.facts.build)
    if own is None:
        flag = f"--{form.kind.replace('_', '-')}"
        raise UsageError(
            f"{flag} is not supported for {target.backend} with --endpoint {api}: see "
            "docs/workloads.md"
        )
    return own
