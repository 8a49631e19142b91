"""All changes by their names, and the effects of a case."""

from __future__ import annotations

from tests.search.cache_flaws import CACHE_FLAWS
from tests.search.case import Case
from tests.search.client_flaws import CLIENT_FLAWS
from tests.search.count_flaws import COUNT_FLAWS
from tests.search.effect import Effect
from tests.search.gateway_flaws import GATEWAY_FLAWS
from tests.search.odd_servers import ODD_SERVERS
from tests.search.oddities import ODD_PLANS
from tests.search.planted_flaws import PLANTED_FLAWS
from tests.search.planted_plans import PLANTED_ODDITIES
from tests.search.strange_counts import STRANGE_COUNTS
from tests.search.strange_dialects import STRANGE_DIALECTS
from tests.search.strange_gateways import STRANGE_GATEWAYS
from tests.search.strange_plans import STRANGE_PLANS
from tests.search.strange_servers import STRANGE_SERVERS
from tests.search.time_flaws import TIME_FLAWS

# By people who know the checks of the verdict, and by people who do not.
FAMILIAR_FLAWS: dict[str, type[Effect]] = {
    **COUNT_FLAWS,
    **CACHE_FLAWS,
    **TIME_FLAWS,
    **GATEWAY_FLAWS,
    **CLIENT_FLAWS,
}
STRANGE_FLAWS: dict[str, type[Effect]] = {
    **STRANGE_GATEWAYS,
    **STRANGE_COUNTS,
    **STRANGE_SERVERS,
}
FLAWS: dict[str, type[Effect]] = {**FAMILIAR_FLAWS, **STRANGE_FLAWS, **PLANTED_FLAWS}
FAMILIAR_ODDITIES: dict[str, type[Effect]] = {**ODD_PLANS, **ODD_SERVERS}
STRANGE_ODDITIES: dict[str, type[Effect]] = {**STRANGE_DIALECTS, **STRANGE_PLANS}
ODDITIES: dict[str, type[Effect]] = {
    **FAMILIAR_ODDITIES,
    **STRANGE_ODDITIES,
    **PLANTED_ODDITIES,
}
CHANGES: dict[str, type[Effect]] = {**FLAWS, **ODDITIES}


def effects_of(case: Case, *, flaws: bool) -> list[Effect]:
    """New effects for one run of the case, with or without its flaws."""
    chosen = [
        change for change in case.changes if flaws or CHANGES[change.name].is_in_truth()
    ]
    return [CHANGES[change.name](change, case) for change in chosen]
