"""Everything before the first request: query the servers, choose the prompts, print the preflight table."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rich.cells import cell_len

from llama_load.errors import UsageError
from llama_load.foreign_text import printable
from llama_load.observed.server_description import ServerDescription
from llama_load.observed.slot_context import slot_context_of
from llama_load.options.options import RunOptions
from llama_load.preflight.answer_form_file import read_answer_form
from llama_load.preflight.calibration import client_rows, last_calibration
from llama_load.preflight.checks import (
    Budget,
    cache_rows,
    change_rows,
    choice_rows,
    machine_rows,
    plan_rows,
    pool_rows,
    priority_rows,
    refuse_probes,
    refuse_unseen,
    target_rows,
    tool_rows,
)
from llama_load.preflight.load_fits import PlannedLoad, load_rows, planned_load, with_conversations
from llama_load.preflight.local_servers import LocalServer, find_local_server, server_rows, with_traffic
from llama_load.preflight.make_manifest import make_manifest, run_dir, run_writer
from llama_load.preflight.prompts import plan_prompts
from llama_load.preflight.servers import beginning_of, budget_of, hosts_of, probe_targets, token_counter
from llama_load.run_folder import Manifest, PreflightRow, RunWriter, last_with_label
from llama_load.tables.bounded_console import bounded_console
from llama_load.tables.text_width import padded, wrapped
from llama_load.targets.balance import LEAST_IN_FLIGHT
from llama_load.targets.body import BodyOptions
from llama_load.targets.probe import Probe
from llama_load.targets.target import Target
from llama_load.targets.tokenize import ServerCounter
from llama_load.users.beginning import Beginning
from llama_load.wire.limits import raised_limits
from llama_load.wire.priority import may_be_real_time
from llama_load.workloads.counting import TokenCounter
from llama_load.workloads.prompt import Plan
from llama_load.workloads.recorded import TalkFacts


@dataclass(slots=True)
class Prepared:
    """A run for which all checks have passed. Nothing is written before `open`."""

    options: RunOptions
    load: PlannedLoad
    targets: list[Target]
    probes: list[Probe]  # one per target, for later queries
    body_options: BodyOptions
    plans: Mapping[str, Plan]
    beginning: Beginning | None  # of the prompts; None: they are sent as they are
    manifest: Manifest  # with the rows of the preflight table
    local_servers: list[LocalServer]  # one per target
    writer: RunWriter = field(init=False)  # of the run folder, once it is open

    @property
    def checks_answers(self) -> bool:
        """Whether answers are checked against a schema or the expectations of a data set."""
        has_schema = self.body_options.form is not None and self.body_options.form.schema is not None
        return has_schema or any(prompt.expect is not None for plan in self.plans.values() for prompt in plan.measured)

    @property
    def ends_matter(self) -> bool:
        """Whether a request's end can release another request or choose its replica."""
        balances = len(self.targets) > 1 and self.options.balance == LEAST_IN_FLIGHT
        return balances or any(segment.is_limited for segment in self.load.segments)

    def open(self) -> Prepared:
        """The same run, with its run folder open. UsageError: it cannot be written."""
        self.writer = run_writer(self.options, self.manifest)
        self.local_servers = [with_traffic(*pair) for pair in zip(self.local_servers, self.manifest.servers, strict=True)]
        return self


