"""Everything before the first request: query the servers, choose the prompts, print the preflight
table."""

from __future__ import annotations

import secrets
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rich.cells import cell_len

from llama_load.ground.errors import UsageError
from llama_load.ground.units import quantity
from llama_load.loadgen.options.options import RunOptions
from llama_load.loadgen.preflight.answer_form_file import read_answer_form
from llama_load.loadgen.preflight.calibration import client_rows, last_calibration
from llama_load.loadgen.preflight.change_rows import change_rows
from llama_load.loadgen.preflight.load_fits import (
    LOAD,
    PlannedLoad,
    load_rows,
    planned_load,
    trace_rows,
    with_conversations,
)
from llama_load.loadgen.preflight.machine_rows import machine_rows, priority_rows
from llama_load.loadgen.preflight.make_manifest import (
    make_manifest,
    run_dir,
    run_writer,
)
from llama_load.loadgen.preflight.plan_rows import (
    cache_rows,
    plan_rows,
    pool_rows,
    refuse_probes,
    refuse_unseen,
    tool_rows,
)
from llama_load.loadgen.preflight.prompts import plan_prompts
from llama_load.loadgen.preflight.server_rows import server_rows
from llama_load.loadgen.preflight.servers import (
    beginning_of,
    budget_of,
    generates_texts,
    hosts_of,
    probe_targets,
    text_rows,
    token_counter,
)
from llama_load.loadgen.preflight.slot_budget import Budget
from llama_load.loadgen.preflight.target_rows import choice_rows, target_rows
from llama_load.loadgen.users.beginning import Beginning
from llama_load.loadgen.wire.limits import raised_limits
from llama_load.loadgen.wire.priority import may_be_real_time
from llama_load.loadgen.wire.receiver import compiled_receiver
from llama_load.loadgen.workloads.prompt_plan import Plan
from llama_load.loadgen.workloads.recorded import TalkFacts
from llama_load.outside.foreign_text import printable
from llama_load.run_folder import Manifest, PreflightRow, RunWriter, last_with_label
from llama_load.run_folder.observed.server_description import ServerDescription
from llama_load.run_folder.observed.slot_context import slot_context_of
from llama_load.servers.balance import LEAST_IN_FLIGHT
from llama_load.servers.body import BodyOptions
from llama_load.servers.counting import TokenCounter
from llama_load.servers.probe import Probe
from llama_load.servers.serving.local_server import (
    LocalServer,
    find_local_server,
    with_traffic,
)
from llama_load.servers.target import Target
from llama_load.servers.tokenize import ServerCounter
from llama_load.tables.bounded_console import bounded_console
from llama_load.tables.text_width import padded, wrapped

# The row with the kind and URL of a server.
SERVER = "server"


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
        form = self.body_options.form
        if form is not None and form.schema is not None:
            return True
        return any(map(_has_expectations, self.plans.values()))

    @property
    def ends_matter(self) -> bool:
        """Whether a request's end can release another request or choose its replica."""
        balances = len(self.targets) > 1 and self.options.balance == LEAST_IN_FLIGHT
        return balances or any(segment.is_limited for segment in self.load.segments)

    def open(self) -> Prepared:
        """The same run, with its run folder open. UsageError: it cannot be written."""
        self.writer = run_writer(self.options, self.manifest)
        self.local_servers = list(
            map(with_traffic, self.local_servers, self.manifest.servers)
        )
        return self


def check(
    environment: Any, options: RunOptions, run_time_s: float | None, *, headless: bool
) -> Prepared:
    """Query the servers, plan the prompts, make the rows of the preflight table. UsageError:
    something does not fit."""
    options = with_declared_cache(options, environment.user_classes)
    hosts = hosts_of(environment)
    load = planned_load(environment, options, run_time_s, headless=headless)
    if options.junit is not None and options.junit.is_dir():
        raise UsageError(f"--junit {options.junit} is a folder; name a file")
    meter = options.telemetry.power_command[:1]
    if meter and shutil.which(meter[0]) is None:
        raise UsageError(
            f"--power-command: {meter[0]!r} is no program on this machine; check its name, or "
            "give its path"
        )
    generates = generates_texts(environment)
    probes, targets = probe_targets(hosts, options, generates=generates)
    form = read_answer_form(options, targets)
    local_servers = [find_local_server(target) for target in targets]
    descriptions = []
    shifts = True
    for server in local_servers:
        description = server.describe()
        descriptions.append(description)
        shifts = shifts and description.context_shift

    counter = token_counter(probes[0], options)
    nonce = secrets.token_hex(8)
    beginning = beginning_of(options, targets, counter, nonce)
    renews = beginning is not None and beginning.is_of_run
    budget = budget_of(targets, options, beginning, shifts=shifts)
    plans = plan_prompts(
        environment,
        options,
        load,
        budget,
        counter,
        nonce=nonce,
        renews=renews,
        varies=beginning is not None,
    )
    load = with_conversations(load, plans)
    has_recorded_waits = any(map(_has_recorded_waits, plans.values()))
    has_waits = options.trace is not None or has_recorded_waits
    if options.traffic.speed != 1 and not has_waits:
        raise UsageError(
            "--speed has nothing to play faster: give a trace (--trace FILE), or conversations "
            "with recorded waits"
        )
    refuse_probes(options, plans.values())
    rows = _preflight_rows(
        options,
        load,
        targets,
        plans,
        budget=budget,
        counter=counter,
        kv_pool=options.kv_pool or _shared_pool(descriptions),
    )
    if renews:
        rows += cache_rows(plans.values())
    rows += text_rows(probes, targets, plans.values(), options.body_options())
    rows += server_rows(local_servers, descriptions, generates=generates)
    manifest = make_manifest(
        environment,
        load,
        options,
        targets=targets,
        plans=plans,
        tokenizer=counter.source,
        rows=rows,
    )
    manifest.servers = descriptions
    if beginning is not None and beginning.is_of_run:
        manifest.prefix_tokens = beginning.tokens

    if options.label is not None:
        before = last_with_label(run_dir(options, manifest).parent, options.label)
        if before is not None:
            _, manifest_before = before
            rows += change_rows(manifest_before, manifest)
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


