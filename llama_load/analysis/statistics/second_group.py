"""Whether the answers of a run come from one source or from two, by their times at equal work.

TTFT and pace are divided by what waits for slots, prompts, load and their group (workload, model,
…) explain (`analysis.statistics.equal_work`); in what remains a second group is looked for
(`analysis.statistics.two_groups`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.statistics.equal_work import (
    Explained,
    Work,
    explained_ttft,
    pace_quotients,
)
from llama_load.analysis.statistics.trend import rank_sum_z
from llama_load.analysis.statistics.two_groups import (
    FEWEST,
    LEAST_RATIO,
    TwoGroups,
    two_groups,
)

Values = NDArray[np.float64]
Flags = NDArray[np.bool_]

# Requests of one kind (workload, model, …) have their own level from this number on; fewer are not
# judged.
LEAST_OF_A_KIND = 8
# Of the rank-sum test between the quotients of two groups of times.
LEAST_Z = 4.5
# Planted groups: this many times as fast, these shares, in this many draws, of at most so many
# values.
PLANTED_RATIO = 3.0
PLANTED_SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4)
DRAWS = 6
MOST_PLANTED = 3000


@dataclass(frozen=True, slots=True)
class Server:
    """The requests of one server: their work, in order of start, and the rows of the run that they
    are."""

    rows: NDArray[np.int64]
    work: Work


@dataclass(frozen=True, slots=True)
class Looked:
    """What was looked at: quotients of the judged requests, in order of start, and the groups that
    were found."""

    rows: NDArray[np.int64]
    quotients: Values
    groups: TwoGroups | None

    @property
    def is_enough(self) -> bool:
        """Whether there are enough requests to see anything."""
        return len(self.quotients) >= FEWEST

    def is_smaller(self) -> Flags:
        """One bool per judged request: whether it is in the smaller group."""
        assert self.groups is not None
        lower = self.groups.is_lower
        return lower if lower.mean() <= 0.5 else ~lower


def by_ttft(servers: Sequence[Server], kinds: NDArray[np.int64]) -> Looked:
    """By the times to the first token. `kinds`: one number per row of the run."""
    return _look(servers, kinds, [explained_ttft(server.work) for server in servers])


def by_pace(
    servers: Sequence[Server], kinds: NDArray[np.int64], paces_ms: Values
) -> Looked:
    """By the times per token after it."""
    explained = []
    for server in servers:
        own = paces_ms[server.rows]
        explained.append(Explained(own, pace_quotients(server.work, own)))
    looked = _look(servers, kinds, explained)
    return looked if looked.groups is not None else _of_two_models(looked, paces_ms)


def smallest_seen(looked: Looked) -> float | None:
    """The smallest share of answers three times as fast as the others that would be found in these
    requests, or None.

    Such answers are planted: a share of the quotients is divided by three, in six draws that must
    all be found.
    """
    quotients = looked.quotients[:: max(1, len(looked.quotients) // MOST_PLANTED)]
    draw = np.random.default_rng(len(quotients))
    for share in PLANTED_SHARES:
        if all(_is_found(quotients, share, draw) for _ in range(DRAWS)):
            return share
    return None


def _is_found(quotients: Values, share: float, draw: np.random.Generator) -> bool:
    count = max(1, round(share * len(quotients)))
    planted = quotients.copy()
    planted[draw.choice(len(planted), count, replace=False)] /= PLANTED_RATIO
    return two_groups(planted) is not None


def _look(
    servers: Sequence[Server], kinds: NDArray[np.int64], explained: Sequence[Explained]
) -> Looked:
    """All servers together, in order of start."""
    if not servers:
        return Looked(np.zeros(0, dtype=np.int64), np.zeros(0), None)
    rows = np.concatenate([server.rows for server in servers])
    took_ms = np.concatenate([each.took_ms for each in explained])
    started_ns = np.concatenate([server.work.started_ns for server in servers])
    values = _at_level_of_kind(
        np.concatenate([each.quotients for each in explained]), kinds[rows]
    )

    order = np.argsort(started_ns, kind="stable")
    order = order[values[order] > 0]
    quotients = values[order]
    return Looked(
        rows[order],
        quotients,
        two_groups(quotients) or _at_an_instant(took_ms[order], quotients),
    )


def _at_an_instant(took_ms: Values, quotients: Values) -> TwoGroups | None:
    """The two groups of the times themselves, if work does not explain them: a cache answers long
    and short prompts after the same time, so that its quotients are scattered."""
    groups = two_groups(took_ms)
    if groups is None:
        return None
    lower = quotients[groups.is_lower]
    upper = quotients[~groups.is_lower]
    ratio = float(np.median(upper) / np.median(lower))
    is_explained = ratio < LEAST_RATIO or abs(rank_sum_z(lower, upper)) < LEAST_Z
    return None if is_explained else replace(groups, ratio=ratio)


def _of_two_models(looked: Looked, paces_ms: Values) -> Looked:
    """With the two groups of the paces themselves, where what work explains is one group.

    A router that gives long prompts to a slower model looks like prompts that slow the model down;
    but these would do it evenly, as their lengths do. Such paces are compared as they are.
    """
    own_ms = paces_ms[looked.rows]
    groups = two_groups(own_ms)
    if groups is None or two_groups(own_ms / looked.quotients) is not None:
        return looked
    return Looked(looked.rows, own_ms / float(np.median(own_ms)), groups)


def _at_level_of_kind(values: Values, kinds: NDArray[np.int64]) -> Values:
    """Each value / the median of its kind; NaN where the kind has too few."""
    level = np.full(len(values), np.nan)
    for kind in np.unique(kinds):
        own = (kinds == kind) & (values > 0)
        if int(own.sum()) >= LEAST_OF_A_KIND:
            level[own] = float(np.median(values[own]))
    return np.asarray(values / level)
