"""A bench in progress: its server, the run that is next, and what is known so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import yaml

from llama_load.analysis.results.results import analyze
from llama_load.analysis.results.run_summary import read_summary
from llama_load.ground.errors import RunError, UsageError
from llama_load.ground.units import NS_PER_S
from llama_load.lab.bench.bench_runs import DEPTHS, BenchRun, Speed
from llama_load.lab.bench.head import Head, head_of
from llama_load.lab.bench.served import Objective
from llama_load.lab.sweep.cells import Cell, expand
from llama_load.lab.sweep.folder import DONE, SweepFolder
from llama_load.lab.sweep.grammar import KEEP
from llama_load.lab.sweep.located import Faults, parse_yaml
from llama_load.lab.sweep.locustfile_flags import merged
from llama_load.lab.sweep.plan import Load, Plan
from llama_load.lab.sweep.read_plan import plan_of
from llama_load.lab.sweep.runner import CellRunner
from llama_load.lab.sweep.short_form import plan_document
from llama_load.lab.sweep.tests_load import GENERATE
from llama_load.run_folder import Run, load_run
from llama_load.run_folder.vocabulary.verdict_words import VALID

SYNTHETIC = "synthetic"
PILOT = BenchRun(GENERATE, 0, 16, requests=2)
PILOT_PROMPT = 256
CHAT = "chat"
ENDPOINTS = ("completions", CHAT)
# Of the client's estimate of lengths: a count that is this near needs no scale.
EXACT = 0.02
MARGIN = 64  # tokens of a slot for special tokens and a template

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """`serve`: a URL or the command of a server; `locust`: further flags of all runs."""

    serve: str
    locust: Sequence[str]
    objective: Objective
    time_s: float
    seed: int
    depths: Sequence[int] = DEPTHS
    command: str = ""


@dataclass(slots=True)
class BenchSession:
    """A bench in progress."""

    settings: BenchSettings
    plan: Plan
    folder: SweepFolder
    cells: CellRunner
    say: Say
    began_s: float = field(default_factory=time.monotonic)
    endpoint: str = ""
    scale: float = 1.0
    number: int = 0
    words: dict[str, list[str]] = field(default_factory=dict)  # names of runs by word
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # for the time
    context: int | None = None  # tokens of a slot; None: the server does not say
    head: Head | None = None
    tests: list[BenchRun] = field(default_factory=list)  # of one user, that ended
    beside: dict[str, float] = field(default_factory=dict)

    @property
    def left_s(self) -> float:
        """Seconds until the end."""
        return self.settings.time_s - (time.monotonic() - self.began_s)

    def ended(self, run: BenchRun) -> tuple[Run, float]:
        """Run it: its folder read, and how long it took. RunError: it failed.

        Its gravest word is kept for the bench's verdict.
        """
        cell = self._cell(run, run.name)
        found = self._ended(cell, run.name)
        words = read_summary(self.folder.run_of(cell)).words
        self.words.setdefault(words[0] if words else VALID, []).append(run.name)
        return found

    def _ended(self, cell: Cell, name: str) -> tuple[Run, float]:
        entry = self.cells.run(cell)
        if entry.status != DONE:
            raise RunError(f"{name}: {entry.reason}")
        return load_run(self.folder.run_of(cell)), entry.took_s

    def _cell(self, run: BenchRun, name: str) -> Cell:
        flags = merged(run.flags(self.endpoint, self.scale), self.plan.loads[0].flags)
        self.number += 1
        plan = replace(
            self.plan, loads=(Load(name, flags),), seed=self.settings.seed + self.number
        )
        return expand(plan)[0]

    def pilot(self) -> Speed:
        """The server's speed, its endpoint, and how its tokens relate to our estimate of them.

        RunError: it answers neither completions nor chats.
        """
        fault = ""
        for self.endpoint in ENDPOINTS:
            cell = self._cell(PILOT, "pilot")
            flags = merged(cell.flags, {"input-len": [PILOT_PROMPT]})
            try:
                run, took_s = self._ended(replace(cell, flags=flags), "pilot")
                return self._speed(run, took_s)
            except RunError as error:
                fault = fault or str(error)
        raise RunError(fault)

    def _speed(self, run: Run, took_s: float) -> Speed:
        """RunError: no answer has tokens that were timed."""
        manifest = run.manifest
        ok = run.records.measured().ok()
        prompts = ok.numbers("prompt_tokens")
        ttft_ms = ok.numbers("ttft_ms")
        tpot_ms = ok.numbers("tpot_ms")
        is_timed = (ttft_ms > 0) & (tpot_ms > 0)
        if not is_timed.any():
            raise RunError(
                "the server's answers have no tokens that can be timed; llama-load run shows why"
            )

        mean_prompt = float(prompts[is_timed].mean())
        if not mean_prompt > 0:
            mean_prompt = PILOT_PROMPT
        if manifest.tokenizer != "server":
            scale = PILOT_PROMPT / mean_prompt
            self.scale = scale if abs(scale - 1) > EXACT else 1.0

        prefill = mean_prompt / float(ttft_ms[is_timed].mean()) * 1e3
        decode = 1e3 / float(tpot_ms[is_timed].mean())
        self.head = head_of(analyze(run))
        for target in manifest.targets:
            context = target.get("ctx_per_slot")
            if isinstance(context, int):
                self.context = context
        return Speed(prefill, decode, took_s - requests_s(run))

    def depths(self, tokens: int) -> list[int]:
        """The depths for which a slot has room with so many tokens more."""
        wanted = self.settings.depths
        if self.context is None:
            return list(wanted)
        fitting = [depth for depth in wanted if depth + tokens <= self.context]
        return fitting or [0]


def bench_plan(settings: BenchSettings) -> tuple[Plan, bytes]:
    """The plan of the runs, without their loads, and its text. UsageError: a flag cannot be
    given."""
    document = plan_document([settings.serve], [], settings.locust, 1)
    flags = document["load"][0]
    for name in PILOT.flags(CHAT, 1.0):
        if name in flags:
            raise UsageError(f"--{name} is set by the bench; leave it out")

    document |= {
        "workload": SYNTHETIC,
        "after-a-cell": KEEP,
        "idle-s": 0,
        "seed": settings.seed,
    }
    text = yaml.safe_dump(document, allow_unicode=True, sort_keys=False)
    faults = Faults("the plan of the bench")
    return plan_of(parse_yaml(text, faults.source, faults), {}, faults), text.encode()


def requests_s(run: Run) -> float:
    """From the first request of a run, of its warm-up, to the end of the last."""
    records = run.records
    ended = records.where(records.has("last_token_mono_ns"))
    if not len(ended):
        return 0.0
    begun_ns = int(records.instants("started_mono_ns").min())
    return (int(ended.instants("last_token_mono_ns").max()) - begun_ns) / NS_PER_S
