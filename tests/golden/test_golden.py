"""What reports say of recorded, played, simulated and made runs stays as it was, to the last digit
that they print. `make golden` shows what a change has changed, and keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from llama_load.analysis.statistics.statistics import Distribution, Values, describe
from tests.golden.kept import read_golden
from tests.golden.runs import RUNS
from tests.golden.texts import digest, texts_of

# Of the played ones `make test` has every third: each takes 0.2 s of CPU time.
EVERY = 3


def _marks(name: str) -> list[pytest.MarkDecorator]:
    kind, _, seed = name.partition(": ")
    if kind == "played" and int(seed) % EVERY:
        return [pytest.mark.heavy, pytest.mark.real]
    return []


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=_marks(name)) for name in read_golden()]
)
def test_the_outputs_of_a_run_are_as_they_were(name: str) -> None:
    """Catches whatever moves a figure, a word or a table that no test of its own asserts."""
    kept = read_golden()[name]
    texts = texts_of(RUNS[name]())
    other = [output for output in texts if digest(texts[output]) != kept.get(output)]
    assert other == [], f"{name} has changed: `make golden` shows what, and keeps it"


def test_a_change_in_the_last_place_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Means that are larger by a ten-millionth."""

    def larger(values: Values, percentiles: Sequence[float]) -> Distribution:
        exact = describe(values, percentiles)
        return replace(exact, mean=exact.mean and exact.mean * (1 + 1e-7))

    monkeypatch.setattr("llama_load.analysis.figures.summary.describe", larger)
    name = "API: chat"
    after = texts_of(RUNS[name]())
    assert digest(after["summary.json"]) != read_golden()[name]["summary.json"]
