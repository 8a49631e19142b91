"""Runs that are made of rows: of every kind of server, every API, every topic and every table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from llama_load.run_folder import Run, StageRecord
from llama_load.run_folder.manifest import Aborted, PreflightRow, UntilEnd
from llama_load.run_folder.observed.hang_up_check import FreeingTimes, HangUpCheck
from llama_load.run_folder.observed.losses import LostWorker
from llama_load.run_folder.observed.other_requests import OtherTraffic
from llama_load.run_folder.observed.probe_names import BESIDE, PROBE
from llama_load.run_folder.observed.record import RequestRecord
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.observed.sent_before import SentBefore
from llama_load.run_folder.observed.server_counters import ServerCounters, ServerTimes
from llama_load.run_folder.observed.server_description import Buffers, ServerDescription
from llama_load.run_folder.observed.telemetry_series import Series, Telemetry
from llama_load.run_folder.observed.worker_health import WorkerHealth
from llama_load.servers.apis import APIS
from llama_load.servers.kinds import KINDS
from tests.make_records import MS, failed, manifest, record, table

S = 1_000_000_000
URL, OTHER_URL = "http://10.0.0.1:8080", "http://10.0.0.2:8080"
GIB = float(1 << 30)
Make = Callable[[], Run]


def _rows(
    count: int = 32, users: int = 4, pause_s: float = 0.0, **changed: Any
) -> list[RequestRecord]:
    """A closed loop of `users`, whose answers differ by their numbers."""
    ready_ms = [1000.0] * users
    rows = []
    for number in range(count):
        user = int(np.argmin(ready_ms))
        first_ms = 80.0 + 7 * (number % 5) + 0.3 * (number % 11)
        gaps_ms = tuple(
            20.0 + 0.7 * ((number * 3 + place) % 4) for place in range(9 + number % 3)
        )
        row = record(
            number,
            start_ms=ready_ms[user],
            first_ms=first_ms,
            gaps_ms=gaps_ms,
            host=URL,
            user=f"User{user}",
            **changed,
        )
        rows.append(row)
        ready_ms[user] += first_ms + sum(gaps_ms) + 1 + 1000 * pause_s
    return rows


def _changed(
    rows: Sequence[RequestRecord], of: Callable[[int], Mapping[str, Any]]
) -> list[RequestRecord]:
    """The rows with other values, by their numbers."""
    return [replace(row, **of(number)) for number, row in enumerate(rows)]


def _run(
    rows: Sequence[RequestRecord],
    *,
    telemetry: Sequence[Series] = (),
    probes: Records | None = None,
    **changed: Any,
) -> Run:
    about = manifest(
        **{"num_prompts": len(rows), "targets": [_target()], "workers": [_health()]}
        | changed
    )
    return Run(
        Path("run"),
        about,
        table(*rows),
        recovered=False,
        telemetry=Telemetry(telemetry),
        probes=probes,
    )


def _target(**changed: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "url": URL,
        "backend": "llama-server",
        "build": "b1",
        "model": "tiny",
        "quantization": "Q4_0",
        "slots": 4,
        "ctx_per_slot": 4096,
        "template_tokens": 9,
        "model_bytes": 5 << 30,
        "n_params": 10**9,
    }
    return known | changed


def _health(name: str = "local", **changed: Any) -> WorkerHealth:
    known = {"loop_lag_p99_ms": 0.3, "loop_lag_max_ms": 1.0, "core_busy": 0.1}
    return WorkerHealth(name, **known | changed)


def _of_kind(name: str) -> Make:
    """A run on a server of this kind."""
    return lambda: _run(_rows(), backend=name, targets=[_target(backend=name)])


def _of_api(name: str) -> Make:
    """A run with this API."""
    return lambda: _run(_rows(endpoint=name), endpoint=name)


# ------------------------------------------------------------------------------------ topics


def _conversations() -> Run:
    """Four turns each, whose prompts grow; a sub-agent in each second one."""

    def turns(number: int) -> dict[str, Any]:
        talk, turn = number // 4, number % 4 + 1
        is_agent = talk % 2 == 1 and turn > 2
        return {
            "conversation": f"talk{talk}",
            "conversation_start": 0,
            "turn": turn,
            "agent": "agent1" if is_agent else None,
            "prompt_tokens": 200 * turn,
            "cached_tokens": 0 if turn == 3 else 200 * (turn - 1),
            "host": (URL, OTHER_URL)[(number + talk) % 2],
        }

    targets = [_target(), _target(url=OTHER_URL)]
    return _run(_changed(_rows(48), turns), workload="conversations", targets=targets)


def _hang_ups() -> Run:
    """Every fourth user hangs up after some tokens."""
    nothing = {"tpot_ms": None, "e2el_ms": None, "finish_reason": None}

    def given_up(number: int) -> dict[str, Any]:
        return {"status": "aborted", **nothing} if number % 4 == 3 else {}

    freeing = FreeingTimes(
        freed=6, median_ms=41.0, longest_ms=77.0, looks=90, look_ms=2.0
    )
    check = HangUpCheck(
        host=URL, busy=0, idle_after_ms=120.0, freeing=freeing, healthy=True
    )
    return _run(_changed(_rows(40), given_up), hang_ups=[check])


def _answer_forms() -> Run:
    """Half of the answers follow a schema, or ought to."""

    def forms(number: int) -> dict[str, Any]:
        if number % 2:
            return {}
        return {"answer_form": "json-schema", "valid_answer": number % 8 != 0}

    return _run(_changed(_rows(), forms))


def _same_answers() -> Run:
    """The answers of two stages to the same prompts; some differ under load."""
    rows = _rows(32, users=2)

    def answers(number: int) -> dict[str, Any]:
        text = f"answer {number % 16}" + ("!" if number in (19, 24) else "")
        return {
            "stage": number // 16,
            "prompt_sha256": f"p{number % 16}",
            "output_sha256": text,
            "output_text": text,
        }

    return _run(_changed(rows, answers), stages=_stages(rows, 2), same_answer=True)


def _stages(rows: Sequence[RequestRecord], count: int) -> list[StageRecord]:
    """Stages of as many requests each."""
    size = len(rows) // count
    stages = []
    for number in range(count):
        own = rows[number * size : (number + 1) * size]
        users = number + 1
        begun_ns = min(row.started_mono_ns for row in own)
        ended_ns = max(row.ended_mono_ns for row in own)
        name = f"{number + 1}: {users} users"
        stages.append(StageRecord(name, users, None, begun_ns, ended_ns))
    return stages


def _probes() -> Run:
    """Probes beside the load."""
    probes = table(
        *(
            record(number, start_ms=1000 + 90.0 * number, workload=PROBE, name=BESIDE)
            for number in range(24)
        )
    )
    return _run(_rows(), probes=probes, probe_rate_rps=10.0)


def _switching() -> Run:
    """Two models and two adapters in turns."""

    def models(number: int) -> dict[str, Any]:
        return {
            "model": ("tiny", "large")[number % 2],
            "adapter": (None, "poet")[number // 2 % 2],
        }

    return _run(_changed(_rows(64), models))


def _reprocessing() -> Run:
    """Turns of which the server had lost the ones before, and blocks of vLLM."""

    def turns(number: int) -> dict[str, Any]:
        return {
            "conversation": f"talk{number % 8}",
            "conversation_start": number % 8,
            "turn": number // 8 + 1,
            "prompt_tokens": 1000 * (number // 8 + 1),
            "cached_tokens": 0 if number % 3 == 0 else 1000 * (number // 8),
        }

    instants = np.arange(20, dtype=np.int64) * S
    labels = {"block_size": "16", "num_gpu_blocks": "300", "engine": "0"}
    info = Series(
        f"{URL}/metrics", "vllm:cache_config_info", labels, instants, np.ones(20)
    )
    return _run(
        _changed(_rows(40), turns),
        backend="vllm",
        targets=[_target(backend="vllm")],
        telemetry=[info],
    )


def _soak() -> Run:
    """Eighty minutes in which the server slows down and grows."""
    rows = _rows(600, users=4, pause_s=32.0)

    def slower(number: int) -> dict[str, Any]:
        assert rows[number].ttft_ms is not None
        return {"ttft_ms": rows[number].ttft_ms * (1 + number / 3000)}

    instants = np.arange(0, 4800, 30, dtype=np.int64) * S
    grown = 2 * GIB + 1e5 * np.arange(len(instants))
    memory = Series("server", "server_memory_bytes", {}, instants, grown)
    return _run(_changed(rows, slower), users=4, telemetry=[memory])


# ------------------------------------------------------------------------------------ tables


def _telemetry() -> Run:
    """Two GPUs, the host, and a server's process and counters."""
    rows = _rows(40)
    instants = np.arange(0, 8 * S, S // 2, dtype=np.int64)
    steps = np.arange(len(instants), dtype=np.float64)
    series = []

    def add(source: str, metric: str, values: Any, **labels: str) -> None:
        series.append(Series(source, metric, labels, instants, values + 0 * steps))

    for number in ("0", "1"):
        of_gpu = {"gpu": number}
        add("gpus", "gpu_info", 1.0, **of_gpu, name="Card", uuid=f"GPU-{number}")
        add("gpus", "gpu_utilization_ratio", 0.5 + 0.01 * (steps % 7), **of_gpu)
        add("gpus", "gpu_memory_used_bytes", 6 * GIB + 1e6 * steps, **of_gpu)
        add("gpus", "gpu_memory_total_bytes", 24 * GIB, **of_gpu)
        add("gpus", "gpu_memory_before_bytes", GIB, **of_gpu)
        add("gpus", "gpu_in_use", 1.0, **of_gpu)
        add("gpus", "gpu_temperature_celsius", 60 + steps % 5, **of_gpu)
        add("gpus", "power_watts", 250 + 3 * (steps % 4), **of_gpu)
    for source in ("gpus", "host", "server", "telemetry"):
        add(source, "up", 1.0)
    add("host", "host_cpu_seconds_total", 1000 + 1.5 * steps)
    add("host", "host_cpus", 16.0)
    add("host", "host_memory_used_bytes", 10 * GIB + 1e7 * steps)
    add("server", "server_cpu_seconds_total", 500 + 0.4 * steps)
    add("server", "server_memory_bytes", 3 * GIB + 1e6 * steps)
    buffers = Buffers(device="CUDA0", model_mib=4600.0, kv_mib=512.0, compute_mib=164.0)
    server = ServerDescription(
        url=URL,
        backend="llama-server",
        build="b1",
        model="tiny",
        layers=32,
        layers_offloaded=32,
        threads=8,
        slots=4,
        devices=["CUDA0"],
        buffers=[buffers],
        rss_mib=900.5,
    )
    return _run(rows, telemetry=series, servers=[server], price_per_hour=2.5)


def _failures() -> Run:
    """Failed requests of three kinds, another client, lost requests, and thresholds."""
    rows = _rows(40)
    rows += [failed(40, start_ms=1200, kind="http_500")]
    rows += [failed(41, start_ms=1400, end_ms=1500, kind="cut_off")]
    rows += [failed(42, start_ms=1600, end_ms=1800, kind="connect")]
    others = OtherTraffic()
    others.row("GET", "/").add(12.5, None)
    others.row("GET", "/").add(90.0, "404")
    others.exception("ValueError: no such user", 2)
    return _run(
        rows,
        lost=[LostWorker("w2", [44, 45], handed_on=3)],
        workers=[
            _health("w1", others=others),
            _health("w2", core_busy=0.99, loop_lag_p99_ms=80.0),
        ],
        prompts_sent_before=SentBefore(5, 40, ["20261119-120000-sharegpt"], [1, 2]),
        fail_if=["failed>0", "p99_ttft>1000", "verdict!=VALID"],
        goodput=["ttft:90", "tpot:25"],
        preflight=[
            PreflightRow("Servers", "1 x llama-server"),
            PreflightRow("Prompts", "40, of 10 tokens", "note"),
            PreflightRow("Machine", "load 9.5 on 2 cores", "warning"),
        ],
        server_changes=["build: b1 -> b2"],
    )


def _stages_run() -> Run:
    rows = _rows(96, users=3)

    def stage(number: int) -> dict[str, Any]:
        return {"stage": number // 32}

    rows = _changed(rows, stage)
    return _run(rows, stages=_stages(rows, 3), same_prompts=True, goodput=["e2el:400"])


def _workloads() -> Run:
    """Three workloads, of which one sends images, and percentiles of every latency."""

    def mixed(number: int) -> dict[str, Any]:
        name = ("sharegpt", "vision", "documents")[number % 3]
        more = {"images": 1, "image_tokens": 4} if name == "vision" else {}
        return {"workload": name, "name": name, "reasoning_tokens": number % 4, **more}

    latencies = ["ttft", "tpot", "itl", "e2el"]
    return _run(
        _changed(_rows(60), mixed),
        percentiles=[50.0, 90.0, 99.9],
        percentile_metrics=latencies,
    )


def _open_loop() -> Run:
    """Arrivals of which some were sent late, and some dropped."""
    rows = _rows(48)

    def arrivals(number: int) -> dict[str, Any]:
        late_ns = (number % 6) * MS // 4
        return {
            "scheduled_mono_ns": rows[number].started_mono_ns - late_ns,
            "client_queue_ms": late_ns / MS,
            "late_ms": late_ns / MS,
        }

    return _run(
        _changed(rows, arrivals),
        request_rate=16.0,
        arrival="poisson",
        max_in_flight=64,
        dropped=3,
        due=51,
    )


def _ended_early() -> Run:
    """--until and --abort-if."""
    until = UntilEnd("p90_ttft: 10%", 32, 104.0, 0.08, ended_early=True)
    return _run(
        _rows(), until=until, aborted_by=Aborted("failed>0.1", 0.25), end="aborted"
    )


def _swarm_over_tls() -> Run:
    """Workers, TLS, retries and reused connections."""

    def way(number: int) -> dict[str, Any]:
        worker = f"w{number % 3}"
        if number % 4:
            return {"worker": worker, "connection_reused": True, "connect_ms": None}
        return {
            "worker": worker,
            "tls_ms": 3.5 + number % 2,
            "tries": 2,
            "retry_ms": 5.0,
        }

    return _run(
        _changed(_rows(48), way),
        workers=[_health(f"w{number}") for number in range(3)],
        master_lag_s=0.04,
    )


def _server_times() -> Run:
    """A server's own times of requests, drafts, and counters."""

    def own(number: int) -> dict[str, Any]:
        return {
            "server_queue_ms": 1.0 + number % 3,
            "server_prompt_ms": 60.0 + number % 5,
            "server_predict_ms": 190.0 + number % 7,
            "server_prompt_tokens": 10,
            "draft_tokens": 8,
            "draft_accepted": number % 9,
        }

    times = ServerTimes(40, 3600.0, 12000.0, 80.0, 2600.0, 8200.0)
    counters = ServerCounters(
        prompt_tokens=400,
        output_tokens=440,
        requests=40,
        cache_queries=400,
        cache_hits=0,
        times=times,
    )
    return _run(
        _changed(_rows(40), own),
        backend="vllm",
        targets=[_target(backend="vllm")],
        counters=counters,
    )


def _without_anything() -> Run:
    """No request was measured."""
    return _run([record(0, warmup=True)], num_prompts=4, end="interrupted")


MADE: dict[str, Make] = {
    **{f"server: {name}": _of_kind(name) for name in KINDS},
    **{f"API: {name}": _of_api(name) for name in APIS},
    "conversations on two replicas": _conversations,
    "users hang up": _hang_ups,
    "answers of a form": _answer_forms,
    "same answers": _same_answers,
    "probes": _probes,
    "models and adapters in turns": _switching,
    "prompts processed again": _reprocessing,
    "a soak": _soak,
    "telemetry": _telemetry,
    "failures and thresholds": _failures,
    "stages": _stages_run,
    "workloads and percentiles": _workloads,
    "an open loop": _open_loop,
    "ended early": _ended_early,
    "a swarm over TLS": _swarm_over_tls,
    "times of the server": _server_times,
    "no measured request": _without_anything,
}
