"""The manifest of a run before its first request, and its run folder."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from llama_load.ground.units import GIB
from llama_load.ground.version import __version__
from llama_load.loadgen.options.flags import flag_roles
from llama_load.loadgen.options.options import RunOptions
from llama_load.loadgen.options.secret_flags import redact_command
from llama_load.loadgen.preflight.load_fits import PlannedLoad
from llama_load.loadgen.preflight.plan_beginnings import common_beginnings
from llama_load.loadgen.preflight.servers import have_cache_switch
from llama_load.loadgen.schedule.segments import TRACE, LoadModel
from llama_load.loadgen.schedule.stages import Stage
from llama_load.loadgen.workloads.prompt_plan import Plan, facts_json, shared_tokens
from llama_load.outside.foreign_text import redacted
from llama_load.outside.terminal import STARTED_AS
from llama_load.run_folder import Manifest, PreflightRow, RunWriter, StageRecord
from llama_load.run_folder.writer import open_run
from llama_load.servers.target import Target


def make_manifest(
    environment: Any,
    load: PlannedLoad,
    options: RunOptions,
    *,
    targets: Sequence[Target],
    plans: Mapping[str, Plan],
    tokenizer: str,
    rows: list[PreflightRow],
) -> Manifest:
    """The settings, the servers and the data. `tokenizer` counted the prompts; user classes name a
    run without workloads."""
    model = load.model
    facts = {name: plan.facts for name, plan in plans.items()}
    names = list(plans) or [user.__name__ for user in environment.user_classes]
    beginnings = None
    if not options.bust_prefix_cache:
        planned = {name: plan.measured for name, plan in plans.items()}
        beginnings = common_beginnings(planned, shared_tokens(facts))
    return Manifest(
        version=__version__,
        date=time.strftime("%Y%m%d-%H%M%S"),
        workload=" + ".join(names),
        command=_typed_command(),
        options=options.given_flags,
        flag_roles=flag_roles(),
        endpoint=options.endpoint,
        backend=targets[0].backend,
        model=targets[0].model,
        label=options.label,
        lang=options.lang,
        tokenizer=tokenizer,
        users=load.sending,
        num_prompts=load.num_prompts,
        run_time_s=load.run_time_s,
        seed=options.seed,
        gpus=options.gpus,
        price_per_hour=options.price_per_hour,
        max_in_flight=model.max_in_flight,
        request_rate=model.rate_rps,
        conversation_rate=model.conversations_per_min,
        conversations=load.alive,
        burstiness=model.burstiness,
        arrival=_arrival(model),
        trace=_trace(options),
        ramp=_ramp(model),
        stages=list(map(_stage_record, model.stages)),
        same_prompts=model.same_prompts,
        same_answer=options.same_answer,
        shared_machine=options.shared_machine or is_ci(),
        is_ci=not options.shared_machine and is_ci(),
        probe_rate_rps=options.probe_rate_rps,
        hands_over=model.hands_over,
        percentiles=options.goals.percentiles,
        percentile_metrics=options.goals.percentile_metrics,
        goodput=[slo.text for slo in options.goals.slos],
        fail_if=[threshold.text for threshold in options.goals.thresholds],
        exit_code_on_error=environment.parsed_options.exit_code_on_error,
        cache_meant=options.cache_prompt is True,
        cache_off=options.cache_prompt is False and have_cache_switch(targets),
        fixed_lengths=options.ignore_eos or options.output_len is not None,
        shared_tokens=shared_tokens(facts),
        common_beginnings=beginnings,
        prompts=facts_json(facts),
        targets=[target.described() for target in targets],
        preflight=rows,
        host=_this_machine(),
    )


def is_ci() -> bool:
    """Whether this is a runner of CI, on which other programs are usual."""
    return os.environ.get("CI", "").lower() in ("true", "1")


def _arrival(model: LoadModel) -> str | None:
    """How requests arrive; None in a closed loop."""
    if not model.is_open:
        return None
    if model.arrivals:
        return TRACE
    return model.process


def _trace(options: RunOptions) -> dict[str, Any] | None:
    if options.trace is None:
        return None
    return {"path": str(options.trace), "speed": options.traffic.speed}


def _ramp(model: LoadModel) -> dict[str, Any] | None:
    if model.ramp is None:
        return None
    return {"kind": model.ramp, "start_rps": model.ramp_start_rps}


def _stage_record(stage: Stage) -> StageRecord:
    return StageRecord(stage.name, stage.users, stage.rate_rps, start=stage.start)


def _typed_command() -> list[str]:
    """What the user typed: this process's arguments, or the command that started this process."""
    typed = os.environ.get(STARTED_AS)
    if typed:
        return redact_command(shlex.split(typed))
    return redact_command(["locust", *sys.argv[1:]])


_used_run_dirs: set[Path] = set()


def run_dir(options: RunOptions, manifest: Manifest) -> Path:
    """The run folder's path."""
    name = _file_name(redacted(options.label or manifest.workload))
    return options.run_dir or Path("runs") / f"{manifest.date}-{name}"


def run_writer(options: RunOptions, manifest: Manifest) -> RunWriter:
    """Opens the run folder: --run-dir exactly at first, then with -2, -3, … if it holds another
    run."""
    folder = run_dir(options, manifest)
    if options.run_dir is None or folder in _used_run_dirs:
        return open_run(folder, manifest)
    _used_run_dirs.add(folder)
    return RunWriter(folder, manifest)


def _this_machine() -> dict[str, Any]:
    return {
        "name": platform.node(),
        "platform": system_name(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "cpu": _cpu_name(),
        "memory_gib": round(psutil.virtual_memory().total / GIB, 1),
    }


def system_name() -> str:
    """What platform.platform() says, which on Linux starts `uname -p` for a part that it drops."""
    if sys.platform != "linux":
        return platform.platform()
    kernel = os.uname()
    library = "".join(platform.libc_ver())
    return f"{kernel.sysname}-{kernel.release}-{kernel.machine}-with-{library}"


def _cpu_name() -> str | None:
    """The name of the processor by the kernel; None where it does not say (ARM, macOS)."""
    try:
        lines = (
            Path("/proc/cpuinfo")
            .read_text(encoding="utf-8", errors="replace")
            .splitlines()
        )
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()[:100]
    return None


def _file_name(text: str) -> str:
    """A text as part of a file name, in any script."""
    name = ""
    for character in text[:80]:
        is_plain = character.isalnum() or character in "-_."
        name += character if is_plain else "-"

    return name
