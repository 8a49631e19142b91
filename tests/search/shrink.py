"""Makes a counterexample smaller while it stays one: fewer changes, a plainer workload, fewer
requests, smaller sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields as dataclass_fields
from dataclasses import replace

from tests.search.case import OPENAI, TOKENIZER, Case
from tests.search.changes import CHANGES
from tests.search.outcome import Outcome, judged

LEAST_REQUESTS = 20
# The most cases that are tried for one counterexample.
MOST_TRIES = 80
PLAIN: dict[str, object] = {
    "stages": (),
    "turns": 1,
    "workloads": 1,
    "goodput": False,
    "batching": 0.0,
    "server": OPENAI,
    "counted_by": TOKENIZER,
    "template_known": True,
    "prompt_law": "fixed",
    "output_law": "fixed",
    "jitter": 0.1,
    "users": 4,
    "slots": 4,
    "prompt_tokens": 200,
    "output_tokens": 30,
    "prefill_ms": 40.0,
    "prefill_token_ms": 0.3,
    "gap_ms": 20.0,
}


def shrunk(outcome: Outcome, most_tries: int = MOST_TRIES) -> Outcome:
    """The smallest case found that is a counterexample of the same kind."""
    tries = 0
    is_smaller = True
    while is_smaller and tries < most_tries:
        is_smaller = False
        for case in filter(_fits, _smaller(outcome.case)):
            tries += 1
            if tries > most_tries:
                break
            tried = judged(case)
            if tried.kind == outcome.kind:
                outcome = tried
                is_smaller = True
                break
    return outcome


def _smaller(case: Case) -> Iterator[Case]:
    for place in range(len(case.changes)):
        yield _without(case, place)
    wanted = {
        name
        for change in case.changes
        for name, value in _wanted(case, change.name).items()
        if value
    }
    for name, value in PLAIN.items():
        if name not in wanted and getattr(case, name) != value:
            yield replace(case, **{name: value})  # type: ignore[arg-type]
    if case.requests // 2 >= LEAST_REQUESTS:
        yield replace(case, requests=case.requests // 2)


def _fits(case: Case) -> bool:
    """Whether each change can be made to the case without it."""
    return all(
        CHANGES[change.name].fits(_without(case, place))
        for place, change in enumerate(case.changes)
    )


def _without(case: Case, place: int) -> Case:
    """The case without one of its changes, and without what that wanted of the workload."""
    plain = Case(seed=case.seed)
    kind = CHANGES[case.changes[place].name]
    changed = kind.changed(plain, case.changes[place])
    fields = {each.name: getattr(plain, each.name) for each in dataclass_fields(Case)}
    own = {
        name: value for name, value in fields.items() if getattr(changed, name) != value
    }
    return replace(
        case, **own, changes=(*case.changes[:place], *case.changes[place + 1 :])
    )


def _wanted(case: Case, name: str) -> dict[str, bool]:
    """Which fields of the case a change sets."""
    change = next(each for each in case.changes if each.name == name)
    plain = replace(case, **PLAIN)  # type: ignore[arg-type]
    changed = CHANGES[name].changed(plain, change)
    return {field: getattr(changed, field) != value for field, value in PLAIN.items()}
