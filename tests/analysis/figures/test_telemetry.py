"""What is computed from series: expected numbers are worked out by hand."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from pytest import approx

from llama_load.analysis.figures.measured_telemetry import Measured
from llama_load.analysis.figures.telemetry_figures import FIGURES, telemetry_figures
from llama_load.analysis.results.telemetry_analysis import logged_mib
from llama_load.loadgen.run.live_meters import present_values
from llama_load.loadgen.run.live_telemetry import LiveSeries
from llama_load.run_folder.observed.gpu_identity import gpus_in_use
from llama_load.run_folder.observed.server_description import Buffers, ServerDescription
from llama_load.run_folder.observed.telemetry_series import Series, Telemetry
from llama_load.run_folder.observed.window import Window
from llama_load.tables.numbers import brief, short

S = 1_000_000_000
GIB = float(1 << 30)


def series(
    metric: str, samples: dict[float, float], source: str = "gpus", **labels: str
) -> Series:
    """A series of samples at these seconds."""
    return Series(
        source,
        metric,
        labels,
        np.array([int(t * S) for t in samples]),
        np.array(list(samples.values()), dtype=float),
    )


def window(begun_s: float, ended_s: float) -> Window:
    return Window(int(begun_s * S), int(ended_s * S))


def measured(
    *found: Series, begun_s: float = 0, ended_s: float = 10, **known: float
) -> Measured:
    return Measured(
        telemetry=Telemetry(found),
        windows=[window(begun_s, ended_s)],
        idle_ns=0,
        **known,
    )


def test_a_counter_is_interpolated_at_both_edges_of_the_window() -> None:
    counter = series("x_total", {0: 10, 10: 20, 20: 40})
    assert counter.increase(window(5, 15)) == 5 + 10
    assert counter.increase(window(5, 15), around=True) == 30, (
        "from the sample before to the sample after"
    )


def test_a_drop_of_a_counter_is_a_reset() -> None:
    """20 -> 4: it began at 0 again and counted 4 since."""
    counter = series("x_total", {0: 10, 10: 20, 20: 4})
    assert counter.increase(window(5, 20)) == 5 + 4
    assert counter.increase(window(15, 20)) == 2


def test_a_dip_of_a_counter_is_no_restart() -> None:
    """A sum over processes that falls by 0.02 s of 50,020 was not started again: it would be 5002
    cores. Nor does it count twice what it wins back. A fall by more than a tenth is a restart."""
    counter = series("x_total", {0: 50_000, 10: 50_020, 20: 50_019.98, 30: 50_030})
    assert counter.increase(window(0, 30)) == pytest.approx(30)
    assert counter.increase(window(10, 20)) == 0
    assert series("x_total", {0: 100, 10: 89, 20: 99}).increase(window(0, 20)) == 99
    cpu = series(
        "host_cpu_seconds_total",
        {0: 50_000, 5: 50_010, 5.5: 50_009.98, 10: 50_020},
        "host",
    )
    assert telemetry_figures(measured(cpu)).values["host_cpu_cores"] == pytest.approx(2)


def test_the_mean_of_a_gauge_is_the_area_under_its_line() -> None:
    gauge = series("x", {0: 0, 10: 10, 11: 10})
    assert gauge.mean(window(5, 10)) == 7.5
    assert gauge.mean(window(0, 11)) == pytest.approx((50 + 10) / 11)
    assert gauge.peak(window(2, 5)) == 5
    assert gauge.integral(window(0, 10)) == 50


def test_samples_of_a_part_of_the_window_say_nothing_about_the_whole() -> None:
    """A GPU that is lost after 60 of 100 s has no energy for the 100; 2 s or 5 % may lack at an
    end."""
    power = series("power_watts", {0: 300, 60: 300}, "power")
    assert power.mean(window(0, 100)) is None and power.increase(window(0, 100)) is None
    assert (
        power.mean(window(0, 62)) == 300
        and power.mean(window(0, 63.1)) == 300
        and power.mean(window(0, 64)) is None
    )
    up = series("up", {0: 1, 60: 1}, "gpus")
    assert telemetry_figures(measured(up, ended_s=100)).notes == [
        "gpus was not sampled during the whole measurement"
    ]
    own = series("up", {0: 1, 60: 1}, "telemetry")
    (note,) = telemetry_figures(measured(up, own, ended_s=100)).notes
    assert (
        note
        == "the process that samples telemetry did not run during the whole measurement"
    )


def test_what_was_sampled_at_another_time_is_unknown() -> None:
    gauge = series("x", {0: 1, 10: 1})
    assert gauge.mean(window(11, 12)) is None and gauge.increase(window(11, 12)) is None
    assert gauge.mean(window(3, 4)) == 1, "samples at both sides are enough"


def test_instants_of_a_machine_that_runs_for_years_keep_their_precision() -> None:
    gauge = Series("", "x", {}, np.array([2**60, 2**60 + 4]), np.array([0.0, 4.0]))
    assert gauge.at(2**60 + 1) == 1.0


def test_energy_comes_from_the_counter_of_the_gpu_else_from_its_power() -> None:
    """300 W for 10 s: 3000 J; 1000 output tokens in them: 3 J each."""
    info, power = (
        series("gpu_info", {0: 1}, gpu="0"),
        series("gpu_power_watts", {0: 300, 10: 300}, gpu="0"),
    )
    values = telemetry_figures(
        measured(info, power, output_tokens=1000, requests=10)
    ).values
    assert (values["joules"], values["watts"], values["joules_per_output_token"]) == (
        3000,
        300,
        3,
    )
    assert (values["joules_per_request"], values["tokens_per_joule"]) == (
        300,
        pytest.approx(1 / 3),
    )
    counter = series("gpu_energy_joules_total", {-1: 0, 11: 1200}, gpu="0")
    assert telemetry_figures(measured(info, power, counter)).values[
        "joules"
    ] == pytest.approx(1000)


def test_a_meter_of_the_whole_machine_comes_before_the_gpus() -> None:
    info, power = (
        series("gpu_info", {0: 1}, gpu="0"),
        series("gpu_power_watts", {0: 300, 10: 300}, gpu="0"),
    )
    meter = series("power_watts", {0: 450, 10: 450}, "power")
    values = telemetry_figures(measured(info, power, meter)).values
    assert (values["joules"], values["gpu_watts"]) == (4500, 300)


def test_only_the_windows_count_not_the_time_between_stages() -> None:
    power = series(
        "power_watts",
        {0: 100, 10: 100, 10.1: 900, 19.9: 900, 20: 200, 30: 200},
        "power",
    )
    both = Measured(
        telemetry=Telemetry([power]), windows=[window(0, 10), window(20, 30)], idle_ns=0
    )
    assert telemetry_figures(both).values["joules"] == pytest.approx(1000 + 2000)


def test_memory_is_that_of_the_servers_gpus_and_of_its_processes() -> None:
    found = [series("gpu_info", {0: 1}, gpu=gpu) for gpu in "01"]
    found += [
        series("gpu_in_use", {0: 1, 10: 1}, gpu="1"),
        series("gpu_in_use", {0: 0, 10: 0}, gpu="0"),
    ]
    found += [
        series("gpu_memory_used_bytes", {0: 9 * GIB, 10: 9 * GIB}, gpu=gpu)
        for gpu in "01"
    ]
    found += [
        series(
            "gpu_memory_server_bytes", {0: 2 * GIB, 5: 4 * GIB, 10: 2 * GIB}, gpu="1"
        )
    ]
    figures = telemetry_figures(measured(*found, begun_s=1))
    assert gpus_in_use(Telemetry(found)) == [("gpus", "1")]
    assert (
        figures.values["gpus"],
        figures.values["vram_idle_mib"],
        figures.values["vram_peak_mib"],
    ) == (1, 2048, 4096)
    assert figures.gpus[0].vram_mean_mib == pytest.approx(
        (4 * (2.4 + 4) / 2 + 5 * 3) / 9 * 1024
    )


NVML, DCGM, OURS = "gpus", "http://dcgm/metrics", "http://gpu:9101/metrics"


def board(source: str, gpu: str, watts: float, **labels: str) -> list[Series]:
    """A GPU with this power for 10 s."""
    return [
        series("gpu_info", {0: 1}, source, gpu=gpu, **labels),
        series("gpu_power_watts", {0: watts, 10: watts}, source, gpu=gpu),
    ]


def test_a_gpu_that_several_exporters_see_is_one_gpu() -> None:
    """By its UUID: 300 W, not 900. The one in another machine counts, and one without a UUID is not
    known to be the same."""
    one = [
        *board(NVML, "0", 300, uuid="GPU-a"),
        *board(DCGM, "0", 301, uuid="GPU-a"),
        *board(OURS, "0", 299, uuid="GPU-a"),
    ]
    values = telemetry_figures(measured(*one)).values
    assert (values["gpus"], values["gpu_watts"], values["joules"]) == (1, 300, 3000)
    two = telemetry_figures(measured(*one, *board(DCGM, "1", 200, uuid="GPU-b"))).values
    assert (two["gpus"], two["gpu_watts"]) == (2, 500)
    assert (
        telemetry_figures(
            measured(*board(NVML, "0", 300), *board(OURS, "0", 300))
        ).values["gpus"]
        == 2
    )


def test_a_board_that_the_server_does_not_use_is_not_counted() -> None:
    unused = series("gpu_in_use", {0: 0, 10: 0}, NVML, gpu="0")
    used = series("gpu_in_use", {0: 1, 10: 1}, NVML, gpu="1")
    found = [
        *board(NVML, "0", 100, uuid="GPU-a"),
        *board(NVML, "1", 300, uuid="GPU-b"),
        unused,
        used,
    ]
    found += [
        *board(DCGM, "0", 100, uuid="GPU-a"),
        *board(DCGM, "1", 300, uuid="GPU-b"),
    ]
    assert gpus_in_use(Telemetry(found)) == [(NVML, "1")]


def test_mig_instances_are_gpus_of_their_own_but_have_one_boards_power() -> None:
    """The exporter repeats the board's power for each; where the whole board is sampled, too, its
    instances are parts of it."""
    parts = [
        each
        for mig in "12"
        for each in board(DCGM, f"0 MIG {mig}", 300, uuid="GPU-a", mig=mig)
    ]
    values = telemetry_figures(measured(*parts)).values
    assert (values["gpus"], values["joules"]) == (2, 3000)
    assert gpus_in_use(Telemetry([*parts, *board(NVML, "0", 300, uuid="GPU-a")])) == [
        (NVML, "0")
    ]


def test_small_figures_keep_two_digits() -> None:
    """0.0042 J a token is not 0.00."""
    shown = {figure.key: figure.shown for figure in FIGURES}
    assert (
        shown["joules_per_output_token"](0.0042) == "0.0042"
        and shown["joules_per_output_token"](0.131) == "0.131"
    )
    assert (
        shown["gpus"](0.0) == "0"
        and shown["watts"](0.0) == "0.00"
        and shown["cost"](1e-30) == "0.000000000"
    )
    assert (short(0.0042), short(0.5), short(0.0), short(2072.4)) == (
        "0.0042",
        "0.50",
        "0.00",
        "2072",
    )
    assert (brief(0.0042), brief(0.123), brief(0.0)) == ("0.0042", "0.123", "0.00")


def test_where_no_process_is_known_what_was_taken_before_is_subtracted() -> None:
    found = [
        series("gpu_info", {0: 1}, gpu="0"),
        series("gpu_memory_used_bytes", {0: 5 * GIB, 10: 6 * GIB}, gpu="0"),
    ]
    found += [series("gpu_memory_before_bytes", {0: 1 * GIB}, gpu="0")]
    values = telemetry_figures(measured(*found)).values
    assert (values["vram_idle_mib"], values["vram_peak_mib"]) == (4096, 5120)


def test_the_cost_of_input_and_of_output_tokens_is_kept_apart() -> None:
    """3.6 an hour is 0.01 for 10 s. 1000 output tokens: 10 a million; a quarter of the time was
    prefill of 500 tokens."""
    values = telemetry_figures(
        measured(
            output_tokens=1000, input_tokens=500, prefill_share=0.25, price_per_hour=3.6
        )
    ).values
    assert values["cost"] == pytest.approx(0.01)
    assert values["cost_per_million_output_tokens"] == pytest.approx(10)
    assert values["cost_per_million_input_tokens"] == pytest.approx(20)
    assert values["decode_cost_per_million_output_tokens"] == pytest.approx(7.5)
    assert values["prefill_cost_per_million_input_tokens"] == pytest.approx(5)


def test_a_source_that_did_not_answer_is_named_with_how_long() -> None:
    up = series("up", {0: 1, 4: 1, 4.001: 0, 10: 0}, "http://x/metrics")
    assert telemetry_figures(measured(up)).notes == [
        "http://x/metrics did not answer for 6.0 of 10.0 s"
    ]


def test_gpus_whose_users_are_unknown_are_all_counted_and_that_is_said() -> None:
    found = [series("gpu_info", {0: 1}, "http://gpu/metrics", gpu=gpu) for gpu in "01"]
    (note,) = telemetry_figures(measured(*found)).notes
    assert (
        note
        == "http://gpu/metrics: which GPUs the server uses is not known: 2 GPUs counted, with all their memory"
    )


def test_without_a_sampled_gpu_memory_is_that_of_the_servers_log() -> None:
    with_log = replace(
        measured(), logged_mib={"CUDA0": 3000.5, "RPC0[10.0.0.2:50052]": 2000.0}
    )
    figures = telemetry_figures(with_log)
    assert (
        figures.values["gpus"],
        figures.values["vram_idle_mib"],
        figures.values["vram_peak_mib"],
    ) == (2, 5000.5, 5000.5)
    assert figures.values["joules"] is None and figures.notes == [
        "VRAM is from the server's log: its model, KV and compute buffers; those of RPC workers may be on a CPU"
    ]
    sampled = [
        series("gpu_info", {0: 1}, gpu="0"),
        series("gpu_in_use", {0: 1}, gpu="0"),
    ]
    sampled += [series("gpu_memory_used_bytes", {0: GIB, 10: GIB}, gpu="0")]
    assert (
        telemetry_figures(replace(with_log, telemetry=Telemetry(sampled))).values[
            "vram_peak_mib"
        ]
        == 1024
    )


def test_buffers_in_host_memory_are_no_vram() -> None:
    devices = (
        "CUDA0",
        "CUDA_Host",
        "CPU",
        "CPU_Mapped",
        "CPU_REPACK",
        "RPC0[a:1]",
        "MTL0",
        "Vulkan1",
    )
    buffers = [
        Buffers(device=device, model_mib=1, kv_mib=2, compute_mib=3)
        for device in devices
    ]
    found = logged_mib([ServerDescription(url="http://a", buffers=buffers)])
    assert found == dict.fromkeys(("CUDA0", "RPC0[a:1]", "MTL0", "Vulkan1"), 6)


def test_the_servers_processes_on_several_machines_are_added() -> None:
    found = [
        series("server_cpu_seconds_total", {0: 0, 10: 5}, source)
        for source in ("server", "http://gpu/metrics")
    ]
    assert telemetry_figures(measured(*found)).values["server_cpu_cores"] == 1.0


def test_a_server_that_an_exporter_sees_too_counts_once() -> None:
    """The exporter on the same machine was named first, has the same process, and missed the one
    that came after a restart; that of another machine has its own. The live page says the same."""

    def of(source: str, *processes: str) -> list[Series]:
        found = [
            series("server_cpu_seconds_total", {0: 0, 10: 5}, source),
            series("server_memory_bytes", {0: GIB, 10: GIB}, source),
        ]
        for process in processes:
            info = series("server_info", {0: 1, 10: 1}, source, process=process)
            found.append(info)
        return found

    found = [
        *of("http://here:9410/metrics", "one"),
        *of("server", "one", "two"),
        *of("http://there:9410/metrics", "three"),
    ]
    figures = telemetry_figures(measured(*found)).values
    assert figures["server_cpu_cores"] == 1.0
    assert figures["server_memory_peak_mib"] == 2048
    live = []
    for each in found:
        points = deque(zip(each.t_ns.tolist(), each.values.tolist(), strict=True))
        live.append(LiveSeries(each.source, each.metric, each.labels, points))
    assert present_values(live)["Server memory (GiB): server"] == approx(2)


def test_nothing_sampled_is_nothing_and_never_zero() -> None:
    figures = telemetry_figures(measured(output_tokens=5))
    assert not figures.gpus and set(figures.values.values()) == {None}
