"""Requests that are no later turns, but begin as a prompt that the server had before: a system
prompt or a document that many share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from llama_load.analysis.topics.reprocessing.reprocessed_turns import (
    SLACK_TOKENS,
    TEXT_RATIO,
    ReprocessedTurn,
    TurnTable,
    cacheable_tokens,
)
from llama_load.run_folder.observed.common_beginnings import LONG_CHARS
from llama_load.run_folder.observed.records import Records

# Members of a family that ended last; one of these mostly has as much in common.
MOST_LOOKED_AT = 100


@dataclass(frozen=True, slots=True)
class _Beginning:
    """A request whose first `chars` characters the row `earlier` had, too."""

    row: int
    earlier: int
    chars: float


@dataclass(slots=True)
class _Family:
    """Requests that begin alike.

    `rows`: of its members in the order of their ends, with these and the characters that each has
    in common with another one; `density`: tokens per character, by the members of which about as
    much was cached as their texts have in common, None if there are none."""

    beginnings: list[_Beginning] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    ended_ns: list[int] = field(default_factory=list)
    chars: list[float] = field(default_factory=list)
    density: float | None = None


def shared_beginnings(records: Records, table: TurnTable) -> Iterator[ReprocessedTurn]:
    """Those that were measured and whose cached tokens are known. `table`: of these records.

    Cacheable is what a prompt has in common with one that had been answered when it was sent. Its
    tokens are counted by those that the server had cached of such beginnings, else by its share of
    the prompt's characters; a loss below a quarter of them is not told from that error.
    """
    found = _beginnings(records)
    if not found:
        return
    chars = records.numbers("prompt_chars")
    for family in _families(found):
        _measure(family, table, chars)
        for beginning in family.beginnings:
            row = beginning.row
            known = (table.prompt[row], table.cached[row])
            if table.warmup[row] or not table.is_ok[row] or np.isnan(known).any():
                continue
            density = table.prompt[row] / chars[row]
            if family.density is not None:
                density = family.density
            tokens = round(beginning.chars * density)
            block = table.blocks(row).block
            could = cacheable_tokens(tokens, int(table.prompt[row]), block)
            lost = could - int(table.cached[row])
            if lost <= max(SLACK_TOKENS, block, TEXT_RATIO * could):
                lost = 0
            before = _row_before(family, beginning, table)
            yield table.explained(row, before, None, could, lost)


def _beginnings(records: Records) -> list[_Beginning]:
    """In the order of their starts."""
    has_one = records.has("earlier_request")
    if not has_one.any():
        return []
    earlier = records.strings("earlier_request")
    rows_of = {name: row for row, name in enumerate(records.strings("request_id"))}
    chars = records.numbers("common_chars")
    has_one &= chars >= LONG_CHARS
    order = np.argsort(records.instants("started_mono_ns"), kind="stable")
    found = []
    for row in order[has_one[order]].tolist():
        at = rows_of.get(earlier[row])
        if at is not None:
            found.append(_Beginning(row, at, float(chars[row])))
    return found


def _families(found: list[_Beginning]) -> list[_Family]:
    """Those that begin as another of the same family, directly or by others."""
    families: dict[int, _Family] = {}
    for beginning in found:
        family = families.get(beginning.earlier)
        if family is None:
            family = _Family()
            families[beginning.earlier] = family
        family.beginnings.append(beginning)
        families[beginning.row] = family
    return list({id(family): family for family in families.values()}.values())


def _measure(family: _Family, table: TurnTable, chars: np.ndarray) -> None:
    """Fill in what follows from its beginnings."""
    densities = []
    members = []
    for beginning in family.beginnings:
        row = beginning.row
        members.append((int(table.ended_ns[row]), row, beginning.chars))
        expected = beginning.chars * table.prompt[row] / chars[row]
        if abs(table.cached[row] - expected) <= TEXT_RATIO * expected:
            densities.append(float(table.cached[row] / beginning.chars))
    members.sort()
    for ended_ns, row, common in members:
        family.ended_ns.append(ended_ns)
        family.rows.append(row)
        family.chars.append(common)
    if densities:
        family.density = float(np.median(densities))


def _row_before(family: _Family, beginning: _Beginning, table: TurnTable) -> int:
    """The last of the family that had ended when this one was sent and has as much in common."""
    started_ns = table.started_ns[beginning.row]
    known = np.searchsorted(family.ended_ns, started_ns, side="right")
    first = max(0, known - MOST_LOOKED_AT)
    for place in reversed(range(first, known)):
        if family.chars[place] >= beginning.chars:
            return family.rows[place]
    return beginning.earlier
