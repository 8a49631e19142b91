"""Rows before the run about the processes of servers on this machine and their RPC workers."""

from __future__ import annotations

from collections.abc import Sequence

from llama_load.run_folder import PreflightRow
from llama_load.run_folder.observed.server_description import ServerDescription
from llama_load.servers.serving.local_server import LocalServer


def server_rows(
    servers: Sequence[LocalServer],
    descriptions: Sequence[ServerDescription],
    *,
    generates: bool,
) -> list[PreflightRow]:
    """Rows about processes and RPC workers. `generates`: the run asks for generated texts."""
    rows = []
    for server, description in zip(servers, descriptions, strict=True):
        if server.can_be_watched and server.process is not None:
            how = server.process.name
            if server.entry is not None:
                how = "started by llama-load serve"

            text = f"{how}, process {server.process.pid}: the run ends if it does"
            if len(servers) > 1:
                text += " and no other is left"
            if server.log is None:
                text += "; its log is not known"
            rows.append(PreflightRow("process", text))
        if generates:
            rows += _times_rows(server)
        if description.context_shift:
            text = (
                "--context-shift: an answer that fills its slot goes on without the oldest "
                "tokens; texts and speeds change"
            )
            rows.append(PreflightRow("shift", text, "note"))
        if description.rpc:
            rows.append(_rpc_row(description))
    return rows


def _times_rows(server: LocalServer) -> list[PreflightRow]:
    """Whether the server reports its own times of each answer, where a flag decides on that."""
    target = server.target
    flag = target.kind.times_flag(target.facts.build)
    if not flag:
        return []

    is_on = None
    if server.can_be_watched and server.process is not None:
        is_on = server.process.has_flag(flag)
    if is_on:
        return []
    if is_on is None:
        text = f"the server's own, of each answer, if it was started with {flag}"
        return [PreflightRow("times", text)]
    text = f"the server's own are sums alone; {flag} reports those of each answer"
    return [PreflightRow("times", text, "note")]


def _rpc_row(description: ServerDescription) -> PreflightRow:
    """Whether each of its RPC workers holds a part of the model."""
    count = len(description.rpc)
    unused = description.rpc_unused
    if unused:
        addresses = ", ".join(unused)
        text = (
            f"{addresses} of {count} hold no part of the model; "
            "check --rpc (commas, -ngl)"
        )
        return PreflightRow("RPC workers", text, "warning")

    names = ", ".join(worker.address for worker in description.rpc)
    if all(worker.model_mib for worker in description.rpc):
        return PreflightRow("RPC workers", f"all {count} used: {names}")
    text = f"{names}; whether they are used is not in a known log"
    return PreflightRow("RPC workers", text, "note")
