"""Sources against files, servers and commands that behave, misbehave and go away."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pynvml
import pytest

from llama_load.ground.processes import listening
from llama_load.outside.bound_headers import bound
from llama_load.run_folder.sampler_config import Endpoint
from llama_load.servers.serving.launch import Server
from llama_load.telemetry import page_source, prometheus, server_processes
from llama_load.telemetry.amd import AmdGpus
from llama_load.telemetry.host_source import Host
from llama_load.telemetry.nvml import NvidiaGpus
from llama_load.telemetry.power_command import PowerCommand
from llama_load.telemetry.prometheus import OF_SERVERS, Scrape, parse
from llama_load.telemetry.server_processes import ServerProcesses
from llama_load.telemetry.slots import Slots
from llama_load.telemetry.source import Source, SourceError
from tests.json_server import json_server
from tests.scripted_server import ScriptedServer


def values(source: Source) -> dict[tuple[str, str], float]:
    """Value by metric and gpu."""
    return {
        (each.metric, dict(each.labels).get("gpu", "")): each.value
        for each in source.sample()
    }


# ---------------------------------------------------------------------- GPUs


def amd_card(root: Path, name: str, files: dict[str, str]) -> None:
    for file, text in ({"device/vendor": "0x1002"} | files).items():
        path = root / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def test_amd_gpus_are_read_from_the_kernels_files(tmp_path: Path) -> None:
    hwmon = "device/hwmon/hwmon3"
    files = {
        "device/mem_info_vram_used": "2147483648",
        "device/gpu_busy_percent": "75",
        "device/product_name": "Radeon 显卡",
    }
    files |= {
        f"{hwmon}/power1_average": "212000000",
        f"{hwmon}/temp1_input": "61000",
        f"{hwmon}/power1_cap": "300000000",
    }
    amd_card(tmp_path, "card1", files)
    amd_card(
        tmp_path, "card0", {"device/vendor": "0x8086", "device/gpu_busy_percent": "3"}
    )
    amd_card(tmp_path, "card1-DP-1", {})
    found = values(AmdGpus(tmp_path))
    assert found == {
        ("gpu_info", "card1"): 1,
        ("gpu_memory_used_bytes", "card1"): 2 * 2**30,
        ("gpu_utilization_ratio", "card1"): 0.75,
        ("gpu_power_watts", "card1"): 212,
        ("gpu_power_limit_watts", "card1"): 300,
        ("gpu_temperature_celsius", "card1"): 61,
    }
    assert next(iter(AmdGpus(tmp_path).sample())).labels == (
        ("gpu", "card1"),
        ("name", "Radeon 显卡"),
    )


def test_an_amd_gpu_that_is_gone_is_an_error_and_one_value_less_is_none(
    tmp_path: Path,
) -> None:
    amd_card(
        tmp_path,
        "card0",
        {"device/gpu_busy_percent": "5", "device/mem_info_vram_used": "1"},
    )
    gpus = AmdGpus(tmp_path)
    (tmp_path / "card0/device/gpu_busy_percent").write_text("")
    assert ("gpu_utilization_ratio", "card0") not in values(gpus)
    (tmp_path / "card0/device/mem_info_vram_used").unlink()
    with pytest.raises(SourceError, match="card0"):
        values(gpus)
    assert not AmdGpus(tmp_path / "nowhere").cards


class Driver:
    """NVML as pynvml calls it: one GPU, which supports memory, power and processes, and tells how
    much each computed where `computing` is given. (Heavy tests compile a real library.)"""

    def __init__(
        self,
        processes: list[tuple[int, int]],
        used: int,
        computing: list[tuple[int, int]] | None = None,
    ) -> None:
        self.processes, self.used = processes, used
        self.computing = computing
        self.asked_since_us: list[int] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        return lambda *arguments: self.answer(
            name, *[getattr(each, "_obj", each) for each in arguments]
        )

    def answer(self, name: str, *arguments: Any) -> int:
        out = arguments[-1] if arguments else None
        if name == "nvmlDeviceGetCount_v2":
            out.value = 1
        elif name == "nvmlDeviceGetMemoryInfo":
            out.used, out.total = self.used, 24 << 30
        elif name == "nvmlDeviceGetPowerUsage":
            out.value = 250_000
        elif name == "nvmlDeviceGetComputeRunningProcesses_v3":
            room, arguments[1].value = arguments[1].value, len(self.processes)
            if self.processes and not room:
                return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
            for place, (pid, used) in enumerate(self.processes):
                out[place].pid, out[place].usedGpuMemory = pid, used
        elif name == "nvmlDeviceGetProcessUtilization" and self.computing is not None:
            since_us = arguments[3].value
            if not self.computing:
                return int(pynvml.NVML_ERROR_NOT_FOUND)
            room, arguments[2].value = arguments[2].value, len(self.computing)
            if not room:
                return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
            self.asked_since_us.append(since_us)
            for place, (pid, percent) in enumerate(self.computing):
                sample = arguments[1][place]
                sample.pid, sample.smUtil = pid, percent
                sample.timeStamp = since_us + 1000 + place
        elif name not in ("nvmlInitWithFlags", "nvmlDeviceGetHandleByIndex_v2"):
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return 0


def gpu(
    monkeypatch: pytest.MonkeyPatch,
    processes: list[tuple[int, int]],
    used: int,
    environ: str | None = None,
) -> dict[Any, float]:
    monkeypatch.setattr(pynvml, "nvmlLib", Driver(processes, used))
    monkeypatch.setattr(pynvml, "_LoadNvmlLibrary", lambda: None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    servers = SimpleNamespace(pids=[os.getpid()], environment=lambda _: environ)
    return values(NvidiaGpus(servers))  # type: ignore[arg-type]


def test_the_memory_of_the_servers_processes_is_told_from_that_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = gpu(monkeypatch, [(os.getpid(), 3 << 30), (1, 1 << 30)], 5 << 30)
    assert (
        found["gpu_memory_server_bytes", "0"] == 3 << 30
        and found["gpu_in_use", "0"] == 1
    )
    assert found["gpu_power_watts", "0"] == 250
    assert ("gpu_energy_joules_total", "0") not in found, (
        "it is not supported: nothing, not 0"
    )


def test_what_others_compute_on_the_servers_gpu_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server 60 %, two others 20 and 5 %; then nobody; a driver that does not tell. Each look
    asks for what came since the one before."""
    own = (os.getpid(), 3 << 30)
    driver = Driver([own], 5 << 30, [(own[0], 60), (1, 20), (2, 5)])
    monkeypatch.setattr(pynvml, "nvmlLib", driver)
    monkeypatch.setattr(pynvml, "_LoadNvmlLibrary", lambda: None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    servers = SimpleNamespace(pids=[own[0]], environment=lambda _: None)
    gpus = NvidiaGpus(servers)  # type: ignore[arg-type]
    assert values(gpus)["gpu_others_ratio", "0"] == pytest.approx(0.25)
    assert values(gpus)["gpu_others_ratio", "0"] == pytest.approx(0.25)
    assert driver.asked_since_us == [0, 1002]
    driver.computing = []
    assert values(gpus)["gpu_others_ratio", "0"] == 0
    assert ("gpu_others_ratio", "0") not in gpu(monkeypatch, [own], 5 << 30)


def test_a_gpu_without_a_process_of_the_server_is_not_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert gpu(monkeypatch, [(os.getppid(), 1 << 30)], 5 << 30)["gpu_in_use", "0"] == 0


def test_processes_of_another_container_say_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """5 GiB in use without a process that can be seen: then CUDA_VISIBLE_DEVICES decides, else all
    GPUs count."""
    assert ("gpu_in_use", "0") not in gpu(monkeypatch, [], 5 << 30)
    assert gpu(monkeypatch, [], 5 << 30, "1,2")["gpu_in_use", "0"] == 0
    assert gpu(monkeypatch, [], 5 << 30, "0")["gpu_in_use", "0"] == 1


def test_memory_that_the_driver_does_not_tell_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    not_available = ctypes.c_ulonglong(-1).value
    found = gpu(monkeypatch, [(os.getpid(), not_available)], 5 << 30)
    assert (
        found["gpu_in_use", "0"] == 1 and ("gpu_memory_server_bytes", "0") not in found
    )


# ---------------------------------------------------------------------- host and processes


def test_the_host_says_what_psutil_says() -> None:
    found = values(Host())
    assert found["host_memory_total_bytes", ""] == psutil.virtual_memory().total
    assert (
        0 < found["host_memory_used_bytes", ""] < found["host_memory_total_bytes", ""]
    )


def test_the_servers_processes_are_found_by_their_port(llama_server: Server) -> None:
    port = int(llama_server.url.rpartition(":")[2])
    source = ServerProcesses([port])
    found = values(source)
    assert (
        found["server_processes", ""] == 1
        and found["server_memory_bytes", ""] > 10 << 20
    )
    assert found["server_cpu_seconds_total", ""] == 0, "counted from the first sample"
    (info,) = (each for each in source.sample() if each.metric == "server_info")
    (again,) = (
        each
        for each in ServerProcesses([port]).sample()
        if each.metric == "server_info"
    )
    assert info == again and dict(info.labels)["process"]
    with pytest.raises(SourceError, match="cannot be seen"):
        values(ServerProcesses([1]))


def test_who_asks_while_another_looks_for_the_processes_waits(
    llama_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPUs' thread asks whose memory it is, while that of the processes looks."""
    port = int(llama_server.url.rpartition(":")[2])
    begun = threading.Event()
    go_on = threading.Event()

    def slowly(ports: Iterable[int]) -> list[psutil.Process]:
        begun.set()
        go_on.wait(20)
        return listening(ports)

    monkeypatch.setattr(server_processes, "listening", slowly)
    source = ServerProcesses([port])
    with ThreadPoolExecutor() as threads:
        pids = threads.submit(lambda: source.pids)
        assert begun.wait(20)
        sampled = threads.submit(values, source)
        go_on.set()
        assert sampled.result(20)["server_processes", ""] == 1
        assert len(pids.result(20)) == 1


# ---------------------------------------------------------------------- pages


def scrape(url: str, only: tuple[str, ...] = ()) -> dict[str, float]:
    return {
        each.metric: each.value
        for each in Scrape(Endpoint(name=url, url=f"{url}/metrics"), only=only).sample()
    }


def test_the_real_servers_metrics_and_slots(llama_server: Server) -> None:
    found = scrape(llama_server.url, OF_SERVERS)
    assert {
        "llamacpp:requests_processing",
        "llamacpp:prompt_tokens_total",
    } <= found.keys()
    slots = {
        each.metric: each.value
        for each in Slots(Endpoint(name="s", url=f"{llama_server.url}/slots")).sample()
    }
    assert (slots["slots"], slots["slots_processing"]) == (4, 0)


def page(body: bytes, *fields: str) -> bytes:
    return "\r\n".join(["HTTP/1.1 200 OK", *fields, "", ""]).encode() + body


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [
        ([page(b"x_total 12", "Content-Length: 12")], "middle of its answer"),
        ([page(b"x_total 12")], "half a page"),
        ([page(b"5\r\nx_tot", "Transfer-Encoding: chunked")], "middle of its answer"),
        ([page(b"<html>not metrics</html>\n")], "no metrics"),
        ([b"HTTP/1.1 500 Oops \x1b[2J\r\n\r\n"], "answers 500 Oops"),
        ([b"nonsense\r\n\r\n"], "no HTTP answer"),
        ([b""], "without an answer"),
        (["reset"], "does not answer|middle|without an answer"),
        ([page(b""), b"x" * (9 << 20)], "sends more than 8 MiB"),
    ],
    ids=[
        "short",
        "cut line",
        "chunked",
        "html",
        "500",
        "nonsense",
        "empty",
        "reset",
        "endless",
    ],
)
def test_half_a_page_and_no_page_are_errors(steps: list[Any], sentence: str) -> None:
    with (
        ScriptedServer(steps) as server,
        pytest.raises(SourceError, match=sentence) as raised,
    ):
        scrape(server.url)
    assert "\x1b" not in str(raised.value)


def test_a_page_that_never_ends_is_given_up_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page_source, "WITHIN_S", 0.3)
    with (
        ScriptedServer([page(b"x 1\n", "Content-Length: 99"), "hold"]) as server,
        pytest.raises(SourceError, match="within"),
    ):
        scrape(server.url)


