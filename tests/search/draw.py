"""Draws a case from a seed: a workload, a load, a server, and up to three changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tests.search.case import (
    ESTIMATE,
    LLAMA_SERVER,
    OPENAI,
    TOKENIZER,
    VLLM,
    Case,
    Change,
)
from tests.search.changes import (
    CHANGES,
    FAMILIAR_FLAWS,
    FAMILIAR_ODDITIES,
    PLANTED_FLAWS,
    PLANTED_ODDITIES,
    STRANGE_FLAWS,
    STRANGE_ODDITIES,
)
from tests.search.effect import Effect

# Shares of the cases: without a flaw; with one; the rest has two.
CLEAN_SHARE, ONE_SHARE = 0.5, 0.9
# Of the flaws, and of the oddities, those by people who do not know the checks.
STRANGE_SHARE = 1 / 3
# Of all of them, those that were planted by hand.
PLANTED_SHARE = 0.15
PARTS = ((0.0, 0.3), (0.5, 1.0), (0.7, 1.0), (0.35, 0.65))


@dataclass(frozen=True, slots=True)
class _Kinds:
    """Changes by who wrote them."""

    familiar: Mapping[str, type[Effect]]
    strange: Mapping[str, type[Effect]]
    planted: Mapping[str, type[Effect]]


FLAWS_OF = _Kinds(FAMILIAR_FLAWS, STRANGE_FLAWS, PLANTED_FLAWS)
ODDITIES_OF = _Kinds(FAMILIAR_ODDITIES, STRANGE_ODDITIES, PLANTED_ODDITIES)


def drawn(seed: int) -> Case:
    """The case of this seed."""
    rng = np.random.default_rng(seed)
    case = _load(seed, rng)
    which = rng.random()
    flaws = 0
    if which >= CLEAN_SHARE:
        flaws = 1 if which < ONE_SHARE else 2
    oddities = int(rng.integers(0, 4 - flaws))

    # numbers of their own: the other cases stay as they were
    count = flaws + oddities
    is_strange = np.random.default_rng((seed, 2)).random(count) < STRANGE_SHARE
    is_planted = np.random.default_rng((seed, 18)).random(count) < PLANTED_SHARE
    for place in range(count):
        kinds = ODDITIES_OF if place >= flaws else FLAWS_OF
        if is_planted[place]:
            case = _with(case, kinds.planted, rng)
        elif is_strange[place]:
            case = _with(case, kinds.strange, rng)
        else:
            case = _with(case, kinds.familiar, rng)
    return case


def _load(seed: int, rng: np.random.Generator) -> Case:
    slots = int(rng.choice([1, 4, 8]))
    per_slot = float(rng.choice([0, 1, 1, 2]))
    requests = int(rng.choice([40, 80, 120, 200, 300], p=[0.1, 0.2, 0.3, 0.3, 0.1]))
    case = Case(
        seed=seed,
        requests=requests,
        users=round(per_slot * slots),
        load=float(rng.choice([0.3, 0.5, 0.7, 0.8])),
        slots=slots,
        workloads=int(rng.choice([1, 1, 1, 2])),
        prompt_tokens=int(rng.choice([30, 200, 800])),
        prompt_law=str(rng.choice(["fixed", "uniform", "lognormal"])),
        output_tokens=int(rng.choice([16, 30, 60])),
        output_law=str(rng.choice(["fixed", "uniform", "lognormal"])),
        prefill_ms=float(rng.choice([10, 40, 150])),
        prefill_token_ms=float(rng.choice([0.05, 0.3, 1.0])),
        gap_ms=float(rng.choice([8, 20, 50])),
        jitter=float(rng.choice([0.03, 0.1, 0.3])),
        batching=float(rng.choice([0.0, 0.02, 0.1])),
        server=str(rng.choice([OPENAI, VLLM, LLAMA_SERVER])),
        counted_by=str(rng.choice([TOKENIZER, ESTIMATE])),
        template_known=bool(rng.random() < 0.5),
        goodput=bool(rng.random() < 0.3),
    )
    if case.users and rng.random() < 0.15:
        case = replace(case, stages=(1, slots, 2 * slots))
    elif case.users and rng.random() < 0.15:
        case = replace(case, turns=int(rng.choice([2, 4])))
    return case


def _leaves_flaws(case: Case, kind: type[Effect]) -> bool:
    """Whether the flaws so far fit the changed case, too: answers that end by themselves have no
    limit to ignore."""
    changed = kind.changed(case, Change(name="", size=kind.sizes[0]))
    flaws = [CHANGES[each.name] for each in case.changes]
    return all(flaw.fits(changed) for flaw in flaws if flaw.is_flaw and flaw.fits(case))


def _with(
    case: Case, kinds: Mapping[str, type[Effect]], rng: np.random.Generator
) -> Case:
    """The case with one more change of this mapping that fits it and that it has not."""
    taken = {change.name for change in case.changes}
    has_form = any(CHANGES[name].is_form for name in taken)
    fitting = [
        name
        for name, kind in kinds.items()
        if name not in taken
        and kind.fits(case)
        and not (has_form and kind.is_form)
        and _leaves_flaws(case, kind)
    ]
    if not fitting:
        return case
    name = str(rng.choice(fitting))
    kind = CHANGES[name]
    begins, ends = PARTS[int(rng.integers(len(PARTS)))] if kind.in_part else (0.0, 1.0)
    change = Change(
        name,
        float(rng.choice(kind.sizes)),
        float(rng.choice(kind.shares)),
        begins,
        ends,
    )
    return replace(kind.changed(case, change), changes=(*case.changes, change))
