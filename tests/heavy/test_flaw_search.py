"""The search for wrong verdicts: no more clean plans are doubted, and no fewer flaws named, than
recorded."""

from __future__ import annotations

import pytest

from tests.search.draw import drawn
from tests.search.outcome import judged
from tests.search.tally import Tally, read_tally, wilson
from tests.searching import SECONDS, SEED, seeds

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.search,
    pytest.mark.timeout(SECONDS + 300),
    pytest.mark.filterwarnings("ignore"),
]
# Other seeds than those of the record, and others each day.
FIRST_SEED = 899_000 + 1_000 * SEED


def test_the_verdict_is_as_good_as_recorded():
    """The record's 95 % interval and this one's overlap, or this one is better. Catches a change of
    a check that names fewer flaws or doubts more clean plans, each by a little."""
    tally = Tally()
    recorded = read_tally()
    for seed in seeds(FIRST_SEED):
        tally.add(judged(drawn(seed)))

    assert wilson(*tally.named)[1] >= wilson(*recorded.named)[0], tally.kinds
    assert wilson(*tally.doubted)[0] <= wilson(*recorded.doubted)[1], tally.kinds