def test_the_deadline_holds_for_the_whole_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also for a peer that sends a byte now and then, and in a TLS handshake, where each byte began
    a new timeout."""
    monkeypatch.setattr(page_source, "WITHIN_S", 0.5)
    drip = [step for _ in range(40) for step in (b"x", 0.1)]
    for scheme, steps in (
        ("http", [page(b"x 1\n", "Content-Length: 99"), *drip]),
        ("http", [page(b"x 1\n"), *drip]),
        ("http", [b"HTTP/1.1 200 OK\r\nX: ", *drip]),
        ("https", [b"\x16\x03\x03\x3f\xff", *drip]),
    ):
        since = time.monotonic()
        with (
            ScriptedServer(steps, read_request=scheme == "http") as server,
            pytest.raises(SourceError, match=r"within 0\.5 s"),
        ):
            scrape(server.url.replace("http", scheme))
        assert time.monotonic() - since < 3


def test_a_page_in_small_chunks_is_read_in_linear_time() -> None:
    """400,000 chunks of a byte: each was cut off the rest of the page, 40 minutes for a page within
    the limits."""
    text = b"x 1\n" * 100_000
    body = b"".join(b"1\r\n%c\r\n" % byte for byte in text) + b"0\r\n\r\n"
    since = time.monotonic()
    with ScriptedServer([page(body, "Transfer-Encoding: chunked")]) as server:
        assert Scrape(Endpoint(name="s", url=server.url)).page() == text
    assert time.monotonic() - since < 8


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "x{" + ",".join(f'l{n}="v"' for n in range(30_000)) + "} 1\n",
            "a line of more than 16,000 characters",
        ),
        ("x 1\n" * 1_000_000, "take more than 0.2 s"),
    ],
    ids=["one line", "many lines"],
)
def test_metrics_that_take_long_to_read_are_given_up(
    text: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parser takes the square of a line's length."""
    monkeypatch.setattr(prometheus, "PARSED_WITHIN_S", 0.2)
    since = time.monotonic()
    with pytest.raises(SourceError, match=sentence):
        list(parse(text))
    assert time.monotonic() - since < 3


