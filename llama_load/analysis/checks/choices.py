"""Checks of models and sessions: did each request get the model that it asked for, and each later
turn its session?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from llama_load.analysis.figures.check import Check, information, limited
from llama_load.analysis.figures.evidence import Evidence
from llama_load.ground.units import quantity
from llama_load.run_folder.observed.record import NEW_SESSION, NO_SESSION, OTHER_SESSION


def _is_of_another(model: str, answer: str, answers: Mapping[str, set[str]]) -> bool:
    """Whether a host named this answer, or it is the name, of another requested model."""
    for other, named in answers.items():
        if other != model and (answer == other or answer in named):
            return True
    return False


def mixed_up_models(evidence: Evidence) -> Iterator[Check]:
    """Requests whose answer names the model of another request, in a run with several models: the
    name that the other asked for, or the name in its answers. Evidence: `model` of the requests and
    of their streamed answers. Counts: no error.

    LoRA adapters of llama-server are in no answer.
    """
    name = "mixed_up_models"
    ok = evidence.records.ok()
    if len(evidence.records.values_of("adapter")) > 1:
        yield limited(
            name,
            None,
            "answers do not name their LoRA adapter: that each request got its own is not known",
        )
    hosts, asked, named = (
        ok.strings(column) for column in ("host", "model", "answered_model")
    )
    if len(set(asked) - {None}) < 2:
        return
    answers: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    known = [
        (host, model, answer.partition(" (")[0])
        for host, model, answer in zip(hosts, asked, named, strict=True)
        if model is not None and answer is not None
    ]
    if not known:
        yield limited(
            name,
            None,
            "the answers do not name the model that generated them: which one it was is not known",
        )
        return
    for host, model, answer in known:
        answers[host][model].add(answer)
    wrong = [
        (model, answer)
        for host, model, answer in known
        if _is_of_another(model, answer, answers[host])
    ]
    text = f"{len(known) - len(wrong)} of {quantity(len(known), 'answer')} name a model that only their requests asked for"
    if wrong:
        text += f": {wrong[0][0]} was asked for, and {wrong[0][1]} answered"
    yield limited(name, len(wrong) / len(known), text)


def sessions(evidence: Evidence) -> Iterator[Check]:
    """Later turns without a session's token, because the server had not handed out one (or one that
    cannot be sent back); and later turns for which it began another session. Counts: no error."""
    later = evidence.records.where(evidence.records.numbers("turn") > 1)
    states = [state for state in later.strings("session") if state is not None]
    if not states:
        if evidence.records.has("session").any():
            yield information(
                "missing_sessions",
                None,
                "no conversation has a later turn that could send its session back",
            )
        return
    missing = sum(state in (NEW_SESSION, NO_SESSION) for state in states)
    text = f"{len(states) - missing} of {quantity(len(states), 'later turn')} were sent with the session of their conversation"
    yield limited("missing_sessions", missing / len(states), text)
    if others := states.count(OTHER_SESSION):
        text = f"the server began another session in {others} of {quantity(len(states), 'later turn')}"
        yield information("other_sessions", others, text)
