"""What the answer to a prompt must be like: a text in it, a regular expression, one of several
answers, a JSON schema.

Regular expressions are RE2's, which take linear time: no answer of a server can make one run for
hours. Faults do not quote the answer, which is stored only on request.
"""

from __future__ import annotations

from dataclasses import dataclass

from llama_load.ground.errors import UsageError
from llama_load.outside.budget import Budget
from llama_load.servers.json_schema import (
    MOST_STEPS,
    check_pattern,
    check_schema,
    matches,
    pattern_steps,
    schema_fault,
)

# Checking this much takes some ms; longer answers are not what anybody expects of a schema.
MOST_ANSWER_CHARS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """The conditions of a valid answer; all that are given must hold. `json_schema` is the schema
    as JSON text."""

    contains: str | None = None
    regex: str | None = None
    one_of: tuple[str, ...] = ()
    json_schema: str | None = None

    def check(self, budget: Budget | None = None) -> None:
        """UsageError, a sentence without a subject: no answer can be checked with this. The
        `budget` is for a file of them."""
        if not (self.contains or self.regex or self.one_of or self.json_schema):
            raise UsageError(
                "expects nothing: give contains, regex, one_of or json_schema, with a text, list "
                "or schema"
            )
        if self.regex:
            check_pattern(self.regex)
        if self.json_schema:
            check_schema(self.json_schema, budget)

    def fault(self, answer: str, budget: Budget | None = None) -> str | None:
        """Why this is not a valid answer; None if it is. Blanks around the answer do not count,
        capitals do. Without a `budget` the limit is `MOST_STEPS`. Raises TooMuchWork."""
        budget = budget or Budget(MOST_STEPS)
        text = answer.strip()
        if len(text) > MOST_ANSWER_CHARS:
            return f"the answer has more than {MOST_ANSWER_CHARS} characters and was not checked"
        if self.contains and self.contains not in text:
            return "the answer does not contain the expected text"
        if self.one_of and text not in self.one_of:
            return "the answer is none of the expected ones"
        if self.regex:
            budget.spend(pattern_steps(self.regex, text))
            if not matches(self.regex, text):
                return "the answer does not match the expected regular expression"
        return (
            schema_fault(self.json_schema, text, budget) if self.json_schema else None
        )


def load_checks() -> None:
    """Import what checks answers, which takes a fifth of a second: before there are any."""
    matches("", "")
    schema_fault("{}", "{}")
