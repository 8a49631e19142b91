"""The cases: data in `suites/*.toml`, read into dataclasses."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

from truth.finding import LEVELS
from truth.foreign import printable, text_of
from truth.problem import Problem

SUITES = files("truth") / "suites"  # also in a zip file
CLOSED, POISSON, CONSTANT = "closed", "poisson", "constant"
ALL, QUICK = "all", "quick"
# Folders and logs have the number of their case.
NUMBER = re.compile(r"[A-Za-z0-9_-]{1,40}")
MOST_SUITE_BYTES = 1 << 20
# Tokens of a case, in prompts and answers: the prompts are made before it begins.
MOST_TOKENS = 100_000_000
_TYPES = {"int": int, "float": int | float, "str": str, "bool": bool}
Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class Load:
    """What the client is asked to send: a closed loop of `streams` requests in flight, or an open
    loop of `rate_rps`. `tokens` and `prompt_tokens` are of each request.

    `warmup` requests come before the `requests`. With `seconds` the run ends by time, and
    `requests` is no limit. With `file` the prompts are those of a file, in its order. With
    `ttft_ms` the client searches by itself how many users get their first token within this time
    for the `share` of their requests.
    """

    requests: int
    streams: int = 0
    rate_rps: float = 0.0
    arrival: str = CLOSED
    tokens: int = 20
    prompt_tokens: int = 40
    choices: int = 1
    warmup: int = 0
    seconds: float = 0.0
    file: bool = False
    ttft_ms: float = 0.0
    share: float = 0.9


@dataclass(frozen=True, slots=True)
class Answers:
    """What the server sends. `synchronous`: all streams send at the same instants. `shape` names
    the form of the events, `fault` what goes wrong: with every `fault_every`th request, after
    `fault_after` tokens. `stamp_all`: the kernel's timestamp of every token. `prompt_digests`: the
    log has the digest of each prompt's text. `slots`: requests that are answered at once, 0 for any
    number; the others wait, first come, first served, and the time between tokens is that of each
    request alone, `interval_ms` times an exponential number."""

    first_token_ms: float = 100.0
    interval_ms: float = 20.0
    jitter_ms: float = 0.0
    synchronous: bool = False
    stamp_all: bool = False
    shape: str = "plain"
    fault: str = ""
    fault_every: int = 4
    fault_after: int = 3
    prompt_digests: bool = False
    slots: int = 0

    @property
    def plain(self) -> bool:
        """Whether it is only a schedule, which server.c can serve."""
        special = self.fault or self.prompt_digests or self.slots
        return self.shape == "plain" and not special


@dataclass(frozen=True, slots=True)
class Machine:
    """What happens beside the client. `busy`: as many processes as cores that never sleep. Of every
    `pause_every_ms` the client's processes are stopped for `pause_ms`."""

    busy: bool = False
    pause_ms: float = 0.0
    pause_every_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Case:
    """One question to a client.

    `norm`: what is right. `rule`: the function that judges, with `limits`. `reason`: why it
    matters. `passes`: the least level that is enough. `late_ms`: if p99 of the server's lateness is
    above this, the case is void.
    """

    id: str
    suite: str
    title: str
    norm: str
    rule: str
    reason: str
    load: Load
    server: Answers = field(default_factory=Answers)
    machine: Machine = field(default_factory=Machine)
    limits: Mapping[str, float] = field(default_factory=dict)
    passes: str = "right"
    late_ms: float = 5.0
    quick: bool = False


def read_cases(folder: Traversable = SUITES) -> list[Case]:
    """All cases of a folder of suites, in the order of their numbers. Problem: a file is wrong."""
    cases: list[Case] = []
    for path in sorted(_suites(folder), key=lambda path: path.name):
        try:
            table = tomllib.loads(_text_of(path))
        except (OSError, ValueError, RecursionError) as error:
            raise Problem(f"{path}: {error}") from error
        if "suite" not in table or "case" not in table:
            raise Problem(f"{path}: a suite has a name, suite, and cases, [[case]]")
        rows = table["case"]
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise Problem(f"{path}: its cases are no tables, [[case]]")
        cases += [_case(row, table["suite"], path) for row in rows]

    numbers = Counter(case.id for case in cases)
    twice = sorted(number for number, count in numbers.items() if count > 1)
    if twice:
        raise Problem(f"two cases have the same number: {', '.join(twice)}")
    return cases


def _suites(folder: Traversable) -> list[Traversable]:
    try:
        return [path for path in folder.iterdir() if path.name.endswith(".toml")]
    except OSError as error:
        raise Problem(f"{folder}: {error}") from error


def _text_of(path: Traversable) -> str:
    """Within limits, where it may be a file of others."""
    if isinstance(path, Path):
        return text_of(path, MOST_SUITE_BYTES)
    return path.read_text(encoding="utf-8")


def _case(row: Mapping[str, Any], suite: str, path: Traversable) -> Case:
    where = f"{path}, case {row.get('id', '?')}"
    _refuse_unknown(Case, row, where)
    values = dict(row)
    values["suite"] = suite
    values["load"] = _part(Load, row.get("load", {}), where)
    values["server"] = _part(Answers, row.get("server", {}), where)
    values["machine"] = _part(Machine, row.get("machine", {}), where)
    case = _part(Case, values, where)
    if not NUMBER.fullmatch(case.id):
        raise Problem(f"{where}: an id has letters, digits, - and _ alone")
    if case.passes not in LEVELS:
        raise Problem(f"{where}: there is no level {case.passes!r}")
    load = case.load
    tokens = (load.requests + load.warmup) * (load.prompt_tokens + load.tokens)
    if tokens > MOST_TOKENS:
        raise Problem(f"{where}: {tokens:,} tokens are over {MOST_TOKENS:,}")
    return case


def _part(kind: type[Part], values: Mapping[str, Any], where: str) -> Part:
    if not isinstance(values, Mapping):
        raise Problem(f"{where}: {values!r} is no table")
    _refuse_unknown(kind, values, where)
    try:
        part = kind(**values)
    except TypeError as error:
        raise Problem(f"{where}: {error}") from error
    _refuse_odd(part, where)
    return part


def _refuse_odd(part: Any, where: str) -> None:
    """Problem: a field has another type, or characters that a terminal obeys."""
    for each in fields(part):
        value = getattr(part, each.name)
        if not isinstance(value, _TYPES.get(str(each.type), object)):
            raise Problem(f"{where}: {each.name} is no {each.type}")
        if isinstance(value, str) and value != printable(value):
            raise Problem(f"{where}: {each.name} has control characters")


def _refuse_unknown(kind: type[Any], values: Mapping[str, Any], where: str) -> None:
    known = {each.name for each in fields(kind)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise Problem(f"{where}: there is no {', '.join(unknown)}")


def chosen(cases: Sequence[Case], names: Sequence[str]) -> list[Case]:
    """The cases of suites (`timing`), of numbers (`T1`), `quick` or `all`. Problem: no such
    name."""
    known = {case.suite for case in cases} | {case.id for case in cases} | {ALL, QUICK}
    for name in names:
        if name not in known:
            raise Problem(f"there is no suite or case {name!r}: see truth suites")

    wanted = set(names)
    return [case for case in cases if _is_chosen(case, wanted)]


def _is_chosen(case: Case, wanted: set[str]) -> bool:
    if ALL in wanted or case.id in wanted or case.suite in wanted:
        return True
    return QUICK in wanted and case.quick
