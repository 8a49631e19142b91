"""Telemetry with a driver library that is compiled here, and a meter: energies and memory that are
known."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from llama_load.run_folder import load_run
from llama_load.servers.kinds import ServerSpec
from llama_load.servers.serving.launch import serving
from tests.conftest import REPOSITORY, Finished, Simulated, environment, run_to_the_end

pytestmark = pytest.mark.heavy
FAKE = Path(__file__).parent.parent / "telemetry" / "fake_nvml.c"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a libnvidia-ml.so.1 of two GPUs, for LD_LIBRARY_PATH."""
    folder = tmp_path_factory.mktemp("driver")
    library = "libnvidia-ml.so.1"
    command = [
        "cc",
        "-shared",
        "-fPIC",
        f"-Wl,-soname,{library}",
        "-o",
        str(folder / library),
        str(FAKE),
    ]
    subprocess.run(command, check=True)
    return str(folder)


def pid_of(server: Simulated) -> str:
    """The process that listens on the server's port."""
    from llama_load.telemetry.server_processes import listening

    return str(listening({int(server.url.rpartition(":")[2])})[0].pid)


FLAGS = (
    "-u",
    "2",
    "--num-prompts",
    "20",
    "--max-tokens",
    "10",
    "--telemetry-interval",
    "0.2",
    "--price-per-hour",
    "3.6",
)


@pytest.mark.real
def test_energy_and_memory_of_the_servers_gpu(
    driver: str, simulate: Callable[..., Simulated], run_locust: Callable[..., Finished]
) -> None:
    """GPU 0 takes 300 W and the server has 3 of its 5 GiB; GPU 1 is not the server's. 200 tokens in
    some 2 s. Catches a call of NVIDIA's library with the wrong structure or unit; the library is
    compiled."""
    server = simulate("--first-token-ms", "50", "--interval-ms", "15")
    done = run_locust(
        server.url, *FLAGS, LD_LIBRARY_PATH=driver, FAKE_NVML_PID=pid_of(server)
    )
    told = done.summary["llama_load"]["telemetry"]
    seconds = done.summary["duration"]
    assert told["gpus"] == 1 and [gpu["name"] for gpu in told["by_gpu"]] == ["Fake A"]
    assert (told["vram_idle_mib"], told["vram_peak_mib"]) == (3072, 3072)
    assert told["watts"] == pytest.approx(300, rel=0.02)
    assert told["joules"] == pytest.approx(300 * seconds, rel=0.02)
    assert told["joules_per_output_token"] == pytest.approx(
        300 * seconds / 200, rel=0.02
    )
    assert told["joules_per_request"] == pytest.approx(300 * seconds / 20, rel=0.02)
    assert told["cost"] == pytest.approx(seconds / 1000, rel=0.02)
    assert told["gpu_utilization"] == pytest.approx(0.8)
    gpu = told["by_gpu"][0]
    assert (gpu["power_limit_watts"], gpu["temperature_peak_celsius"]) == (350, 61)
    assert (gpu["sm_clock_mhz"], gpu["throttled"]) == (
        pytest.approx(1400),
        pytest.approx(1),
    )
    assert "0 Fake A" in done.out and "Energy per output token (J):" in done.out
    assert "| all | 1 | 3072 |" in (done.folder / "report.md").read_text()
    info = load_run(done.folder).telemetry.find("gpu_info", gpu="0")[0].labels
    assert (info["driver"], info["cuda"], info["uuid"]) == (
        "555.42",
        "12.4",
        "GPU-aaaa",
    )


