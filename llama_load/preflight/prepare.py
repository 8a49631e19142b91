"""Everything that happens before the first request: ask the server, choose the prompts, show what was found."""

from __future__ import annotations

import os
import platform
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gevent.threadpool import ThreadPoolExecutor  # the standard one's threads are greenlets here, on one core
from locust.runners import MasterRunner

from llama_load.errors import UsageError
from llama_load.load.segments import TRACE, LoadModel, Segment, plan_segments, stage_counts, total_requests
from llama_load.load.user_limit import most_users
from llama_load.options.flags import DEFAULT_NUM_PROMPTS, without_secrets
from llama_load.options.options import RunOptions
from llama_load.preflight.calibration import client_rows, last_calibration
from llama_load.preflight.checks import change_rows, machine_rows, plan_rows, pool_rows, refuse_unseen, slot_budget, target_rows
from llama_load.preflight.load_rows import load_rows
from llama_load.preflight.trace import load_trace
from llama_load.runs import Manifest, PreflightRow, RunWriter, StageRecord, last_with_label, open_run
from llama_load.targets.balance import LEAST_IN_FLIGHT
from llama_load.targets.body import CHAT, BodyOptions, asked_tokens
from llama_load.targets.probe import Probe, Wanted
from llama_load.targets.target import LLAMA_CPP_PYTHON, LLAMA_SERVER, Target
from llama_load.targets.tokenize import ServerCounter
from llama_load.users.content import PREFIX_DIGITS
from llama_load.version import __version__
from llama_load.wire.address import split_hosts
from llama_load.wire.limits import raised_limits
from llama_load.workloads.counting import LocalCounter, TokenCounter
from llama_load.workloads.facts import facts_json, shared_tokens
from llama_load.workloads.mixed import Mixed
from llama_load.workloads.prompt import Plan, PlanRequest, Workload
from llama_load.workloads.stage_order import in_stages

# How many users an open loop needs is estimated from what is due within this time; so many are warmed up with at once.
USERS_AHEAD_S = 3.0


@dataclass(slots=True)
class Prepared:
    """A run that could start now."""

    options: RunOptions
    targets: list[Target]
    probes: list[Probe]  # one a target, to ask it again
    body_options: BodyOptions
    plans: Mapping[str, Plan]
    model: LoadModel
    segments: list[Segment]
    weights: Mapping[str, float]  # of the workloads among arrivals, by name
    users: int  # that Locust must start
    writer: RunWriter
    run_time_s: float | None
    prefix_nonce: str | None  # what random prefixes are drawn from, if they are wanted

    @property
    def is_open(self) -> bool:
        """Whether any of it is sent by a schedule."""
        return any(segment.scheduled_s is not None for segment in self.segments)

    @property
    def ends_matter(self) -> bool:
        """Whether others may wait for the end of a request, or its replica's next request depends on it."""
        balances = len(self.targets) > 1 and self.options.balance == LEAST_IN_FLIGHT
        return balances or any(segment.is_limited for segment in self.segments)


