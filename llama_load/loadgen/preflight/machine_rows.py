"""Rows of the preflight about this machine: open files, local ports, priority."""

from __future__ import annotations

import math
from collections.abc import Sequence

from llama_load.ground.errors import UsageError
from llama_load.loadgen.options.sections.result_section import AUTO
from llama_load.loadgen.wire.limits import Limits
from llama_load.run_folder import PreflightRow
from llama_load.servers.local_ports import is_here
from llama_load.servers.target import Target

# Open files besides connections: logs, the run folder, libraries' sockets.
OTHER_FILES = 64


WIDER_RANGE = "sysctl -w net.ipv4.ip_local_port_range='1024 65535'"


def machine_rows(
    targets: Sequence[Target], users: int | None, limits: Limits, workers: int = 1
) -> list[PreflightRow]:
    """Whether this machine can hold this many open connections, where `workers` processes share
    them evenly. UsageError: it cannot.

    Open files are a limit of each process, local ports of all processes of a machine: workers may
    be on several."""
    if users is None:
        return []
    # Reused connections stay open at each replica.
    replicas = 0
    for target in targets:
        replicas += target.reuse

    users_of_worker = math.ceil(users / workers)
    files = users_of_worker * max(1, replicas)
    if limits.open_files is not None and files + OTHER_FILES > limits.open_files:
        raise UsageError(
            f"{users} concurrent requests need {files} open files in a process, the limit is "
            f"{limits.open_files}; "
            f"raise it first: ulimit -n {files + 1000}"
        )
    per_target = -(-users // len(targets))
    if limits.local_ports is not None and per_target > limits.local_ports:
        short = (
            f"{per_target} connections to one server need as many local ports, there are "
            f"{limits.local_ports}; widen the range"
        )
        if -(-per_target // workers) > limits.local_ports or workers == 1:
            raise UsageError(f"{short} first: {WIDER_RANGE}")
        text = f"{short}, or put the workers on several machines: {WIDER_RANGE}"
        return [PreflightRow("ports", text, "warning")]
    if limits.local_ports is not None and per_target > limits.local_ports / 2:
        text = f"{per_target} of {limits.local_ports} local ports needed"
        return [PreflightRow("ports", text, "note")]
    return []


def priority_rows(
    targets: Sequence[Target], priority: str, allowed: bool, *, is_apart: bool
) -> list[PreflightRow]:
    """Whether what receives precedes a server that may use every core of this machine.
    `is_apart`: it is a thread of its own (the compiled receiver)."""
    if priority != AUTO or not any(is_here(target.address) for target in targets):
        return []
    if allowed:
        who = "the client's main thread"
        if is_apart:
            who = "the thread that receives"

        text = f"{who} takes real-time priority: a server on this machine does not delay its reads"
        return [PreflightRow("priority", text)]
    text = "a server on this machine may delay the client: allow it real-time priority, ulimit -r 1"
    return [PreflightRow("priority", text, "note")]