def test_a_page_that_is_gone_is_an_error() -> None:
    with ScriptedServer([]) as server:
        url = server.url
    with pytest.raises(SourceError, match="does not answer"):
        scrape(url)


def test_a_chunked_page_is_whole() -> None:
    with ScriptedServer(
        [page(b"4\r\nx 12\r\n1\r\n\n\r\n0\r\n\r\n", "Transfer-Encoding: chunked")]
    ) as server:
        assert scrape(server.url) == {"x": 12}


def test_no_redirect_is_followed_and_the_key_goes_along() -> None:
    with json_server(
        {"/metrics": (302, "", {"Location": "http://127.0.0.1:1/"})}
    ) as server:
        with pytest.raises(SourceError, match="answers 302"):
            list(
                Scrape(
                    Endpoint(
                        name="s",
                        url=server.url + "/metrics",
                        headers=bound(server.url, (("Authorization", "Bearer k"),)),
                    )
                ).sample()
            )
        assert server.headers[0]["Authorization"] == "Bearer k"


def test_of_a_server_only_its_own_metrics_are_kept() -> None:
    text = 'vllm:x_total{engine="0"} 1\nvllm:x_created 5\npython_info 1\ngpu_info{gpu="0"} 1\n'
    assert [each.metric for each in parse(text, OF_SERVERS)] == ["vllm:x_total"]


