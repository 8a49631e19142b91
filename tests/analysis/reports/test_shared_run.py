"""`llama-load share`: what two people need to compare, and nothing private, whatever a run folder
holds."""

from __future__ import annotations

import dataclasses
import io
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from PIL import Image, ImageFont

from llama_load.analysis.figures.gpu_figures import GpuFigures
from llama_load.analysis.reports.share_card import (
    MARGIN,
    WIDTH,
    Words,
    card,
    card_png,
    card_svg,
    has_figures,
)
from llama_load.analysis.reports.shared_run import (
    shared_markdown,
    shared_model,
    shared_row,
    shared_run,
)
from llama_load.analysis.results.results import analyze
from llama_load.cli.main import main
from llama_load.run_folder import Manifest, RunWriter, load_run
from llama_load.run_folder.manifest import read_manifest
from llama_load.run_folder.observed.server_description import ServerDescription
from scripts.record_printed import PRINTED
from tests.make_records import failed, manifest, record
from tests.printed import analyzed

CANARY = "canary"


def poisoned(value: Any, number: list[int]) -> Any:
    """The same with every text replaced, keys of dicts included."""
    if isinstance(value, str):
        number[0] += 1
        return f"{CANARY}{number[0]}"
    if isinstance(value, dict):
        return {
            (f"{CANARY}-{key}" if value and key not in KNOWN_KEYS else key): poisoned(
                each, number
            )
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [poisoned(each, number) for each in value]
    return value


# Keys that the code looks up; with others its fields would simply be empty.
KNOWN_KEYS = frozenset(
    {
        "dataset",
        "path",
        "sha256",
        "name",
        "platform",
        "python",
        "cores",
        "cpu",
        "memory_gib",
        "url",
        "backend",
        "build",
        "slots",
    }
)


def poisoned_manifest(whole: Manifest) -> Manifest:
    """Every text in it is a canary; figures and what the code cannot do without stay."""
    kept = {
        "date",
        "goodput",
        "fail_if",
        "until",
        "stages",
        "workers",
        "counters",
        "preflight",
        "percentile_metrics",
    }
    number = [0]
    found = {}
    for item in dataclasses.fields(whole):
        value = getattr(whole, item.name)
        if item.name in kept:
            continue
        if item.name == "servers":
            found[item.name] = [
                ServerDescription(
                    **{
                        each.name: poisoned(getattr(server, each.name), number)
                        for each in dataclasses.fields(server)
                    }
                )
                for server in value
            ]
        elif isinstance(value, str | dict | list):
            found[item.name] = poisoned(value, number)
    assert number[0] > 20
    return replace(whole, **found)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with a private text wherever a text can be."""
    whole = read_manifest(PRINTED / "demo")
    server = ServerDescription(
        url="http://canary.example", backend="canary", build="canary", model="/home/canary/m.gguf", quantization="canary",
        devices=["canary"], n_gpu_layers="canary", kv_types="canary", flash_attention="canary", command="canary", note="canary",
        memory_lines=["canary"], slots=4, n_params=5,
    )  # fmt: skip
    about = poisoned_manifest(
        replace(whole, servers=[server], label="canary", lang="en")
    )
    private = dict.fromkeys(
        ("worker", "user", "workload", "name", "host", "model", "error", "answered_by"),
        CANARY,
    )
    private |= {
        "prompt_text": CANARY,
        "output_text": CANARY,
        "conversation": CANARY,
        "answered_model": CANARY,
    }
    records = [
        *(
            record(number, start_ms=100 * number, **private | {"error": None})
            for number in range(20)
        ),
        replace(failed(20, start_ms=2000, end_ms=2100, kind="http_500"), **private),
    ]
    writer = RunWriter(tmp_path / "run", replace(about, num_prompts=21))
    writer.append(records)
    writer.finish()
    return tmp_path / "run"


def test_nothing_private_is_in_it(run: Path) -> None:
    shared = shared_run(analyze(load_run(run)))
    text = msgspec.json.encode(shared).decode() + shared_markdown(shared)
    assert CANARY not in text.lower()
    assert CANARY not in card_svg(shared).lower()
    assert (
        shared["completed"] == 20
        and shared["failed"] == 1
        and shared["mean_ttft_ms"] == 100
    )
    assert shared["llama_load"]["verdict"]["words"][0] == "FAILED"
    (server,) = shared["share"]["server"]
    assert (server["kind"], server["build"], server["slots"], server["devices"]) == (
        "other",
        None,
        4,
        [],
    )
    assert shared["share"]["load"]["workload"] == "other"


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA my-host.lan",
        "NVIDIA /home/me",
        "NVIDIA a@b",
        "my box",
        "NVIDIA",
        "NVIDIA H200\n",
        "AMD 10.0.0.1",
        "NVIDIA sk_live_1",
    ],
)
def test_a_name_of_another_form_is_left_out(name: str) -> None:
    from llama_load.analysis.reports.shared_run import _GPU, _form

    assert _form(_GPU, name) is None


def test_products_builds_and_quantizations_are_shown() -> None:
    from llama_load.analysis.reports.shared_run import (
        _BUILD,
        _CPU,
        _GPU,
        _QUANTIZATION,
        _form,
    )

    good = {
        _GPU: (
            "NVIDIA H200",
            "NVIDIA GeForce RTX 4090",
            "AMD Instinct MI300X",
            "NVIDIA A100-SXM4-80GB",
        ),
        _CPU: (
            "AMD EPYC 9654 96-Core Processor",
            "Intel(R) Xeon(R) Platinum 8480+",
            "Intel(R) Core(TM) i7-8700K CPU @ 3.70GHz",
        ),
        _BUILD: ("b6962-1f5accb8", "0.19.1", "0.11.0rc2"),
        _QUANTIZATION: (
            "Q4_K_M",
            "Q4_K - Medium",
            "IQ2_XXS",
            "all F32",
            "Q8_0",
            "BF16",
        ),
    }
    assert [
        text
        for form, texts in good.items()
        for text in texts
        if _form(form, text) is None
    ] == []


def test_names_of_gpus_are_products_or_left_out() -> None:
    """They come from drivers and from exporters of others."""
    results = analyzed("demo")
    gpus = [
        GpuFigures(source="host", gpu="0", name="NVIDIA H200", vram_total_mib=143771),
        GpuFigures(source=CANARY, gpu=CANARY, name=CANARY, uuid=CANARY),
    ]
    shared = shared_run(
        replace(results, telemetry=replace(results.telemetry, gpus=gpus))
    )
    assert shared["share"]["hardware"]["gpus"] == [
        {"name": "NVIDIA H200", "vram_gib": 140.4},
        {"name": None, "vram_gib": None},
    ]
    assert CANARY not in str(shared)


def test_equal_hardware_has_an_equal_id(tmp_path: Path) -> None:
    def shared(**host: Any) -> Any:
        folder = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        whole = {
            "name": folder.name,
            "platform": "Linux-6.1-x",
            "python": "3.11.7",
            "cores": 2,
            "cpu": "AMD EPYC 9654",
        }
        writer = RunWriter(folder, manifest(num_prompts=1, host=whole | host))
        writer.append([record(0)])
        writer.finish()
        return shared_run(analyze(load_run(folder)))["share"]

    first, same, other = shared(), shared(), shared(cores=4)
    assert first["hardware_id"] == same["hardware_id"] != other["hardware_id"]
    assert first["hardware"]["client_cpu"] == "AMD EPYC 9654"


def test_it_is_shown_before_it_is_written(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["share", str(run)]) == 2  # nobody is there to be asked
    out = capsys.readouterr()
    assert (
        '"mean_ttft_ms": 100' in out.out
        and "| mean_ttft_ms | 100 |" in out.out
        and "add --yes" in out.err
    )
    assert not (tmp_path / "share.json").exists()
    assert main(["share", str(run), "--yes", "--output", "to/me"]) == 0
    shown = capsys.readouterr().out
    for file in (tmp_path / "to" / "me.md", tmp_path / "to" / "me.json"):
        assert file.read_text(encoding="utf-8") in shown
    names = {file.name for file in (tmp_path / "to").iterdir()}
    assert names == {"me.md", "me.json", "me.svg", "me.png"}


def test_without_pillow_the_card_is_an_svg_alone(
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    output = tmp_path / "to" / "me"
    assert main(["share", str(run), "--yes", "--output", str(output)]) == 0
    names = {file.name for file in output.parent.iterdir()}
    assert names == {"me.md", "me.json", "me.svg"}
    assert "me.png, too: pip install pillow" in capsys.readouterr().out


def test_the_text_and_the_card_are_for_people(run: Path) -> None:
    """20 requests of 100 ms to the first token, one of 21 failed; of two slots' figures the p99
    is left out, because it needs 100 values."""
    shared = shared_run(analyze(load_run(run)))
    sentences = shared_markdown(shared).partition("<details>")[0]
    assert "FAILED" in sentences
    assert "20 of 21 answered" in sentences
    assert "4 slots" in sentences

    svg = card_svg(shared)
    texts = [node.text or "" for node in ElementTree.fromstring(svg)]
    assert "20 of 21 answered" in " ".join(texts)
    assert "First token, p99" not in texts
    picture = Image.open(io.BytesIO(card_png(shared)))
    assert picture.size == (1200, 630)
    assert len(picture.getcolors(2**20) or ()) > 3


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Qwen/Qwen3-4B-Instruct-2507", "Qwen3-4B-Instruct-2507"),
        (
            "/home/canary/Llama-3.2-1B-Instruct-Q4_K_M.gguf",
            "Llama-3.2-1B-Instruct-Q4_K_M",
        ),
        ("mixtral-8x7b-instruct-v0.1", "mixtral-8x7b-instruct-v0.1"),
        ("qwen3-4b-canary-support", None),
        ("canary-7b", None),
        (None, None),
    ],
)
def test_a_public_model_is_named_and_no_other(
    name: str | None, shown: str | None
) -> None:
    assert shared_model(name) == shown


def test_a_run_is_a_row_to_post_and_one_without_figures_has_no_card() -> None:
    shared = shared_run(analyze(load_run(PRINTED / "demo")))
    heads, _, row = shared_row(shared)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert heads.startswith("| Model | Quantization | GPU or CPU |")
    assert cells[:2] == ["demo", "all F32"]
    assert "tok/s in all" in cells[4] and cells[5] == "VALID"
    assert has_figures(shared)
    shared["llama_load"]["uncertain"] = dict.fromkeys(shared, "spoiled")
    assert not has_figures(shared)


def test_the_card_of_a_run_in_stages_has_a_bar_for_each() -> None:
    """No rate of the whole run is certain: pauses are in it. Names of stages are not shared."""
    shared = shared_run(analyzed("stages"))
    assert [level["users"] for level in shared["share"]["levels"]] == [1, 4, 8]
    svg = card_svg(shared)
    assert "855 tokens/s with 1 user" in svg and "no figures" not in svg
    for text in ("855 tok/s, first token 10.1 ms", "760 tok/s, first token 378 ms"):
        assert text in svg
    assert "3 stages of 1 to 8 users" in svg
    sentences = shared_markdown(shared).partition("<details>")[0]
    assert "855 tok/s in all with 1 user, first token after 10.1 ms" in sentences
    assert card_png(shared)

    shared["share"]["levels"][0]["output_throughput"] = None  # not certain
    assert "783 tokens/s with 4 users" in card_svg(shared)
    del shared["share"]["levels"]  # of an older llama-load
    assert "no figures that can be used" in card_svg(shared)


def test_a_verdict_of_many_causes_stays_on_the_card(run: Path) -> None:
    """Bold capitals are wider than the other text: the picture's edge cut the last causes."""
    shared = shared_run(analyze(load_run(run)))
    causes = "client pause, loop lag, other programs, own delay, server wait"
    headline = f"NOT COMPARABLE, CLIENT-BOUND ({causes})"
    shared["llama_load"]["verdict"] |= {"headline": headline}
    font = ImageFont.truetype("DejaVuSans-Bold.ttf", 23)
    (shown,) = (
        text.text
        for text in card(shared)
        if isinstance(text, Words) and text.text.startswith("NOT COMPARABLE")
    )
    assert shown == "NOT COMPARABLE, CLIENT-BOUND (client pause, loop lag, other …"
    assert MARGIN + font.getlength(shown) < WIDTH


def test_a_figure_that_is_doubted_is_not_on_the_card(run: Path) -> None:
    shared = shared_run(analyze(load_run(run)))
    shared["median_ttft_ms"] = 100.0
    shared["llama_load"]["uncertain"] = {}
    assert "First token, median" in card_svg(shared)
    shared["llama_load"]["uncertain"] = {"median_ttft_ms": "spoiled"}
    assert "First token, median" not in card_svg(shared)
    shared["output_throughput"] = None
    shared["request_throughput"] = None
    assert "no figures that can be used" in card_svg(shared)


def test_compare_reads_what_two_people_share(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their figures, their verdicts, and in which hardware, server and load they differ."""
    files = []
    for name, slots, first_ms in (("mine", 4, 100), ("yours", 8, 200)):
        server = ServerDescription(
            url="http://h", backend="llama-server", slots=slots, quantization="Q4_K_M"
        )
        writer = RunWriter(tmp_path / name, manifest(num_prompts=200, servers=[server]))
        writer.append(
            [
                record(number, start_ms=500 * number, first_ms=first_ms)
                for number in range(200)
            ]
        )
        writer.finish()
        assert (
            main(
                [
                    "share",
                    str(tmp_path / name),
                    "--yes",
                    "--output",
                    str(tmp_path / name),
                ]
            )
            == 0
        )
        files.append(f"{name}={tmp_path / name}.json")
    capsys.readouterr()
    assert main(["compare", *files, "--format", "json"]) == 0
    (found,) = [msgspec.json.decode(capsys.readouterr().out)]
    text = msgspec.json.encode(found).decode()
    assert "server slots" in text and "mine" in text
    assert main(["compare", *files]) == 0
    lines = capsys.readouterr().out
    assert "100.00" in lines and "200.00" in lines and "server slots" in lines
