"""A shared run in a few sentences, from the values that are shared and no others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llama_load.ground.units import quantity
from llama_load.tables.numbers import short

# What sends by its users, each of them one request at a time.
CLOSED_LOOP = "closed loop"
# From so many milliseconds on, a time is written in seconds.
MS_A_SECOND = 1000


def figures_sentence(shared: Mapping[str, Any]) -> str:
    """Throughput, first token, further tokens; empty where none is certain.

    Of a run in stages those of the stage with the most output.
    """
    best = level_with_most_output(shared)
    if best is not None:
        sentence = f"{short(best['output_throughput'])} tok/s in all {load_name(best)}"
        if best["median_ttft_ms"] is not None:
            sentence += (
                f", first token after {duration(best['median_ttft_ms'])} (median)"
            )
        return sentence

    parts = []
    throughput = certain(shared, "output_throughput")
    if throughput:
        parts.append(f"{short(throughput)} tok/s in all")
    requests = certain(shared, "request_throughput")
    if requests:
        parts.append(f"{short(requests)} requests/s")
    first_ms = certain(shared, "median_ttft_ms")
    if first_ms is not None:
        parts.append(f"first token after {duration(first_ms)} (median)")
    gap_ms = certain(shared, "median_tpot_ms")
    if gap_ms is not None:
        parts.append(f"{duration(gap_ms)} per further token")
    return ", ".join(parts)


def load_sentence(shared: Mapping[str, Any]) -> str:
    """What was sent: how many at once or per second, of which workload and lengths."""
    load = shared["share"]["load"]
    parts = []
    levels = shared["share"].get("levels") or []
    if len(levels) > 1:
        stages = quantity(len(levels), "stage")
        parts.append(f"{stages} {_from_to(levels[0], levels[-1])}")
    elif load["stages"]:
        parts.append(quantity(load["stages"], "stage"))
    elif load["requests_per_s"] is not None:
        parts.append(f"{load['requests_per_s']:g} requests/s, {load['arrivals']}")
    elif load["concurrency"] is not None and load["arrivals"] == CLOSED_LOOP:
        # Users that wait between turns have nothing in flight meanwhile.
        parts.append(_users(load["concurrency"]))
    elif load["concurrency"] is not None:
        parts.append(f"at most {load['concurrency']:g} in flight")

    parts.append(f"workload {load['workload']}")
    prompt = load["mean_prompt_tokens"]
    answer = load["mean_output_tokens"]
    if prompt is not None and answer:
        parts.append(f"prompts of {short(prompt)}, answers of {short(answer)} tokens")
    completed = shared.get("completed")
    failed = shared.get("failed")
    if completed is not None and failed is not None:
        parts.append(f"{completed} of {completed + failed} answered")
    return ", ".join(parts)


def server_sentence(shared: Mapping[str, Any]) -> str:
    """Kind and build of the first server, its model, slots; and how many servers."""
    servers: Sequence[Mapping[str, Any]] = shared["share"]["server"]
    if not servers:
        return "server not known"

    first = servers[0]
    parts = [" ".join(filter(None, (first["kind"], first["build"])))]
    if first.get("model"):  # not in what an older llama-load has shared
        parts.append(first["model"])
    if first["n_params"]:
        parts.append(f"{_parameters(first['n_params'])} parameters")
    if first["quantization"]:
        parts.append(first["quantization"])
    if first["slots"]:
        parts.append(quantity(first["slots"], "slot"))
    if first["layers"] and first["layers_offloaded"] is not None:
        parts.append(
            f"{first['layers_offloaded']} of {first['layers']} layers offloaded"
        )
    if len(servers) > 1:
        parts.append(f"one of {len(servers)} servers")
    return ", ".join(parts)


def hardware_sentence(shared: Mapping[str, Any]) -> str:
    """The server's GPUs, else the client's processor where the server ran there."""
    hardware = shared["share"]["hardware"]
    gpus = []
    for gpu in hardware["gpus"]:
        if gpu["name"]:
            gpus.append(_gpu_sentence(gpu))
    if gpus:
        counted = []
        for name in dict.fromkeys(gpus):
            count = gpus.count(name)
            counted.append(f"{count} x {name}" if count > 1 else name)
        return ", ".join(counted)

    if not hardware["server_on_the_clients_machine"]:
        return "the server's hardware is not known"
    parts = [hardware["client_cpu"] or "a CPU"]
    if hardware["client_cores"]:
        parts.append(quantity(hardware["client_cores"], "core"))
    return ", ".join(parts)


def _parameters(count: float) -> str:
    """7.62 B, 494 M."""
    if count >= 1e9:
        return f"{short(count / 1e9)} B"
    return f"{short(count / 1e6)} M"


def _gpu_sentence(gpu: Mapping[str, Any]) -> str:
    memory_gib = gpu["vram_gib"]
    return gpu["name"] if memory_gib is None else f"{gpu['name']} {memory_gib:g} GiB"


def levels_with_output(shared: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The stages whose output is certain; none in what an older llama-load has shared."""
    levels = shared["share"].get("levels") or []
    return [level for level in levels if level["output_throughput"]]


def level_with_most_output(shared: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Of those whose output is certain; None where there is none."""
    levels = levels_with_output(shared)
    return max(levels, key=lambda level: level["output_throughput"], default=None)


def load_name(level: Mapping[str, Any]) -> str:
    """The load of a stage: `with 8 users`, `at 2.5 requests/s`."""
    if level["requests_per_s"] is not None:
        return f"at {level['requests_per_s']:g} requests/s"
    return f"with {_users(level['users'])}"


def _users(count: float) -> str:
    if count == 1:
        return "1 user"
    return f"{count:g} users"


def _from_to(first: Mapping[str, Any], last: Mapping[str, Any]) -> str:
    if last["requests_per_s"] is not None:
        return (
            f"of {first['requests_per_s']:g} to {last['requests_per_s']:g} requests/s"
        )
    return f"of {first['users']:g} to {last['users']:g} users"


def certain(shared: Mapping[str, Any], key: str) -> float | None:
    """A figure that may be relied on; None: it is not known, or uncertain."""
    value: float | None = shared.get(key)
    return None if key in shared["llama_load"]["uncertain"] else value


def duration(ms: float) -> str:
    """A time as people write it: 12.3 ms, 1.84 s."""
    if ms < MS_A_SECOND:
        return f"{short(ms)} ms"
    return f"{short(ms / MS_A_SECOND)} s"
