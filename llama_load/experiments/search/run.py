"""One whole search: its plan, its folder, its probes, its answer."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import requests
import yaml

from llama_load.errors import UsageError
from llama_load.experiments.search.answer import Answer
from llama_load.experiments.search.closed import UserGoal, search_users
from llama_load.experiments.search.objectives import Objective
from llama_load.experiments.search.open_loop import RateGoal, search_rate
from llama_load.experiments.search.probe import REQUESTS_PER_S, USERS, Capacity
from llama_load.experiments.search.real_probe import Budget, RealProbes
from llama_load.experiments.sweep.cells import expand
from llama_load.experiments.sweep.folder import open_folder
from llama_load.experiments.sweep.grammar import KEEP
from llama_load.experiments.sweep.located import Faults, parse_yaml
from llama_load.experiments.sweep.plan import Plan
from llama_load.experiments.sweep.read_plan import plan_of
from llama_load.experiments.sweep.runner import Watcher
from llama_load.experiments.sweep.short_form import plan_document
from llama_load.version import __version__

CONCURRENCY, RATE = VARIED = ("concurrency", "rate")
# Of locust's flags, these are the search's own.
OURS = ("u", "users", "num-prompts", "request-rate", "stages", "trace", "t", "run-time", "r", "spawn-rate", "goodput")
# Ports on which servers of LLMs listen unless told otherwise: llama-server, vLLM, SGLang, LM Studio, Ollama, text-generation-webui.
USUAL_PORTS = (8080, 8000, 8081, 8001, 30000, 1234, 11434, 5000)
LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is searched: `vary` concurrency or rate; `serve` the server's command or URL; `locust` arguments."""

    vary: str
    serve: str
    locust: Sequence[str]
    objectives: tuple[Objective, ...]
    share: float
    most_users: int
    seed: int
    budget: Budget
    probe_requests: int


def plan_for(wanted: Wanted) -> tuple[Plan, bytes]:
    """The plan of the probes, without their loads, and its text. UsageError: a flag cannot be given, or is the search's own."""
    document = plan_document([wanted.serve], [], wanted.locust, 1)
    flags: dict[str, Any] = document["load"][0]
    for name in flags:
        if name in OURS:
            own = "--goodput before the --" if name == "goodput" else "the probes' own"
            raise UsageError(f"--{name} is set by the search ({own}); leave it out")
    general = [each.slo.text for each in wanted.objectives if not each.workload]
    document["load"] = [flags | {"no-report-html": [True]} | ({"goodput": [" ".join(general)]} if general else {})]
    document |= {"after-a-cell": KEEP, "idle-s": 0, "seed": wanted.seed}
    text = yaml.safe_dump(document, allow_unicode=True, sort_keys=False)
    faults = Faults("the plan of the search")
    return plan_of(parse_yaml(text, faults.source, faults), {}, faults), text.encode()


def search(wanted: Wanted, out: Path, watcher: Watcher) -> Answer:
    """Search, or continue what was interrupted in the same folder. UsageError: the folder is that of another search."""
    plan, text = plan_for(wanted)
    # Probes are not known beforehand: what is searched stands for them where a folder is continued.
    about = f"{wanted.vary} {[each.text for each in wanted.objectives]} {wanted.share} {wanted.most_users} {wanted.probe_requests}"
    key = hashlib.sha256(about.encode()).hexdigest()[:16]
    folder = open_folder(out, [replace(cell, key=f"{cell.key}-{key}") for cell in expand(plan)], text, __version__)
    probes = RealProbes(
        plan=plan, folder=folder, objectives=wanted.objectives, share=wanted.share, budget=wanted.budget, watcher=watcher
    )
    try:
        capacity, unit = _capacity(wanted, probes)
    finally:
        probes.close()
        folder.close()
    return Answer(capacity, wanted.objectives, wanted.share, unit, probes.slots, list(probes.notes))


def _capacity(wanted: Wanted, probes: RealProbes) -> tuple[Capacity, str]:
    if wanted.vary == RATE:
        goal = RateGoal(wanted.share, wanted.probe_requests, wanted.most_users)
        return search_rate(probes.rate, probes.users, goal, wanted.seed), REQUESTS_PER_S
    return search_users(probes.users, UserGoal(wanted.share, most=wanted.most_users), wanted.seed), USERS


def find_server(ports: Sequence[int] = USUAL_PORTS) -> str:
    """The URL of the only server of LLMs on the usual ports of this machine. UsageError: there is none, or several."""
    found = [url for port in ports if _lists_models(url := f"http://127.0.0.1:{port}")]
    if not found:
        raise UsageError(
            f"no server found on the ports {', '.join(map(str, ports))} of this machine; give its URL: llama-load capacity "
            "http://HOST:PORT, or start one: llama-load serve"
        )
    if len(found) > 1:
        raise UsageError(f"there are {len(found)} servers: {', '.join(found)}; name one: llama-load capacity {found[0]}")
    return found[0]


def _lists_models(url: str) -> bool:
    """Whether /v1/models answers, or asks for a key."""
    try:
        answer = requests.get(f"{url}/v1/models", timeout=LOOK_S, allow_redirects=False, stream=True)
        answer.close()
    except requests.RequestException:
        return False
    return answer.status_code in (200, 401, 403) and "json" in answer.headers.get("content-type", "")
