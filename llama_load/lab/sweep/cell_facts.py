"""The facts of a row: what its server, its model and its load are, by the plan and by the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from llama_load.analysis.results.run_summary import RunSummary
from llama_load.lab.sweep.cells import Cell
from llama_load.lab.sweep.gguf_facts import gguf_facts
from llama_load.lab.sweep.grammar import URL
from llama_load.lab.sweep.plan import Plan, PlannedServer
from llama_load.lab.sweep.server_spec import (
    backend_name,
    gpu_count,
    model_name,
    model_path,
    uses_rpc,
)
from llama_load.tables.numbers import decimal_size, parameters, size


def planned_facts(cell: Cell) -> dict[str, str]:
    """What the plan says of a cell."""
    server = cell.server
    backend = server.backend or backend_name(server.kind)
    if uses_rpc(server):
        backend += ",RPC"
    facts = {
        "server": server.label,
        "backend": backend,
        "model": model_name(server),
        "gpus": gpu_count(server),
        "workload": cell.workload.label,
        "load": cell.load.label,
        "concurrency": "",
    }
    if cell.load.test:
        facts["test"] = cell.load.label
        facts["depth"] = str(cell.load.depth)

    facts |= _model_facts(server)
    return facts | cell.settings  # a setting may be named like one of the model's facts


def _model_facts(server: PlannedServer) -> dict[str, str]:
    """What the model's file or folder is, if it is on this machine."""
    path = model_path(server)
    if path is None:
        return {}

    model = gguf_facts(path)
    if model is not None:
        return {
            "model_type": model.model_type,
            "size": size(model.tensor_bytes, 2),
            "params": parameters(model.params),
            "quantization": model.quantization,
            "file_size": decimal_size(model.file_bytes),
        }
    weights = []
    for file in path.glob("*.safetensors"):
        if file.is_file():
            weights.append(file)

    total = sum(file.stat().st_size for file in weights)
    return {"file_size": decimal_size(total)} if total else {}


def equal_weights(plan: Plan, cells: Sequence[Cell]) -> list[str]:
    """A sentence for labels of a setting that choose files of equal weights, as a copy is."""
    sentences = []
    for setting in plan.settings:
        alike: dict[str, dict[str, Path]] = {}
        for cell in cells:
            path = model_path(cell.server)
            label = cell.settings.get(setting.name)
            model = None if path is None else gguf_facts(path)
            if path is not None and label is not None and model is not None:
                alike.setdefault(model.weights, {})[label] = path

        for paths in alike.values():
            if len(set(paths.values())) > 1:
                labels = " and ".join(paths)
                files = ", ".join(str(path) for path in paths.values())
                sentences.append(f"{setting.name} {labels} have equal weights: {files}")
    return sentences


def planned_concurrency(cell: Cell) -> list[str]:
    """What the rows of a cell will have under concurrency, as far as its flags say it.

    One per stage.
    """
    flags = {}
    for name, values in cell.flags.items():
        flags[name] = ",".join(map(str, values))

    if flags.get("stages"):
        stages = [stage.strip() for stage in flags["stages"].split(",")]
        return [f"c={stage}" if stage.isdigit() else stage for stage in stages]
    if flags.get("request-rate"):
        return [f"{flags['request-rate']}/s"]

    users = flags.get("u") or flags.get("users")
    return [f"c={users}" if users else ""]


def reported_facts(cell: Cell, summary: RunSummary) -> dict[str, str]:
    """Facts that the run reports; of a server that runs already also what it is."""
    facts = {}
    if cell.server.kind == URL:
        reported_kind = str(summary.figures.get("backend") or "")
        facts["model"] = str(summary.figures.get("model_id") or "")
        facts["backend"] = cell.server.backend or backend_name(reported_kind)

    threads = _server_threads(summary)
    if threads is not None:
        facts["server_threads"] = str(threads)
    return facts


def _server_threads(summary: RunSummary) -> int | None:
    servers = summary.ours.get("servers")
    if not isinstance(servers, list) or not servers or not isinstance(servers[0], dict):
        return None
    threads = servers[0].get("threads")
    return threads if isinstance(threads, int) else None


def stage_facts(
    summary: RunSummary, stage: str, figures: Mapping[str, Any]
) -> dict[str, str]:
    """Facts of a stage by its figures; of the whole run for an empty name."""
    completed = figures.get("completed") or 0
    failed = figures.get("failed") or 0
    accepted = []
    for rate in figures.get("spec_decode_per_position_acceptance_rates") or []:
        if isinstance(rate, int | float):
            accepted.append(f"{rate:.2f}")
    return {
        "concurrency": _concurrency(stage, figures, summary.figures),
        "accepted_by_position": " / ".join(accepted),
        "reasons": _failure_kinds(figures),
        "succeeded": f"{completed}/{completed + failed}",
    }


def _concurrency(
    stage: str, figures: Mapping[str, Any], summary: Mapping[str, Any]
) -> str:
    """`c=8`, or in an open loop `2.5/s`."""
    if stage:
        users = figures.get("users")
        rate = figures.get("rate_rps")
    else:
        users = summary.get("max_concurrency")
        rate = summary.get("request_rate")
        if not isinstance(rate, int | float):
            rate = None

    if rate is not None:
        return f"{rate:g}/s"
    if users is not None:
        return f"c={users}"
    return stage


def _failure_kinds(figures: Mapping[str, Any]) -> str:
    """`connect 3, timeout 1`."""
    counts: Counter[str] = Counter()
    for failure in figures.get("failures") or []:
        if isinstance(failure, Mapping):
            kind = (
                failure.get("kind")
                or failure.get("status")
                or failure.get("name")
                or "failed"
            )
            counts[str(kind)] += int(failure.get("count") or 1)
    return ", ".join(f"{kind} {count}" for kind, count in counts.items())