def with_declared_cache(options: RunOptions, user_classes: Sequence[Any]) -> RunOptions:
    """The flags, with caching intended where no flag is about it and a user class declares it."""
    is_declared = any(getattr(user, "cache_prompt", None) for user in user_classes)
    is_given = options.cache_prompt is not None or options.bust_prefix_cache
    if is_given or not is_declared:
        return options
    return replace(options, cache_prompt=True)


def _has_recorded_waits(plan: Plan) -> bool:
    if not isinstance(plan.facts.dataset, TalkFacts):
        return False
    return any(prompt.delay_s for prompt in plan.measured)


def _has_expectations(plan: Plan) -> bool:
    return any(prompt.expect is not None for prompt in plan.measured)


def prepare(
    environment: Any, options: RunOptions, run_time_s: float | None, *, headless: bool
) -> Prepared:
    """`check`, print the preflight table, open the run folder. UsageError: something does not
    fit."""
    checked = check(environment, options, run_time_s, headless=headless)
    rows = checked.manifest.preflight
    if sys.stderr.isatty() and not options.block:
        rows = rows_to_read(rows)
    print_table(rows)
    return checked.open()


def _preflight_rows(
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
    rows = load_rows(load, options.wait_at_end_s) + trace_rows(load.trace)
    rows += target_rows(targets, load.concurrency)
    rows += machine_rows(targets, load.busy, raised_limits(), load.workers)
    rows += priority_rows(
        targets,
        options.client_priority,
        may_be_real_time(),
        is_apart=compiled_receiver() is not None,
    )
    rows += choice_rows(targets, options)
    rows += client_rows(last_calibration(), load.busy, load.workers)
    for plan in plans.values():
        refuse_unseen(plan, targets)
        rows += tool_rows(plan, targets)
        rows += plan_rows(plan, budget, open_ended=load.num_prompts is None)
        rows += pool_rows(plan, budget, targets, load.busy, kv_pool)
    has_prompts = any(plan.measured for plan in plans.values())
    if has_prompts and isinstance(counter, ServerCounter) and counter.why is not None:
        text = f"estimated: {counter.why}; --tokenizer counts exactly"
        rows.append(PreflightRow("tokens", text, "note"))
    return rows


def _shared_pool(servers: Sequence[ServerDescription]) -> int | None:
    """The tokens of the smallest KV pool that slots share, by the servers' logs; None: none does,
    or no log is known."""
    pools = []
    for server in servers:
        pool = slot_context_of(server).shared_pool
        if pool:
            pools.append(pool)

    return min(pools, default=None)


def rows_to_read(rows: Sequence[PreflightRow]) -> list[PreflightRow]:
    """The load, the servers and what needs attention; the other checks as a number."""
    wanted = [row for row in rows if row.level != "ok" or row.name in (SERVER, LOAD)]
    left_out = len(rows) - len(wanted)
    if left_out:
        text = f"{quantity(left_out, 'other check')} passed (--block shows them)"
        wanted.append(PreflightRow("checks", text))
    return wanted


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
        text = wrapped(
            printable(row.value, None),
            console.width,
            f"{mark}  {padded(name, widest)}  ",
        )
        for number, line in enumerate(text):
            # Soft: a path that is longer than the line stays whole, so that it can be copied.
            shown = Text(line)
            if not number:
                shown.stylize(styles[row.level], 0, 1)
            console.print(shown, soft_wrap=True)
