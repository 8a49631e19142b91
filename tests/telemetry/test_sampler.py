"""The sampler's process, and whole runs with it."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from llama_load.ground.errors import UsageError
from llama_load.loadgen.options.flag_reader import FlagReader
from llama_load.loadgen.options.options import read_options
from llama_load.loadgen.options.secret_flags import secret_values
from llama_load.loadgen.run import telemetry_process
from llama_load.loadgen.run.live_telemetry import LiveTelemetry
from llama_load.run_folder import load_run
from llama_load.run_folder.observed.window import Window
from llama_load.run_folder.sampler_config import Endpoint, SamplerConfig
from llama_load.run_folder.telemetry_file import (
    SAMPLES,
    TELEMETRY,
    load_telemetry,
    read_samples,
)
from llama_load.servers.serving.launch import Server
from llama_load.telemetry.sample_file import SampleFile
from llama_load.telemetry.sampler import SourceThread, run
from llama_load.telemetry.source import Source, SourceError, Value
from tests.conftest import (
    Finished,
    Simulated,
    environment,
    locust_command,
    start_program,
)
from tests.json_server import json_server
from tests.scripted_server import ScriptedServer


@contextmanager
def sampler(folder: Path, **config: object) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "llama_load.telemetry.sampler"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdin.write(
            json.dumps(
                {"file": str(folder / SAMPLES), "interval_s": 0.1} | config
            ).encode()
            + b"\n"
        )
        process.stdin.flush()
        try:
            yield process
        finally:
            process.kill()


def test_it_samples_when_asked_and_ends_with_its_input(tmp_path: Path) -> None:
    with sampler(tmp_path, interval_s=60) as process:
        assert process.stdout.readline() == b"ready\n"
        process.stdin.write(b"sample\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"sampled\n"
        process.stdin.close()
        assert process.wait(10) == 0
    assert (
        len(read_samples(tmp_path / SAMPLES).find("host_cpu_seconds_total")[0].t_ns)
        == 2
    )


def test_a_process_that_died_before_its_run_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = [[sys.executable, "-c", ""], [sys.executable, "-c", "input()"]]
    monkeypatch.setattr(telemetry_process, "module_command", lambda _: started.pop(0))
    telemetry_process.start_sampler_ahead()
    telemetry_process._ahead[0].wait()
    process = telemetry_process.sampler()
    assert process.poll() is None
    process.stdin.close()
    assert process.wait() != 0
    process.stdout.close()


def test_signals_of_the_terminal_do_not_end_it(tmp_path: Path) -> None:
    with sampler(tmp_path) as process:
        assert process.stdout.readline() == b"ready\n"
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process.send_signal(each)
        process.stdin.write(b"sample\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"sampled\n"


def test_a_sampler_without_a_run_ends_without_a_word() -> None:
    """It was started ahead of one that was refused."""
    done = subprocess.run(
        [sys.executable, "-m", "llama_load.telemetry.sampler"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == (b"", b"")


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    with sampler(tmp_path, file="/nowhere/x") as process:
        process.wait(10)
        assert process.stderr.read() == b"telemetry: No such file or directory\n"


class Faulty(Source):
    """Says 1, 2, 3, …; is down at the third time; raises nonsense at the fifth."""

    name = "faulty"

    def __init__(self) -> None:
        self.times = 0

    def sample(self) -> Iterable[Value]:
        self.times += 1
        if self.times == 3:
            raise SourceError("gone for a moment")
        if self.times == 5:
            raise RuntimeError("nonsense")
        yield Value("times", float(self.times))


def test_a_source_that_fails_is_noted_once_and_asked_again(tmp_path: Path) -> None:
    file = SampleFile(str(tmp_path / SAMPLES))
    thread = SourceThread(Faulty(), file, 0.01)
    thread.start()
    deadline_s = time.monotonic() + 20
    while (
        len(load_telemetry(tmp_path).find("times") or [()])
        and time.monotonic() < deadline_s
    ):
        found = load_telemetry(tmp_path)
        if found.find("times") and found.find("times")[0].values[-1] > 6:
            break
        time.sleep(0.02)  # between two looks
    assert {1.0, 2.0, 4.0, 6.0} <= set(found.find("times")[0].values)
    assert found.find("up")[0].values.min() == 0
    assert list(found.notes) == [
        "faulty: gone for a moment",
        "faulty: RuntimeError('nonsense')",
    ]


def test_a_value_that_stays_the_same_is_written_when_that_begins_and_ends(
    tmp_path: Path,
) -> None:
    """Whether it ends with another value or with the samples."""
    file = SampleFile(str(tmp_path / SAMPLES))
    for instant, value in enumerate((5.0, 5.0, 5.0, 6.0, 6.0, 6.0), 1):
        file.add("host", instant, [Value("cpus", value)])
    file.complete()
    lines = [json.loads(line) for line in (tmp_path / SAMPLES).read_text().splitlines()]
    assert lines[1:] == [
        ["values", instant, [0, value]]
        for instant, value in ((1, 5.0), (3, 5.0), (4, 6.0), (6, 6.0))
    ]


def test_the_newest_samples_can_be_followed_while_they_are_written(
    tmp_path: Path,
) -> None:
    live = LiveTelemetry(tmp_path / SAMPLES)
    assert live.series() == []
    file = SampleFile(str(tmp_path / SAMPLES))
    file.add("gpus", 1, [Value("watts", 300.0, (("gpu", "0"),))])
    assert [
        (each.source, each.metric, each.labels, each.value) for each in live.series()
    ] == [("gpus", "watts", {"gpu": "0"}, 300)]
    for number in range(1000):
        file.add("gpus", 2 + number, [Value("watts", float(number), (("gpu", "0"),))])
    points = live.series()[0].points
    assert len(points) == 600 and points[-1] == (1001, 999.0)
    (tmp_path / SAMPLES).unlink()
    assert live.series()[0].value == 999


# ---------------------------------------------------------------------- whole runs


def test_a_run_has_the_servers_counters_of_its_measured_requests(
    llama_server: Server, run_locust: Callable[..., Finished]
) -> None:
    done = run_locust(
        llama_server.url,
        "-u",
        "2",
        "--num-prompts",
        "6",
        "--warmup",
        "2",
        "--max-tokens",
        "8",
        "--ignore-eos",
        "--telemetry-interval",
        "1",
    )
    run = load_run(done.folder)
    measured = run.records.measured()
    window = Window(
        int(measured.instants("started_mono_ns").min()),
        int(measured.instants("ended_mono_ns").max()),
    )
    counter = run.telemetry.find(
        "llamacpp:tokens_predicted_total", f"{llama_server.url}/metrics"
    )[0]
    assert counter.increase(window, around=True) == 6 * 8
    assert run.telemetry.find("slots", f"{llama_server.url}/slots")[0].values[-1] == 4
    told = done.summary["llama_load"]["telemetry"]
    assert (
        told["server_memory_peak_mib"] > 10
        and told["server_cpu_cores"] > 0
        and told["telemetry_cpu_cores"] > 0
    )
    assert told["vram_peak_mib"] is None and told["joules"] is None
    assert (
        "Telemetry" in done.out
        and not (done.folder / SAMPLES).exists()
        and (done.folder / TELEMETRY).exists()
    )


def test_other_pages_are_scraped_with_the_token_and_not_with_the_key(
    llama_server: Server, run_locust: Callable[..., Finished]
) -> None:
    """Half a page at the second: noted once, and the run goes on."""
    pages = iter([b"x_total 5\n", b"x_total 1", *[b"x_total 7\n"] * 99])
    with json_server({"/metrics": lambda _: (200, next(pages), {})}) as other:
        flags = (
            "-u",
            "1",
            "--num-prompts",
            "6",
            "--max-tokens",
            "60",
            "--ignore-eos",
            "--api-key",
            "the-servers-key",
        )
        done = run_locust(
            llama_server.url,
            *flags,
            "--scrape",
            other.url,
            "--telemetry-interval",
            "0.1",
            LLAMA_LOAD_SCRAPE_TOKEN="the-other-token",
        )
    assert done.code == 0
    assert {each.get("Authorization") for each in other.headers} == {
        "Bearer the-other-token"
    }
    found = load_run(done.folder).telemetry
    assert set(found.find("x_total", f"{other.url}/metrics")[0].values) == {5, 7}
    assert [note for note in found.notes if "half a page" in note] == [
        f"{other.url}/metrics: sent half a page of metrics"
    ]
    told = b"".join(
        path.read_bytes() for path in done.folder.rglob("*") if path.is_file()
    )
    assert b"the-other-token" not in told and b"the-servers-key" not in told


def test_a_killed_run_leaves_no_sampler_and_its_report_has_the_samples(
    simulate: Callable[..., Simulated],
    tmp_path: Path,
    run_report: Callable[..., Finished],
) -> None:
    folder = tmp_path / "run"
    command = locust_command(
        simulate().url,
        folder,
        "-u",
        "1",
        "--num-prompts",
        "5000",
        "--telemetry-interval",
        "0.1",
    )
    process = start_program(command[2:], tmp_path, environment())
    deadline_s = time.monotonic() + 60
    while not (folder / "requests.arrows").exists() and time.monotonic() < deadline_s:
        time.sleep(0.05)  # between two looks
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    while samplers_of(folder) and time.monotonic() < deadline_s:
        time.sleep(0.05)  # between two looks
    assert not samplers_of(folder)
    assert run_report(folder).code == 3
    assert (
        load_run(folder).telemetry.find("host_cpu_seconds_total")
        and not (folder / SAMPLES).exists()
    )


def samplers_of(folder: Path) -> list[int]:
    """The processes that have this folder's samples open."""
    import psutil

    found = []
    for process in psutil.process_iter():
        try:
            if any(Path(each.path).parent == folder for each in process.open_files()):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize(
    ("flag", "value", "sentence"),
    [
        ("telemetry_interval", "0.01", "at least 0.1 s"),
        ("scrape", ["ftp://x"], "--scrape: 'ftp://x' is not an http"),
        ("scrape", ["http://u:p@x"], "--scrape: 'http://x' must be a plain base URL"),
        ("power_command", "a 'b", "check its quotes"),
        ("price_per_hour", "-1", "--price-per-hour"),
    ],
)
def test_wrong_flags_are_refused(flag: str, value: object, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        read_options(SimpleNamespace(**{flag: value}))


def test_pages_without_a_path_are_at_metrics() -> None:
    options = read_options(
        SimpleNamespace(
            scrape=["http://a:9410", "https://b/gpu/metrics http://a:9410/"]
        )
    )
    assert options.telemetry.scrape == (
        "http://a:9410/metrics",
        "https://b/gpu/metrics",
    )


def test_a_meter_that_is_no_program_is_refused_before_the_run(
    run_locust: Callable[..., Finished],
) -> None:
    done = run_locust("http://127.0.0.1:9", "--power-command", "no-such-meter-here")
    assert done.code == 2 and "is no program on this machine" in done.err


def test_a_page_that_never_answers_is_noted_at_the_end(tmp_path: Path) -> None:
    """Its thread still waited when the run ended, and nothing told it from a server without
    metrics."""
    with ScriptedServer([b"HTTP/1.1 200 OK\r\n", "hold"]) as server:
        config = SamplerConfig(
            file=str(tmp_path / SAMPLES),
            interval_s=0.1,
            exporters=[Endpoint(name="meter", url=server.url)],
        )
        run(config, io.BytesIO(), io.BytesIO())
    assert any(
        note.startswith("meter: no answer for")
        for note in read_samples(tmp_path / SAMPLES).notes
    )


def test_the_sampler_imports_nothing_heavy() -> None:
    """It is started for every run, on the machine that measures."""
    heavy = "gevent numpy requests pyarrow httptools prometheus_client pynvml"
    code = f"import llama_load.telemetry.sampler, sys; print([name for name in '{heavy}'.split() if name in sys.modules])"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )


def test_the_token_is_a_secret_that_goes_to_no_server() -> None:
    """Else the web UI would refuse servers that the token was not given for."""
    flags = FlagReader(
        SimpleNamespace(
            scrape_token="the-other-token",
            swarm_key="the-swarms-key",
            api_key="the-servers-key",
        )
    )
    assert set(secret_values(flags)) == {
        "the-other-token",
        "the-swarms-key",
        "the-servers-key",
    }
    assert secret_values(flags, for_servers=True) == ["the-servers-key"]
