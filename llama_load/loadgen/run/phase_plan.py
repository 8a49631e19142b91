"""The phases of a run in their order: a warm-up and a measurement per segment."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from llama_load.ground.units import NS_PER_S
from llama_load.loadgen.dispatch.phases import Phase
from llama_load.loadgen.preflight.load_fits import USERS_AHEAD_S
from llama_load.loadgen.preflight.prepare import Prepared
from llama_load.loadgen.schedule.schedule import drawn_by_weight
from llama_load.loadgen.schedule.segments import Segment


def is_plain(prepared: Prepared) -> bool:
    """Whether the run is a closed loop with Locust's number of users: no stages, no schedule."""
    return not prepared.load.model.stages and not prepared.load.model.is_open


def planned_phases(
    prepared: Prepared, users_asked: Callable[[], int]
) -> Iterator[tuple[Segment, Phase]]:
    """Each phase with its segment. `users_asked` is Locust's target number of users, which limits a
    plain closed loop: there can be more users than that after a lost worker has come back."""

    def limit_of_locust(_elapsed_s: float) -> int:
        return users_asked()

    if prepared.load.model.hands_over:
        yield prepared.load.segments[0], _handing_over(prepared, limit_of_locust)
        return
    for number, segment in enumerate(prepared.load.segments):
        drawn = None
        scheduled_ns = None
        if segment.scheduled_s is not None:
            seed = prepared.load.model.seed + number
            drawn = drawn_by_weight(prepared.load.weights, seed)
            scheduled_ns = (segment.scheduled_s * NS_PER_S).astype(int).tolist()

        if prepared.load.warmup:
            limit_of_warmup = (
                limit_of_locust if is_plain(prepared) else _limit_of_warmup(segment)
            )
            yield (
                segment,
                Phase(
                    total=prepared.load.warmup,
                    warmup=True,
                    limit_at=limit_of_warmup,
                    stage_of=segment.stage_of_warmup,
                    workload_of=drawn,
                ),
            )
        yield (
            segment,
            Phase(
                total=segment.total,
                scheduled_ns=scheduled_ns,
                limit_at=limit_of_locust if is_plain(prepared) else segment.limit_at,
                stage_of=segment.stage_of,
                workload_of=drawn,
                drops=prepared.load.model.drops,
                by_conversation=segment.conversations is not None,
                repeats=prepared.load.model.same_prompts,
            ),
        )


def _handing_over(prepared: Prepared, limit_at: Callable[[float], int]) -> Phase:
    """A warm-up whose requests are followed, one by one, by those of the measurement, and these by
    others that are not measured but keep up the load until the last measured one has ended."""
    filling = Phase(
        total=prepared.load.filling, warmup=True, limit_at=limit_at, fills=True
    )
    measured = Phase(
        total=prepared.load.segments[0].total, limit_at=limit_at, then=filling
    )
    return Phase(
        total=prepared.load.warmup, warmup=True, limit_at=limit_at, then=measured
    )


def _limit_of_warmup(segment: Segment) -> Callable[[float], int | None]:
    """The limit of requests in flight in a warm-up: with a schedule as many as it begins with
    (`users_to_begin`), else none."""
    limit = None
    if segment.scheduled_s is not None:
        limit = segment.users_to_begin(USERS_AHEAD_S)
    return lambda _elapsed_s: limit