def test_dcgm_gets_our_names_and_units() -> None:
    text = 'DCGM_FI_DEV_FB_USED{gpu="3",modelName="H"} 2\nDCGM_FI_DEV_GPU_UTIL{gpu="3",modelName="H"} 50\n'
    found = {each.metric: (each.value, dict(each.labels)) for each in parse(text)}
    assert found["gpu_memory_used_bytes"] == (2 << 20, {"gpu": "3"})
    assert found["gpu_utilization_ratio"][0] == 0.5 and found["gpu_info"][1] == {
        "gpu": "3",
        "name": "H",
    }


def gpus_on(page: str) -> dict[str, tuple[dict[str, str], float | None]]:
    """By name the labels of `gpu_info`, and the power."""
    found = list(parse(page))
    watts = {
        dict(each.labels)["gpu"]: each.value
        for each in found
        if each.metric == "gpu_power_watts"
    }
    infos = [dict(each.labels) for each in found if each.metric == "gpu_info"]
    assert len({info["gpu"] for info in infos}) == len(infos)
    return {
        info.pop("gpu"): (info, watts.get(gpu))
        for info in infos
        for gpu in [info["gpu"]]
    }


def test_dcgm_names_boards_and_mig_instances_by_their_uuid() -> None:
    """Instances have no utilization, and are GPUs none the less."""
    labels = 'gpu="0",UUID="GPU-a",modelName="H",Hostname="n"'
    text = f"DCGM_FI_DEV_POWER_USAGE{{{labels}}} 300\nDCGM_FI_DEV_GPU_UTIL{{{labels}}} 50\n"
    assert gpus_on(text) == {"0": ({"name": "H", "uuid": "GPU-a"}, 300)}
    text = "".join(
        f'DCGM_FI_DEV_POWER_USAGE{{{labels},GPU_I_ID="{mig}",GPU_I_PROFILE="1g"}} 300\n'
        for mig in (1, 2)
    )
    assert gpus_on(text) == {
        f"0 MIG {mig}": ({"name": "H", "uuid": "GPU-a", "mig": mig}, 300)
        for mig in "12"
    }