def prepare(environment: Any, options: RunOptions, run_time_s: float | None, *, headless: bool) -> Prepared:
    """Ask the target, plan the prompts, print the preflight table, open the run folder.

    Raises UsageError for whatever does not fit.
    """
    hosts = _hosts(environment)
    model = options.load
    if options.trace is not None:
        model = replace(model, arrivals=load_trace(options.trace, speed=options.speed))
    of_each_stage = options.num_prompts
    shaped = environment.shape_class is not None and not model.stages  # a LoadTestShape that says when the run ends
    if of_each_stage is None and run_time_s is None and headless and not model.arrivals and not shaped:
        of_each_stage = DEFAULT_NUM_PROMPTS
    segments = plan_segments(model, of_each_stage, run_time_s)
    num_prompts = total_requests(segments)
    most = max((segment.total or 0 for segment in segments), default=0) if model.same_prompts else num_prompts
    asked = environment.parsed_options.num_users
    users = max(asked, *(segment.most_users or 0 for segment in segments))
    # Those of an open loop are made when they are needed.
    busy = max(asked, *(min(segment.users_to_begin(USERS_AHEAD_S), most_users(_workers(environment))) for segment in segments))
    weights = _weights(environment)
    _refuse_what_makes_no_schedule(environment, options, model, run_time_s, weights)
    probe_options = (options.headers, options.backend, options.models, options.connection_reuse, options.tls)
    probes = [Probe(Wanted(host, *probe_options)) for host in hosts]
    targets = [probe.ask() for probe in probes]
    if options.endpoint == CHAT and options.warmup:  # which allows for a request that generates
        targets = [
            probe.with_learned_template(target) if target.backend == LLAMA_CPP_PYTHON else target
            for probe, target in zip(probes, targets, strict=True)
        ]
    if model.same_prompts and not options.bust_prefix_cache and any(target.backend != LLAMA_SERVER for target in targets):
        raise UsageError(
            "--stage-prompts same: --cache-prompt off is for llama-server alone, the cache of others would answer; add "
            "--bust-prefix-cache"
        )
    counter = _counter(probes[0], options)
    budget = slot_budget(
        targets,
        options.endpoint,
        max_tokens=asked_tokens(options.extra_body) or options.max_tokens,
        prefix_tokens=PREFIX_DIGITS if options.bust_prefix_cache else 0,
    )
    workloads = _workloads(environment)
    wanted = PlanRequest(
        num_prompts=most or DEFAULT_NUM_PROMPTS,
        fill=num_prompts is not None,
        warmup=options.warmup * len(segments),
        trace=model.arrivals or None,
        seed=options.seed,
        counter=counter,
        dataset_path=options.dataset_path,
        output_len=options.traffic.output_len or options.sharegpt_output_len,
        answer_len=budget.answer,
        exchange_tokens=budget.template,
        fits=None if options.keep_long_prompts or budget.context is None else budget.fits,
        room=(lambda _: None) if options.keep_long_prompts else budget.room,
        threads=ThreadPoolExecutor,
        on_image_ready=_image_progress(),
        nonce=secrets.token_hex(8),
        traffic=options.traffic,
    )
    plans = {
        name: workload.plan(wanted.of_one(f"workload {name}") if number else wanted)
        for number, (name, workload) in enumerate(workloads.items())
    }
    if model.stages and not model.same_prompts:
        # Which of several workloads sends how many in a stage is not known.
        counts = stage_counts(segments) if len(plans) == 1 else None
        alike = budget.answer is not None
        plans = {name: in_stages(plan, counts, options.seed, same_answers=alike) for name, plan in plans.items()}
    rows = load_rows(model, segments)
    # Who stands ready in an open loop is not the load.
    rows += target_rows(targets, model.max_in_flight if model.is_open else users) + machine_rows(targets, busy, raised_limits())
    rows += client_rows(last_calibration(), busy, _workers(environment))
    for plan in plans.values():
        refuse_unseen(plan, targets)
        rows += plan_rows(plan, budget, open_ended=num_prompts is None)
        rows += pool_rows(plan, budget, targets, busy, options.kv_pool)
    if isinstance(counter, ServerCounter) and counter.why is not None and any(plan.measured for plan in plans.values()):
        rows.append(PreflightRow("tokens", f"counted by estimate: {counter.why}; --tokenizer counts exactly", "note"))
    body_options = BodyOptions(
        endpoint=options.endpoint,
        max_tokens=options.max_tokens,
        temperature=options.temperature,
        ignore_eos=options.ignore_eos,
        cache_prompt=options.cache_prompt,
        stream=options.stream,
        extra=options.extra_body,
    )
    facts = {name: plan.facts for name, plan in plans.items()}
    manifest = Manifest(
        version=__version__,
        date=time.strftime("%Y%m%d-%H%M%S"),
        workload=" + ".join(plans) or " + ".join(user.__name__ for user in environment.user_classes),
        command=["locust", *without_secrets(sys.argv[1:])],
        options=options.given_flags,
        endpoint=options.endpoint,
        backend=targets[0].backend,
        model=targets[0].model,
        label=options.label,
        tokenizer=counter.source,
        users=users,
        num_prompts=num_prompts,
        run_time_s=run_time_s,
        seed=options.seed,
        max_in_flight=model.max_in_flight,
        request_rate=model.rate_rps,
        burstiness=model.burstiness,
        arrival=(TRACE if model.arrivals else model.process) if model.is_open else None,
        trace=None if options.trace is None else {"path": str(options.trace), "speed": options.speed},
        ramp=None if model.ramp is None else {"kind": model.ramp, "start_rps": model.ramp_start_rps},
        stages=[StageRecord(stage.name, stage.users, stage.rate_rps, start=stage.start) for stage in model.stages],
        same_prompts=model.same_prompts,
        percentiles=options.percentiles,
        percentile_metrics=options.percentile_metrics,
        goodput=options.goodput,
        fail_if=options.fail_if,
        exit_code_on_error=environment.parsed_options.exit_code_on_error,
        cache_meant=options.cache_prompt is True,
        cache_off=options.cache_prompt is False and all(target.backend == LLAMA_SERVER for target in targets),
        fixed_lengths=options.ignore_eos or options.traffic.output_len is not None or options.sharegpt_output_len is not None,
        shared_tokens=shared_tokens(facts),
        prompts=facts_json(facts),
        targets=[target.described() for target in targets],
        preflight=rows,
        host=_this_machine(),
    )
    folder, is_exact = _run_dir(options, manifest)
    if options.label is not None and (before := last_with_label(folder.parent, options.label)) is not None:
        rows += change_rows(before, manifest)
    print_table(rows)
    writer = RunWriter(folder, manifest) if is_exact else open_run(folder, manifest)
    prefix_nonce = secrets.token_hex(8) if options.bust_prefix_cache else None
    return Prepared(
        options, targets, probes, body_options, plans, model, segments, weights, users, writer, run_time_s, prefix_nonce
    )