def test_the_benchmark_prints_the_driver_beside_the_figures(
    driver: str, simulate: Callable[..., Simulated]
) -> None:
    """300 W and 3 GiB, by both; the energy to 2 %. Catches two readers of one driver that
    disagree."""
    server = simulate("--first-token-ms", "50", "--interval-ms", "15")
    command = [sys.executable, "-m", "benchmarks.gpu_telemetry", server.url, "--"]
    command += ["-u", "2", "-n", "40", "--max-tokens", "10"]
    env = environment() | {"LD_LIBRARY_PATH": driver, "FAKE_NVML_PID": pid_of(server)}
    env["LLAMA_LOAD_TELEMETRY_INTERVAL"] = "0.2"
    done = run_to_the_end(command, 100, env=env, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    rows = {}
    for line in done.stdout.splitlines():
        if line.startswith("| ") and "%" in line:
            name, one, other, change = line.strip("| ").split(" | ")
            rows[name] = (float(one), float(other), float(change.rstrip("%")) / 100)
    assert rows["VRAM of the server, peak (MiB)"] == (3072, 3072, 0)
    assert rows["power (W)"][1] == pytest.approx(300, rel=0.02)
    assert abs(rows["energy (J)"][2]) < 0.02


def test_where_the_processes_are_unknown_all_gpus_count(
    driver: str, simulate: Callable[..., Simulated], run_locust: Callable[..., Finished]
) -> None:
    """Catches a driver's error code that ends a run."""
    server = simulate("--first-token-ms", "50", "--interval-ms", "50")
    done = run_locust(
        server.url, *FLAGS, LD_LIBRARY_PATH=driver, FAKE_NVML_LOST_AFTER_S="1.5"
    )
    told = done.summary["llama_load"]["telemetry"]
    assert done.code == 0
    assert told["gpus"] == 2 and told["vram_idle_mib"] == 7168
    assert any(
        note.startswith("GPU 1 of gpus did not answer for") for note in told["notes"]
    )
    assert [gpu["joules"] is None for gpu in told["by_gpu"]] == [False, True] and told[
        "joules"
    ] is None, "not that of a part"


def test_only_visible_gpus_count(
    driver: str, run_locust: Callable[..., Finished], tmp_path: Path
) -> None:
    """Catches indices that CUDA_VISIBLE_DEVICES shifts."""
    with serving(
        ServerSpec(env={"CUDA_VISIBLE_DEVICES": "1"}), tmp_path / "server"
    ) as server:
        done = run_locust(server.url, *FLAGS, LD_LIBRARY_PATH=driver)
    told = done.summary["llama_load"]["telemetry"]
    assert [gpu["gpu"] for gpu in told["by_gpu"]] == ["1"]
    assert told["watts"] == pytest.approx(100, rel=0.02)


def test_a_meter_measures_the_whole_machine(
    driver: str, simulate: Callable[..., Simulated], run_locust: Callable[..., Finished]
) -> None:
    """Catches a meter's process that outlives a run, or joules of the wrong span."""
    server = simulate("--first-token-ms", "50", "--interval-ms", "15")
    meter = """sh -c 'echo "{\\"watts\\": 450}"'"""
    done = run_locust(
        server.url, *FLAGS, "--power-command", meter, LD_LIBRARY_PATH=driver
    )
    told = done.summary["llama_load"]["telemetry"]
    assert told["watts"] == pytest.approx(450, rel=0.02)
    assert told["gpu_watts"] == pytest.approx(400, rel=0.02)


def test_what_a_gpu_held_before_the_server_was_started_is_not_the_servers(
    driver: str,
    run_locust: Callable[..., Finished],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a container no process is seen. 7 GiB were in use on both GPUs when `llama-load serve`
    began, then 4 GiB more. Catches memory of other processes in a server's figure."""
    loaded = tmp_path / "loaded"
    for name, value in {
        "LD_LIBRARY_PATH": driver,
        "FAKE_NVML_LOADED": str(loaded),
    }.items():
        monkeypatch.setenv(name, value)
    with serving(ServerSpec(), tmp_path / "server") as server:
        loaded.touch()
        done = run_locust(server.url, *FLAGS)
    told = done.summary["llama_load"]["telemetry"]
    assert {gpu["gpu"]: gpu["vram_peak_mib"] for gpu in told["by_gpu"]} == {
        "0": 4096,
        "1": 0,
    }


SLEEPY = ("-c", "2048", "-np", "1", "-t", "1", "--sleep-idle-seconds", "2")


def test_watching_a_server_does_not_keep_it_awake(
    llama_cpp: Path,
    tiny_model: Path,
    run_locust: Callable[..., Finished],
    tmp_path: Path,
) -> None:
    """One request each 5 s to a server that sleeps after 2 s: with telemetry as without it wakes
    for each later one of the four, which the run names. Telemetry does not look at its slots.
    Catches a look that wakes a sleeping llama-server."""
    program = llama_cpp / "llama-server"
    spec = ServerSpec("llama-server", str(tiny_model), str(program), SLEEPY)
    load = ("--request-rate", "0.2", "--arrival", "constant", "--num-prompts", "4")
    for interval_s in ("0", "0.2"):
        logs = tmp_path / f"logs-{interval_s}"
        folder = tmp_path / f"run-{interval_s}"
        with serving(spec, logs) as server:
            flags = ("--max-tokens", "4", "--warmup", "0")
            done = run_locust(
                server.url,
                *load,
                *flags,
                "--telemetry-interval",
                interval_s,
                folder=folder,
            )
            (log,) = logs.glob("*.log")
            text = log.read_text()
        checks = done.summary["llama_load"]["verdict"]["checks"]
        (named,) = (check for check in checks if check["name"] == "server_wakes")
        assert 3 <= named["value"] <= text.count("server is exiting sleeping state")
        assert not any("another client" in check["text"] for check in checks)
        run = load_run(folder)
        assert not run.telemetry.find("slots", f"{server.url}/slots")
        pages = run.telemetry.find("llamacpp:requests_processing")
        assert bool(pages) is (interval_s != "0")
