"""The flags of the load model, and their conflicts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from llama_load.loadgen.options.flag_limits import MOST_USERS
from llama_load.loadgen.options.flag_reader import FlagReader
from llama_load.loadgen.options.sections.load_section import SAME
from llama_load.loadgen.schedule.segments import (
    CONSTANT,
    DROP,
    GAMMA,
    POISSON,
    TRACE,
    LoadModel,
)
from llama_load.loadgen.schedule.stages import Stage, parse_stages


def read_load(flags: FlagReader, seed: int) -> LoadModel:
    """The load model, without its trace's arrivals. Faults go to the reader."""
    rate = None
    if flags.text("request_rate") not in (None, "inf"):
        rate = flags.number("request_rate", float, 0, above=True)
    burstiness = flags.number("burstiness", float, 0, above=True) or 1.0
    arrival = flags.chosen("arrival")
    stages = stages_of(flags.text("stages") or "", flags.faults)
    most = flags.number("max_concurrency", int, 1, most=MOST_USERS)
    model = LoadModel(
        rate_rps=rate,
        conversations_per_min=flags.number("conversation_rate", float, 0, above=True),
        burstiness=burstiness,
        process=_process(arrival, burstiness),
        ramp=flags.chosen("ramp"),
        ramp_start_rps=flags.number("ramp_start_rps", float, 0, above=True),
        drops=flags.chosen("on_limit") == DROP,
        stages=stages,
        same_prompts=flags.chosen("stage_prompts") == SAME
        or flags.switch("same_answer"),
        hands_over=flags.switch("hand_over"),
        seed=seed,
    )
    has_trace = flags.text("trace") is not None
    is_open = model.is_open or has_trace
    model = replace(model, max_in_flight=most if is_open else None)
    if not flags.faults:
        flags.faults += _conflicts(
            flags, model, arrival, is_open=is_open, has_trace=has_trace
        )
    return model


def _process(arrival: str | None, burstiness: float) -> str:
    """How arrivals are drawn."""
    if arrival == CONSTANT:
        return CONSTANT
    if arrival == GAMMA or burstiness != 1:
        return GAMMA
    return POISSON


def stages_of(text: str, faults: list[str]) -> tuple[Stage, ...]:
    """The stages of --stages; none if it is empty."""
    try:
        return parse_stages(text) if text else ()
    except ValueError as error:
        faults.append(str(error))
        return ()


def _conflicts(
    flags: FlagReader,
    model: LoadModel,
    arrival: str | None,
    *,
    is_open: bool,
    has_trace: bool,
) -> Iterator[str]:
    """A message for each pair of flags that conflict, and each flag without effect."""
    rate = model.rate_rps is not None
    yield from _conversation_conflicts(flags, model, has_trace=has_trace)
    if rate and model.stages:
        yield (
            f"--request-rate and --stages ({flags.text('stages')}) conflict: write rates as "
            "stages, such as 2/s,4/s"
        )
    if has_trace and (rate or model.stages):
        other = "--request-rate" if rate else "--stages"
        yield (
            f"--trace and {other} conflict: a trace sets the arrivals (--speed plays it faster)"
        )
    if arrival == TRACE and not has_trace:
        yield "--arrival trace needs a trace: give it with --trace FILE"
    if has_trace and arrival not in (None, TRACE):
        yield f"--trace and --arrival {arrival} conflict: a trace sets the arrivals"
    if not is_open and arrival not in (None, TRACE):
        yield f"--arrival {arrival} needs a rate: give --request-rate"
    if model.burstiness != 1 and (has_trace or not is_open):
        yield f"--burstiness {model.burstiness:g} needs a rate: give --request-rate, and no trace"
    if model.burstiness != 1 and arrival in (POISSON, CONSTANT):
        yield (
            f"--burstiness {model.burstiness:g} and --arrival {arrival} conflict: use "
            "--arrival gamma"
        )
    has_final_rate = rate or any(
        stage.start is not None and stage.rate_rps for stage in model.stages
    )
    if model.ramp is not None and not has_final_rate:
        yield f"--ramp {model.ramp} needs a final rate: give --request-rate"
    if rate and (model.ramp is None) != (model.ramp_start_rps is None):
        yield "a ramp needs both --ramp linear (or exponential) and --ramp-start-rps"
    if not rate and model.ramp_start_rps is not None:
        yield "--ramp-start-rps needs --request-rate: give it, or write --stages 1/s-10/s:60s"
    has_users = any(stage.users is not None for stage in model.stages)
    if has_users and flags.text("max_concurrency") is not None:
        yield "--max-concurrency and --stages both set concurrency: give only one"
    if model.drops and model.max_in_flight is None:
        if is_open:
            yield "--on-limit drop needs a limit: give --max-concurrency"
        else:
            yield (
                "--on-limit drop needs a limit and a rate: give --max-concurrency and "
                "--request-rate"
            )
    if model.hands_over and (is_open or model.stages):
        yield (
            "--hand-over is for a closed loop with one number of users: leave out "
            "--request-rate, --trace and --stages"
        )
    if model.hands_over and flags.number("num_prompts", int, 1) is None:
        yield "--hand-over needs a number of requests: give --num-prompts"
    if model.same_prompts and not model.stages:
        yield "--stage-prompts needs --stages"
    if flags.switch("same_answer"):
        yield from _same_answer_conflicts(flags, model)
        return
    is_cache_off = (
        flags.switch("bust_prefix_cache") or flags.text("cache_prompt") == "off"
    )
    if model.same_prompts and not is_cache_off:
        yield (
            "--stage-prompts same would measure the prompt cache: add --cache-prompt off "
            "(llama-server) or --bust-prefix-cache"
        )


def _conversation_conflicts(
    flags: FlagReader, model: LoadModel, *, has_trace: bool
) -> Iterator[str]:
    """--conversations and --conversation-rate set the load alone."""
    alive = flags.number("conversations", int, 1)
    is_given = {
        "--request-rate": model.rate_rps is not None,
        "--stages": bool(model.stages),
        "--trace": has_trace,
        "--max-concurrency": flags.text("max_concurrency") is not None,
    }
    if alive is not None and model.conversations_per_min is not None:
        yield (
            "--conversations and --conversation-rate conflict: conversations are replaced when "
            "they end, or arrive at a rate"
        )
    for name in [name for name, given in is_given.items() if given]:
        if alive is not None:
            more = ""
            if name == "--stages":
                more = ": numbers in --stages are conversations alive, such as --stages 50,100"
            yield f"--conversations and {name} both set the load: give only one{more}"
        if model.conversations_per_min is not None:
            yield (
                f"--conversation-rate and {name} conflict: conversations arrive at one rate, "
                f"without a limit; leave out {name}"
            )


def _same_answer_conflicts(flags: FlagReader, model: LoadModel) -> Iterator[str]:
    first = model.stages[0] if len(model.stages) > 1 else None
    if first is None or first.users != 1 or first.start is not None:
        yield (
            "--same-answer compares stages: give --stages that begin with one request at a "
            "time, such as --stages 1,8"
        )
    if flags.number("temperature", float, 0):
        yield "--same-answer needs temperature 0, which it sets: leave out --temperature"
    if flags.switch("bust_prefix_cache") or flags.text("cache_prompt") == "on":
        yield (
            "--same-answer turns the prompt cache off: leave out --cache-prompt and "
            "--bust-prefix-cache"
        )
