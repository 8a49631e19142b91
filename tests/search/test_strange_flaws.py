"""Flaws and oddities by people who do not know the checks: what is called a flaw moves a figure,
what is called clean moves none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.search.case import LLAMA_SERVER, OPENAI, VLLM, Case, Change
from tests.search.changes import (
    CHANGES,
    FLAWS,
    PLANTED_FLAWS,
    PLANTED_ODDITIES,
    STRANGE_FLAWS,
    STRANGE_ODDITIES,
    effects_of,
)
from tests.search.dialect import HEAD, LAST_CHUNK, chunk
from tests.search.draw import drawn
from tests.search.effect import Effect
from tests.search.loop import Loop
from tests.search.outcome import judged
from tests.search.strange_bytes import reframed

VARIED = Case(
    seed=1,
    requests=80,
    server=VLLM,
    prompt_law="lognormal",
    output_law="lognormal",
    output_tokens=30,
    goodput=True,
)


def _case(name: str) -> Case:
    """A case with this change alone, in its largest size."""
    kind = CHANGES[name]
    fitting = [
        case
        for server in (VLLM, OPENAI, LLAMA_SERVER)
        if kind.fits(case := replace(VARIED, server=server))
    ]
    case = fitting[0]
    change = Change(name, max(kind.sizes), max(kind.shares))
    return replace(kind.changed(case, change), changes=(change,))


@pytest.mark.heavy
@pytest.mark.parametrize("name", [*STRANGE_FLAWS, *PLANTED_FLAWS])
def test_a_strange_flaw_moves_a_figure(name):
    """By more than a hundredth. Catches a planted flaw that changes nothing, so that the search
    looks for nothing."""
    outcome = judged(_case(name), wrong=0.01)
    assert outcome.moved


@pytest.mark.heavy
@pytest.mark.parametrize("name", [*STRANGE_ODDITIES, *PLANTED_ODDITIES])
def test_a_strange_oddity_moves_no_figure(name):
    """To a hundredth, whatever the verdict says of it. Catches an oddity that is a flaw, so that
    the search blames verdicts for it."""
    outcome = judged(_case(name), wrong=0.01)
    assert outcome.moved == {}


READ_CHANGES = [name for name, kind in CHANGES.items() if kind.read is not Effect.read]


@pytest.mark.parametrize("other", READ_CHANGES)
def test_reads_are_cut_last(other):
    """Whatever order a seed draws: what was cut within an event cannot be changed any more."""
    first = Change("events in two reads")
    kind = CHANGES[other]
    second = Change(other, max(kind.sizes))
    plain = replace(kind.changed(VARIED, second), requests=4)
    reads = []
    for changes in ((first, second), (second, first)):
        case = replace(plain, changes=changes)
        played = Loop(case, effects_of(case, flaws=True)).play()
        reads.append([answer.reads for answer in played.answers])
    assert reads[0] == reads[1]


def test_a_third_of_all_flaws_is_strange():
    names = [change.name for seed in range(500) for change in drawn(seed).changes]
    flaws = [name for name in names if name in FLAWS and name not in PLANTED_FLAWS]
    strange = [name for name in flaws if name in STRANGE_FLAWS]
    # 4 standard errors of about 260 flaws
    assert len(strange) / len(flaws) == pytest.approx(1 / 3, abs=0.115)


def test_events_are_changed_within_their_chunks():
    """Two chunks in one read, then one that becomes empty with the end of the body."""
    reads = [
        (1, HEAD + chunk(b"one") + chunk(b"two")),
        (2, chunk(b"gone") + LAST_CHUNK),
    ]
    changed = reframed(
        reads, lambda payload: b"" if payload == b"gone" else payload.upper()
    )
    assert changed == [(1, HEAD + chunk(b"ONE") + chunk(b"TWO")), (2, LAST_CHUNK)]


def test_what_is_no_stream_is_left_as_it_is():
    reads = [(1, b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")]
    assert reframed(reads, bytes.upper) == reads