def _image_progress() -> Callable[[int], None]:
    """Says on stderr how many images are ready, where that takes its time."""
    said_s = time.monotonic()

    def tell(count: int) -> None:
        nonlocal said_s
        if time.monotonic() - said_s > 2:
            said_s = time.monotonic()
            print(f"{count} images ready …", file=sys.stderr, flush=True)

    return tell


def print_table(rows: list[PreflightRow]) -> None:
    """The preflight table on stderr."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    styles = {"ok": "green", "note": "yellow", "warning": "bold red"}
    table = Table(title="Before the run", title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    for row in rows:
        mark = {"ok": "✓", "note": "·", "warning": "!"}[row.level]
        table.add_row(Text(mark, styles[row.level]), Text(row.name), Text(row.value))
    Console(stderr=True).print(table)


def _workers(environment: Any) -> int:
    """How many processes will send, as far as is known now."""
    master = isinstance(environment.runner, MasterRunner)
    return max(environment.runner.worker_count, environment.parsed_options.expect_workers) if master else 1


def _hosts(environment: Any) -> list[str]:
    """The base URLs of the servers: --host, else what the locustfile's classes say. Raises UsageError when nobody says."""
    said = [environment.host, *(getattr(user, "host", None) for user in environment.user_classes)]
    hosts = split_hosts(next((host for host in said if host), ""))
    if not hosts:
        raise UsageError("no server named; give its base URL with --host, such as --host http://127.0.0.1:8080")
    if twice := [host for host in dict.fromkeys(hosts) if hosts.count(host) > 1]:
        raise UsageError(f"--host names {twice[0]} twice")
    return hosts


def _workloads(environment: Any) -> dict[str, Workload]:
    """The workloads of the user classes by their names. Raises UsageError where two that are not alike have the same."""
    found: dict[str, Workload] = {}
    for workload in (getattr(user, "workload", None) for user in environment.user_classes):
        if workload is None:
            continue
        other = found.setdefault(workload.name, workload)
        if not _alike(other, workload):
            raise UsageError(f"two workloads of different kinds are both named {workload.name!r}; give one another name")
    return found


def _alike(one: Workload, other: Workload) -> bool:
    if type(one) is not type(other):
        return False
    tasks, others = (workload.tasks if isinstance(workload, Mixed) else {} for workload in (one, other))
    return list(tasks) == list(others) and all(_alike(tasks[name], others[name]) for name in tasks)


def _refuse_what_makes_no_schedule(
    environment: Any, options: RunOptions, model: LoadModel, run_time_s: float | None, weights: Mapping[str, float]
) -> None:
    """Raises UsageError for what would be ignored, or could not be kept."""
    if model.is_open and not weights:
        raise UsageError("a request rate needs a user class that sends: make one of the locustfile's classes a LlamaUser")
    fixed = [user.__name__ for user in environment.user_classes if user.fixed_count]
    if model.is_open and fixed:
        raise UsageError(f"{fixed[0]} has a fixed_count, but a request rate needs as many users as come; give it a weight instead")
    amounts = [stage.count is not None or stage.seconds is not None for stage in model.stages]
    if amounts and all(amounts) and (run_time_s is not None or options.num_prompts is not None):
        what = "--num-prompts" if run_time_s is None else "-t"
        raise UsageError(f"every stage has an amount of its own, so {what} says nothing: leave it out")
    if options.junit is not None and options.junit.is_dir():
        raise UsageError(f"--junit {options.junit} is a folder; name a file")


def _weights(environment: Any) -> dict[str, float]:
    """How often each workload is drawn where arrivals come by a schedule: by the weights of the user classes."""
    weights: Counter[str] = Counter()
    for user in environment.user_classes:
        if hasattr(user, "workload_name"):  # not one of Locust's own
            weights[user.workload_name()] += user.fixed_count or user.weight
    return dict(weights)


def _counter(probe: Probe, options: RunOptions) -> TokenCounter:
    return probe.counter() if options.tokenizer is None else LocalCounter(options.tokenizer)


_used_run_dirs: set[Path] = set()


def _run_dir(options: RunOptions, manifest: Manifest) -> tuple[Path, bool]:
    """Where the run goes, and whether exactly there: --run-dir at its first use. Else with -2, -3, … where that is taken."""
    wanted = options.run_dir
    if wanted is None:
        name = _file_name(options.label or manifest.workload)
        return Path("runs") / f"{manifest.date}-{name}", False
    is_exact = wanted not in _used_run_dirs
    _used_run_dirs.add(wanted)
    return wanted, is_exact


def _this_machine() -> dict[str, Any]:
    return {
        "name": platform.node(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }


def _file_name(text: str) -> str:
    """A text as part of a file name, in any script."""
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in text)[:80]
