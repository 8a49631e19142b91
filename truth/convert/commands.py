"""From a command to the work that it is, and to another client's command for the same work."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from truth.cases import CLOSED, CONSTANT, POISSON
from truth.convert import tables
from truth.convert.options import INFINITE, Table, pairs_of, read_options
from truth.problem import Problem
from truth.tools import tool_named
from truth.work import MODEL, Work

PROGRAMS: dict[str, Table] = {
    "vllm": tables.VLLM,
    "aiperf": tables.AIPERF,
    "guidellm": tables.GUIDELLM,
    "inference-perf": tables.INFERENCE_PERF,
    "llama-load": tables.LLAMA_LOAD,
}
COMPLETIONS = "inference-perf"
# In the versions of scripts/requirements their seeds have forms of their own.
WITHOUT_SEED = ("guidellm", "inference-perf")
EVEN = 1000.0  # a burstiness from which on gaps are even to a few percent
Words = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Conversion:
    """Commands for the same work, and in which ways it still differs."""

    commands: Sequence[Sequence[str]]
    differences: Sequence[str]


def convert(command: str, target: str, folder: Path) -> Conversion:
    """Problem: it is no command of a known client, or has an option without an equal."""
    source, work = work_in(shlex.split(command))
    tool = tool_named(target)
    reason = tool.unable(work)
    if reason:
        raise Problem(f"no equal work: {tool.title} {reason}")
    return Conversion(tool.commands(work, folder), differences(source, target, work))


def differences(source: str, target: str, work: Work) -> list[str]:
    """What cannot be the same, and is no reason to refuse."""
    found = ["the words of the prompts are drawn otherwise, also with the same seed"]
    if target in WITHOUT_SEED and work.seed is not None:
        found.append(f"{target} gets no seed: its prompts are its own in every run")
    if (source == COMPLETIONS) != (target == COMPLETIONS):
        found.append(
            f"{COMPLETIONS} sends to /v1/completions: no chat template's tokens"
        )
    if target == COMPLETIONS and not work.closed:
        found.append(
            f"{COMPLETIONS} takes {work.duration_s} s instead of {work.requests} requests"
        )
    if target == "llama-load" and not work.warmup:
        found.append("llama-load sends one request as a warm-up")
    if target == "vllm" and work.arrival == CONSTANT:
        found.append("vllm's gaps are nearly even, by a large burstiness")
    return found


def work_in(words: Sequence[str]) -> tuple[str, Work]:
    """The client's name, and the work."""
    for name, table in PROGRAMS.items():
        start = list(table.start)
        program = [Path(words[0]).name, *words[1 : len(start)]] if words else []
        if program == start:
            values = read_options(table, words[len(start) :])
            return name, _checked_work(name, values)
    known = ", ".join(" ".join(table.start) for table in PROGRAMS.values())
    raise Problem(f"the command must begin with one of: {known}")


def _checked_work(name: str, values: Words) -> Work:
    try:
        return _work(name, values)
    except ValueError as error:
        raise Problem(f"a number of the command is none: {error}") from error
    except KeyError as error:
        raise Problem(f"the command does not say: {error.args[0]}") from error


def _work(name: str, values: Words) -> Work:
    if name == "guidellm":
        values = _of_guidellm(values)
    elif name == "inference-perf":
        values = _of_inference_perf(values)

    streams, rate, arrival = _load(values)
    seed = values.get("seed")
    return Work(
        url=values["url"],
        requests=int(values["requests"]),
        tokens=int(values["tokens"]),
        prompt_tokens=int(values["prompt_tokens"]),
        streams=streams,
        rate_rps=rate,
        arrival=arrival,
        choices=_choices(values),
        model=values.get("model", MODEL),
        tokenizer=values.get("tokenizer", ""),
        seed=None if seed is None else int(seed),
        ignore_eos=_ignores_eos(values),
        warmup=int(values.get("warmup", "0")),
    )


def _load(values: Words) -> tuple[int, float, str]:
    """Streams, rate and arrival. All at once is a closed loop with a stream per request."""
    rate = values.get("rate", INFINITE)
    if rate == INFINITE:
        streams = values.get("streams") or values.get("requests") or "0"
        return int(streams), 0.0, CLOSED
    if "streams" in values:
        raise Problem(
            "no equal work: a rate with a limit of concurrency is neither loop"
        )

    arrival = values.get("arrival", POISSON)
    if "burstiness" in values:
        arrival = _arrival_of(float(values["burstiness"]))
    if arrival not in (POISSON, CONSTANT):
        raise Problem(f"no equal work: arrivals {arrival} are not known to all")
    return 0, float(rate), arrival


def _arrival_of(burstiness: float) -> str:
    if burstiness == 1:
        return POISSON
    if burstiness >= EVEN:
        return CONSTANT
    raise Problem(f"no equal work: only vllm has arrivals of burstiness {burstiness:g}")


def _choices(values: Words) -> int:
    extra = _extra(values)
    return int(extra.get("n", "1"))


def _ignores_eos(values: Words) -> bool:
    word = values.get("ignore_eos") or _extra(values).get("ignore_eos", "")
    return word.lower() in ("yes", "true")


def _extra(values: Words) -> dict[str, str]:
    """Fields of the body. Problem: one of them is not known."""
    extra = pairs_of(values.get("extra", ""))
    if "body" in values:
        fields = json.loads(values["body"])
        extra |= {name: str(value) for name, value in fields.items()}
    unknown = sorted(set(extra) - {"n", "ignore_eos"})
    if unknown:
        raise Problem(
            f"no equal work: the body's {', '.join(unknown)} is not known to all"
        )
    return extra


def _of_guidellm(values: Words) -> dict[str, str]:
    backend = pairs_of(values.get("backend", ""))
    profile = pairs_of(values.get("profile", ""))
    constraint = pairs_of(values.get("constraint", ""))
    data = pairs_of(values.get("data", ""))
    processor = pairs_of(values.get("processor", ""))
    if constraint.get("kind") != "max_requests":
        raise Problem("no equal work: --constraint: only kind=max_requests has equals")
    if data.get("kind") != "synthetic_text":
        raise Problem("no equal work: --data: only kind=synthetic_text has equals")

    found = {
        "url": backend.get("target", ""),
        "model": backend.get("model", MODEL),
        "tokenizer": processor.get("model", ""),
        "requests": constraint["count"],
        "prompt_tokens": data["prompt_tokens"],
        "tokens": data["output_tokens"],
        "ignore_eos": values["ignore_eos"],
    }
    if profile.get("kind") == "concurrent":
        found["streams"] = profile["streams"]
    else:
        found["arrival"] = profile.get("kind", "")
        found["rate"] = profile.get("rate", INFINITE)
    return found


def _of_inference_perf(values: Words) -> dict[str, str]:
    stages = json.loads(values.get("stages", "[]"))
    if len(stages) != 1:
        raise Problem("no equal work: --load.stages: only one stage has equals")
    stage = stages[0]
    found = dict(values)
    if values.get("arrival") == "concurrent":
        found["requests"] = str(stage["num_requests"])
        found["streams"] = str(stage["concurrency_level"])
    else:
        found["requests"] = str(round(stage["rate"] * stage["duration"]))
        found["rate"] = str(stage["rate"])
    return found