def test_the_gpus_of_several_machines_on_one_page_stay_apart() -> None:
    """A federating Prometheus adds `instance`; its hosts' exporters, or ours, each have a GPU 0."""
    dcgm = "".join(
        f'DCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="GPU-{host}",instance="{host}:9400"}} {watts}\n'
        for host, watts in (("a", 1), ("b", 2))
    )
    assert {name: watts for name, (_, watts) in gpus_on(dcgm).items()} == {
        "a:9400 0": 1,
        "b:9400 0": 2,
    }
    hosts = "".join(
        f'DCGM_FI_DEV_POWER_USAGE{{gpu="0",Hostname="{host}"}} {watts}\n'
        for host, watts in (("a", 1), ("b", 2))
    )
    assert {name: watts for name, (_, watts) in gpus_on(hosts).items()} == {
        "a 0": 1,
        "b 0": 2,
    }
    ours = "".join(
        f'llama_load_gpu_info{{gpu="0",uuid="GPU-{host}",instance="{host}"}} 1\nllama_load_gpu_power_watts{{gpu="0",instance="{host}"}} {watts}\n'
        for host, watts in (("a", 1), ("b", 2))
    )
    assert {name: watts for name, (_, watts) in gpus_on(ours).items()} == {
        "a 0": 1,
        "b 0": 2,
    }


def test_labels_of_a_foreign_page_are_cleaned() -> None:
    (only,) = parse('x{name="a\u202eb\x1b"} 1\n')
    assert only.labels == (("name", "a\ufffdb\ufffd"),)


@pytest.mark.parametrize("answer", [b"nonsense", b'{"error": 1}', b"[[[" * 99999])
def test_slots_that_are_no_list_are_an_error(answer: bytes) -> None:
    with (
        json_server({"/slots": answer}) as server,
        pytest.raises(SourceError, match="no list of slots"),
    ):
        list(Slots(Endpoint(name="s", url=server.url + "/slots")).sample())


def test_slots_with_odd_fields_are_counted_as_far_as_they_are_known() -> None:
    slots = [
        {"is_processing": True, "n_prompt_tokens": 7, "next_token": [{"n_decoded": 3}]},
        {"is_processing": "x"},
        5,
    ]
    slots += [
        {"is_processing": True, "n_prompt_tokens": "7", "next_token": {"n_decoded": 2}}
    ]
    with json_server({"/slots": slots}) as server:
        found = [
            each.value
            for each in Slots(Endpoint(name="s", url=server.url + "/slots")).sample()
        ]
    assert found == [3, 2, 7, 5]


# ---------------------------------------------------------------------- a meter


def meter(code: str) -> PowerCommand:
    return PowerCommand([sys.executable, "-c", code])


def test_a_command_that_ends_is_started_for_each_sample() -> None:
    source = meter(
        """print('{"watts": 312.5, "volts": 12, "name": "x", "on": true}')"""
    )
    assert (
        values(source)
        == values(source)
        == {("power_watts", ""): 312.5, ("volts", ""): 12}
    )


def test_a_command_that_goes_on_is_asked_for_its_newest_line() -> None:
    code = """import time
for joules in range(100):
    print('{"joules": %d}' % joules, flush=True)
    time.sleep(0.02)
time.sleep(60)"""
    source = meter(code)
    first, second = (values(source)["power_joules_total", ""] for _ in range(2))
    assert 0 <= first < second
    source.close()


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("print('12 W \\x1b[2J')", "must print lines of JSON, it printed '12 W"),
        ("print('{}')", "must print {"),
        ("""print('{"watts": "12"}')""", "must print {"),
        ("raise SystemExit(3)", "exit code 3 and printed nothing"),
        ("import time; time.sleep(60)", "printed no line within"),
        ("print('x' * 200_000, end='')", "must print lines of JSON|printed no line"),
    ],
    ids=["text", "nothing known", "no number", "fails", "silent", "endless"],
)
def test_a_command_that_is_no_meter_is_an_error(
    code: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llama_load.telemetry.power_command.WITHIN_S", 0.5)
    source = meter(code)
    with pytest.raises(SourceError, match=sentence) as raised:
        values(source)
    assert "\x1b" not in str(raised.value)
    source.close()


def test_a_command_that_is_not_there_is_an_error() -> None:
    with pytest.raises(SourceError, match="cannot be started"):
        values(PowerCommand(["/nowhere/meter"]))


def test_a_meter_that_is_closed_while_it_is_waited_for() -> None:
    source = meter("import time; time.sleep(60)")
    closing = threading.Timer(0.3, source.close)
    closing.start()
    with pytest.raises(SourceError, match="before the sampling ended"):
        values(source)
    closing.join()