def check(environment: Any, options: RunOptions, run_time_s: float | None, *, headless: bool) -> Prepared:
    """Query the servers, plan the prompts, make the rows of the preflight table. UsageError: something does not fit."""
    hosts = hosts_of(environment)
    load = planned_load(environment, options, run_time_s, headless=headless)
    if options.junit is not None and options.junit.is_dir():
        raise UsageError(f"--junit {options.junit} is a folder; name a file")
    meter = options.telemetry.power_command[:1]
    if meter and shutil.which(meter[0]) is None:
        raise UsageError(f"--power-command: {meter[0]!r} is no program on this machine; check its name, or give its path")
    probes, targets = probe_targets(hosts, options)
    form = read_answer_form(options, targets)
    local_servers = [find_local_server(target) for target in targets]
    descriptions = [server.describe() for server in local_servers]
    shifts = all(server.context_shift for server in descriptions)
    counter = token_counter(probes[0], options)
    nonce = secrets.token_hex(8)
    beginning = beginning_of(options, targets, counter, nonce)
    renews = beginning is not None and beginning.tokens is not None
    budget = budget_of(targets, options, beginning, shifts=shifts)
    plans = plan_prompts(environment, options, load, budget, counter, nonce=nonce, renews=renews)
    load = with_conversations(load, plans)
    if options.traffic.speed != 1 and options.trace is None and not any(map(_has_recorded_waits, plans.values())):
        raise UsageError("--speed has nothing to play faster: give a trace (--trace FILE), or conversations with recorded waits")
    refuse_probes(options, plans.values())
    rows = _rows(
        options, load, targets, plans, budget=budget, counter=counter, kv_pool=options.kv_pool or _shared_pool(descriptions)
    )
    rows += cache_rows(plans.values()) if renews else []
    rows += server_rows(local_servers, descriptions)
    manifest = make_manifest(environment, load, options, targets=targets, plans=plans, tokenizer=counter.source, rows=rows)
    manifest.servers = descriptions
    manifest.prefix_tokens = beginning.tokens if beginning is not None else None
    folder = run_dir(options, manifest).parent
    if options.label is not None and (before := last_with_label(folder, options.label)) is not None:
        rows += change_rows(before[1], manifest)
    return Prepared(
        options=options,
        load=load,
        targets=targets,
        probes=probes,
        body_options=replace(options.body_options(), form=form),
        plans=plans,
        beginning=beginning,
        manifest=manifest,
        local_servers=local_servers,
    )


def _has_recorded_waits(plan: Plan) -> bool:
    return isinstance(plan.facts.dataset, TalkFacts) and any(prompt.delay_s for prompt in plan.measured)


def prepare(environment: Any, options: RunOptions, run_time_s: float | None, *, headless: bool) -> Prepared:
    """`check`, print the preflight table, open the run folder. UsageError: something does not fit."""
    checked = check(environment, options, run_time_s, headless=headless)
    print_table(checked.manifest.preflight)
    return checked.open()


def _rows(
    options: RunOptions,
    load: PlannedLoad,
    targets: Sequence[Target],
    plans: Mapping[str, Plan],
    *,
    budget: Budget,
    counter: TokenCounter,
    kv_pool: int | None,
) -> list[PreflightRow]:
    """The rows. UsageError: this machine or a server cannot do it."""
    rows = load_rows(load.model, load.segments)
    rows += target_rows(targets, load.concurrency) + machine_rows(targets, load.busy, raised_limits(), load.workers)
    rows += priority_rows(targets, options.client_priority, may_be_real_time())
    rows += choice_rows(targets, options)
    rows += client_rows(last_calibration(), load.busy, load.workers)
    for plan in plans.values():
        refuse_unseen(plan, targets)
        rows += tool_rows(plan, targets)
        rows += plan_rows(plan, budget, open_ended=load.num_prompts is None)
        rows += pool_rows(plan, budget, targets, load.busy, kv_pool)
    if isinstance(counter, ServerCounter) and counter.why is not None and any(plan.measured for plan in plans.values()):
        rows.append(PreflightRow("tokens", f"estimated: {counter.why}; --tokenizer counts exactly", "note"))
    return rows


def _shared_pool(servers: Sequence[ServerDescription]) -> int | None:
    """The tokens of the smallest KV pool that slots share, by the servers' logs; None: none does, or no log is known."""
    pools = [slot_context_of(server).shared_pool for server in servers]
    return min((pool for pool in pools if pool), default=None)


def print_table(rows: list[PreflightRow]) -> None:
    """The preflight table on stderr."""
    from rich.text import Text

    styles = {"ok": "green", "note": "yellow", "warning": "bold red"}
    console = bounded_console(stderr=True)
    console.print("[italic]Before the run[/]")
    names = [printable(row.name) for row in rows]
    widest = max(map(cell_len, names), default=0)
    for row, name in zip(rows, names, strict=True):
        mark = {"ok": "✓", "note": "·", "warning": "!"}[row.level]
        text = wrapped(printable(row.value, None), console.width, f"{mark}  {padded(name, widest)}  ")
        for number, line in enumerate(text):
            # Soft: a path that is longer than the line stays whole, so that it can be copied.
            shown = Text(line)
            if not number:
                shown.stylize(styles[row.level], 0, 1)
            console.print(shown, soft_wrap=True)
