"""From arguments to sides: run folders, patterns, stages, results of other tools, and what cannot
be read."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llama_load.analysis.comparison import run_folder
from llama_load.analysis.comparison.compare import compare
from llama_load.analysis.comparison.foreign_results import result_run
from llama_load.analysis.comparison.run_folder import folder_run
from llama_load.analysis.comparison.setup import differences
from llama_load.analysis.comparison.sources import Group, read_groups
from llama_load.analysis.reports.write import write_reports
from llama_load.analysis.results.results import analyze
from llama_load.ground.errors import UsageError
from llama_load.run_folder import Manifest, RunWriter, StageRecord, load_run
from llama_load.run_folder.observed.record import RequestRecord
from tests.make_records import MS, manifest, record

VLLM = {
    "date": "20261120-102111",
    "backend": "openai-chat",
    "label": None,
    "model_id": "tiny",
    "num_prompts": 4,
    "request_rate": "inf",
    "max_concurrency": 2,
    "duration": 1.5,
    "completed": 3,
    "failed": 1,
    "total_input_tokens": 30,
    "total_output_tokens": 9,
    "request_throughput": 2.0,
    "output_throughput": 6.0,
    "mean_ttft_ms": 40.0,
    "p99_ttft_ms": float("1e300"),
    "mean_tpot_ms": None,
    "output_lens": [3, 3, 3, 0],
    "ttfts": [0.03, 0.04, 0.05, 0.0],
    "itls": [[0.01, 0.02], [0.02, 0.02], [0.01, 0.03], []],
}


def write_run(
    folder: Path, *records: RequestRecord, about: Manifest | None = None
) -> Path:
    writer = RunWriter(
        folder, about or manifest(num_prompts=len(records), label=folder.parent.name)
    )
    writer.append(list(records))
    writer.finish()
    write_reports(analyze(load_run(folder)))
    return folder


def write(path: Path, content: Any) -> str:
    path.write_bytes(
        content.encode() if isinstance(content, str) else msgspec.json.encode(content)
    )
    return str(path)


def only(arguments: list[str], **more: Any) -> Group:
    (group,) = read_groups(arguments, **more)
    return group


def requests(*first_ms: float, **changed: Any) -> list[RequestRecord]:
    return [
        record(index, first_ms=each, prompt_sha256=f"{index:064}", **changed)
        for index, each in enumerate(first_ms)
    ]


# ---------------------------------------------------------------------- run folders


def test_a_folder_of_run_folders_is_a_side_with_repeats(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        write_run(tmp_path / "base" / str(number), *requests(100, 100 + number))
    write_run(
        tmp_path / "other",
        *requests(100, 104),
        about=manifest(num_prompts=2, label="new"),
    )
    base, other = only([str(tmp_path / "base"), str(tmp_path / "other")]).sides
    assert (base.label, other.label) == ("base", "new")
    assert base.values("mean_ttft_ms") == [100.5, 101.0, 101.5] and other.values(
        "mean_ttft_ms"
    ) == [102.0]


def test_labels_commas_and_patterns(tmp_path: Path) -> None:
    """A label of its own, with sources separated by commas, or a pattern that matches them; equal
    labels are numbered."""
    for name in ("a1", "a2", "b,1"):
        write_run(tmp_path / name, *requests(100, 110), about=manifest(label="x"))
    first, second, third, comma = only([
        f"mine={tmp_path}/a1,{tmp_path}/a2",
        f"mine={tmp_path}/a?",
        str(tmp_path / "a1"),
        str(tmp_path / "b,1"),
    ]).sides  # fmt: skip
    assert [side.label for side in (first, second, third, comma)] == [
        "mine",
        "mine (2)",
        "x",
        "x (2)",
    ]
    assert [len(side.runs) for side in (first, second, third, comma)] == [2, 2, 1, 1]


def test_values_for_charts_are_a_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """About 50 of 200 first tokens, as large and as small as all of them."""
    monkeypatch.setattr(run_folder, "MOST_SAMPLES", 50)
    monkeypatch.setattr(run_folder, "_ROOM", 1)
    folder = write_run(tmp_path / "run", *requests(*range(1000, 1200)))
    samples = folder_run(folder, with_samples=True).samples["ttft"]
    assert 40 <= len(set(samples)) == len(samples) <= 50
    assert min(samples) < 1020 and max(samples) > 1180


def test_a_run_brings_its_prompts_set_up_and_values(tmp_path: Path) -> None:
    about = manifest(
        num_prompts=3,
        options={"cache_prompt": "off", "seed": "0"},
        targets=[{"build": "b1", "url": "u"}],
    )
    warm = record(9, warmup=True, prompt_sha256="f" * 64)
    run = folder_run(
        write_run(tmp_path / "run", *requests(100, 110, 120), warm, about=about),
        with_samples=True,
    )
    assert run.prompts == {f"{index:064}"[:16] for index in range(3)}
    assert run.setup["build"] == "b1" and run.setup["--cache-prompt"] == "off"
    assert (
        list(run.samples["ttft"]) == [100, 110, 120]
        and list(run.samples["itl"]) == [20] * 6
    )
    assert (
        run.value("mean_ttft_ms") == 110
        and run.reused_ratio == 0
        and run.connect_ms == 1
        and run.cached_ratio == 0
    )


def test_flags_of_the_server_are_part_of_the_set_up(tmp_path: Path) -> None:
    """From the command that the run noted; addresses change nothing."""
    sides = []
    for name, command in (
        ("a", "llama-server -c 4096 -fa on --port 1 --temp -1 --mlock"),
        ("b", "llama-server -c=8192 -fa on --port 2"),
    ):
        folder = write_run(
            tmp_path / name, *requests(100, 110), about=manifest(label=name)
        )
        (folder / "server").mkdir()
        (folder / "server" / "command").write_text(command)
        sides.append(only([str(folder)]).sides[0])
    found = {each.name: each.values for each in differences(sides)}
    assert found == {
        "server -c": ("4096", "8192"),
        "server --temp": ("-1", "not given"),
        "server --mlock": ("on", "not given"),
    }


def test_what_servers_report_is_compared_and_not_how_they_were_told(
    tmp_path: Path,
) -> None:
    """A server without -np has four slots, as one with -np 4; their contexts differ, whatever -c."""
    sides = []
    for name, command, context in (
        ("a", "llama-server --mlock", 4096),
        ("b", "llama-server --mlock -np 4 -c 32768", 8192),
    ):
        target = {
            "url": "http://h",
            "backend": "llama-server",
            "slots": 4,
            "ctx_per_slot": context,
        }
        about = manifest(label=name, targets=[target])
        folder = write_run(tmp_path / name, *requests(100, 110), about=about)
        (folder / "server").mkdir()
        (folder / "server" / "command").write_text(command)
        sides.append(only([str(folder)]).sides[0])
    found = {each.name: each.values for each in differences(sides)}
    assert found == {"context": ("4096", "8192")}


def test_the_command_of_a_run_is_kept_whole_and_quoted(tmp_path: Path) -> None:
    words = [
        "locust",
        "--power-command",
        "meter --json",
        "--label",
        "x" * 400,
        "--headless",
    ]
    run = folder_run(
        write_run(tmp_path / "run", *requests(100, 110), about=manifest(command=words))
    )
    assert shlex.split(run.command) == words


def test_random_prefixes_make_hashes_useless(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "run",
        *requests(100, 110),
        about=manifest(options={"bust_prefix_cache": True}),
    )
    assert folder_run(folder).prompts is None


def test_runs_with_random_beginnings_are_known_by_their_plan(tmp_path: Path) -> None:
    """The same data, seed and flags are the same prompts, whatever random text they begin with;
    documents get such text by default."""
    data = {"dataset": {"path": "/a/x.json", "sha256": "f" * 64}}
    documents = {
        "dataset": {"path": "sample.md", "sha256": "f" * 64, "cache": "different"}
    }

    def plan(name: str, **about: Any) -> tuple[str, object]:
        read = folder_run(
            write_run(tmp_path / name, *requests(100, 110), about=manifest(**about))
        )
        return read.plan, read.prompts

    first = plan("1", options={"bust_prefix_cache": True, "turns": "1"}, prompts=data)
    assert first[1] is None and first == plan(
        "2",
        options={"bust_prefix_cache": True, "turns": "1", "label": "x"},
        prompts=data,
    )
    assert first[1] is None and plan(
        "7", options={"turns": "1"}, prefix_tokens=5, prompts=data
    ) == (plan("4", options={"turns": "1"}, prompts=data)[0], None)
    assert (
        first[0]
        != plan(
            "3", options={"bust_prefix_cache": True, "turns": "1"}, prompts=data, seed=7
        )[0]
    )
    assert first[0] != plan("8", options={"turns": "1"}, prompts=data)[0]

    # Where it is not known what a flag does, it may choose the prompts.
    mute, named = (
        plan(name, options=options, prompts=data, flag_roles=None)[0]
        for name, options in (("9", {"turns": "1"}), ("10", {"turns": "1", "n": "x"}))
    )
    assert mute == plan("11", options={"turns": "1"}, prompts=data)[0] != named
    assert (
        plan("5", prompts=documents)[1] is None
        and plan("6", prompts={"a": data, "b": documents})[1] is None
    )


def test_a_runs_load_and_endpoint_are_read(tmp_path: Path) -> None:
    """Of a folder, of a stage and of a result; several of our APIs are `openai` to vLLM, which
    sends that to completions."""
    folder = write_run(
        tmp_path / "run",
        *requests(100, 110),
        about=manifest(users=4, options={"think_time": "2"}),
    )
    read = folder_run(folder)
    assert read.endpoint == "chat"
    assert read.load == {
        "concurrency": "4",
        "request rate": "inf",
        "burstiness": "1.0",
        "arrivals": "closed loop",
        "--think-time": "2",
    }
    assert folder_run(staged(tmp_path / "staged"), "8").load == {"concurrency": "8"}
    (result,) = only([write(tmp_path / "result.json", VLLM)]).sides[0].runs
    assert (result.endpoint, result.load) == (
        "chat",
        {"concurrency": "2", "request rate": "inf"},
    )
    for kind, endpoint in {
        "openai": "completions",
        "vllm": "completions",
        "openai-embeddings": "embeddings",
        "?": "",
    }.items():
        assert (
            result_run(
                Path(write(tmp_path / "result.json", VLLM | {"endpoint_type": kind}))
            ).endpoint
            == endpoint
        )


def test_a_run_is_known_again_in_its_folder_and_its_summary(tmp_path: Path) -> None:
    """So that a copy never counts as a repeat; another run has another identity."""
    folder = write_run(tmp_path / "run", *requests(100, 110))
    other = write_run(tmp_path / "other", *requests(100, 111))
    paths = (folder, folder / "summary.json")
    assert len({only([str(path)]).sides[0].runs[0].identity for path in paths}) == 1
    assert folder_run(other).identity != folder_run(folder).identity


def staged(folder: Path, slower: float = 1.0) -> Path:
    records = [
        record(index, stage=index // 2, start_ms=500 * index, first_ms=100 * slower)
        for index in range(4)
    ]
    bounds = [
        StageRecord(
            name, int(name), begun_mono_ns=at * MS, ended_mono_ns=(at + 900) * MS
        )
        for name, at in (("1", 0), ("8", 1000))
    ]
    return write_run(
        folder,
        *records,
        about=manifest(num_prompts=4, stages=bounds, label=folder.name),
    )


def test_stages_are_compared_one_by_one(tmp_path: Path) -> None:
    """Of two runs; of one run they are the sides; one of them is named by #."""
    base, slow = staged(tmp_path / "base"), staged(tmp_path / "slow", 2)
    groups = read_groups([str(base), str(slow)])
    assert [group.title for group in groups] == ["stage 1", "stage 8"]
    assert [side.values("mean_ttft_ms") for side in groups[0].sides] == [[100], [200]]
    assert [side.label for side in only([str(base)]).sides] == ["base 1", "base 8"]
    (side,) = only([f"{base}#8"]).sides
    assert (
        side.runs[0].name == "base#8"
        and "c=1" not in side.label
        and side.runs[0].concurrency == 8
    )
    with pytest.raises(UsageError, match="has no stage '16': its stages are 1, 8"):
        read_groups([f"{base}#16"])


# ---------------------------------------------------------------------- other tools


def test_a_result_of_vllm_bench_serve(tmp_path: Path) -> None:
    (side,) = only([write(tmp_path / "openai-inf.json", VLLM)]).sides
    (run,) = side.runs
    assert side.label == "openai-inf.json" and (
        run.count("completed"),
        run.failed,
        run.planned,
    ) == (3, 1, 4)
    assert (
        run.value("mean_ttft_ms") == 40
        and run.value("mean_tpot_ms") is None
        and run.concurrency == 2
    )
    assert (
        run.samples["ttft"] == pytest.approx([30, 40, 50])
        and len(run.samples["itl"]) == 6
    )
    assert run.samples["tpot"] == pytest.approx([15, 20, 20])


def test_tpot_beside_a_result_of_vllm_is_by_vllms_formula(tmp_path: Path) -> None:
    """92 shown tokens of 10 ms after 8 hidden ones: 10 ms by ours, 9.1 ms by vLLM's. Two runs of
    ours keep ours."""
    hidden = {
        "output_tokens": 101,
        "reasoning_tokens": 8,
        "output_chars": 368,
        "max_tokens": 400,
    }
    answers = [
        record(index, gaps_ms=(10.0,) * 91, finish_reason="stop", **hidden)
        for index in range(3)
    ]
    run = write_run(tmp_path / "ours", *answers)
    own = json.loads((run / "summary.json").read_bytes())
    expected = own["mean_tpot_ms"]
    assert own["llama_load"]["mean_tpot_ms"] > 1.05 * expected
    theirs = write(tmp_path / "theirs.json", VLLM | {"mean_tpot_ms": 90.0})

    mixed = compare(only([str(run), theirs]).sides)
    assert [side.mean("mean_tpot_ms") for side in mixed.sides] == pytest.approx(
        [expected, 90.0]
    )
    assert any("vLLM's formula" in warning for warning in mixed.warnings)

    ours = compare(only([str(run), str(run)]).sides)
    assert ours.sides[0].mean("mean_tpot_ms") == own["llama_load"]["mean_tpot_ms"]
    assert not any("vLLM's formula" in warning for warning in ours.warnings)


def test_a_stage_beside_a_result_of_vllm_has_its_tpot_by_vllms_formula(
    tmp_path: Path,
) -> None:
    stages = staged(tmp_path / "stages")
    summary = json.loads((stages / "summary.json").read_bytes())
    stage = summary["llama_load"]["by_stage"]["8"]
    stage["vllm_tpot"]["mean_tpot_ms"] = 77.0
    (stages / "summary.json").write_text(json.dumps(summary))
    theirs = write(tmp_path / "theirs.json", VLLM | {"mean_tpot_ms": 90.0})
    mixed = compare(only([f"{stages}#8", theirs]).sides)
    assert [side.mean("mean_tpot_ms") for side in mixed.sides] == [77.0, 90.0]


def test_the_clients_machine_and_replaced_prompts_come_from_the_manifest(
    tmp_path: Path,
) -> None:
    """A container's name is new in each run: it is known by its processor."""
    expected = (
        ({"name": "rack-7"}, {"replaced": 3}, "rack-7", 3),
        (
            {"name": "3f2a9c01b7de", "cpu": "x", "cores": 4},
            {"chat": {"replaced": 1}, "rag": {"replaced": 2}},
            "x, 4 cores",
            3,
        ),
        ({"name": "3f2a9c01b7de"}, {}, "", None),
    )
    for number, (host, prompts, client, replaced) in enumerate(expected):
        about = manifest(num_prompts=1, host=host, prompts=prompts)
        found = folder_run(
            write_run(tmp_path / str(number), *requests(100), about=about)
        )
        assert (found.client, found.replaced) == (client, replaced)


def test_our_summary_alone(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", *requests(100, 110))
    (side,) = only([str(folder / "summary.json")]).sides
    assert side.runs[0].value("mean_ttft_ms") == 105 and side.runs[0].prompts is None


# ---------------------------------------------------------------------- nonsense


def test_what_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "run.json").write_text("{}")
    wrong = {
        str(tmp_path / "nothing"): "there is no ",
        str(tmp_path / "no*"): "no path matches",
        str(tmp_path / "empty"): "is no run folder and contains none",
        str(
            tmp_path / "unfinished"
        ): "has no summary.json: write it with 'llama-load report",
        write(tmp_path / "cut.json", '{"duration": 1'): "is no result: ",
        write(tmp_path / "deep.json", '{"a":' * 5000): "is no result: ",
        write(
            tmp_path / "other.json", {"duration": 1}
        ): "it has no completed, no request_throughput",
        write(tmp_path / "text.txt", "hello"): "is no result: .*--save-result",
        "x=,": "names nothing",
        "/dev/zero": "is no file",
    }
    for argument, message in wrong.items():
        with pytest.raises(UsageError, match=message) as caught:
            read_groups([argument])
        assert "\n" not in str(caught.value)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="is no file"):
        read_groups([str(tmp_path / "pipe")])


def test_damaged_figures_are_left_out(tmp_path: Path) -> None:
    """Texts, negative and huge numbers, lists where objects belong."""
    bad = VLLM | {
        "mean_ttft_ms": "fast",
        "output_throughput": -1,
        "itls": {"a": 1},
        "ttfts": [None, "x", True, 1],
        "label": ["\x1b[31m"],
    }
    (side,) = only([write(tmp_path / "bad.json", bad)]).sides
    assert (
        side.mean("mean_ttft_ms") is None
        and side.mean("output_throughput") is None
        and "\x1b" not in side.label
    )
    ours = VLLM | {"llama_load": {"verdict": [], "by_stage": [], "connect": 3}}
    (side,) = only([write(tmp_path / "ours.json", ours)]).sides
    assert side.runs[0].words == ("without a verdict",)


def test_a_folder_whose_records_are_damaged_keeps_its_figures(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", *requests(100, 110))
    (folder / "requests.parquet").write_bytes(b"PAR1 no")
    (folder / "run.json").write_text('{"version": 1}')
    run = folder_run(folder, with_samples=True)
    assert (
        run.value("mean_ttft_ms") == 105 and run.prompts is None and run.samples == {}
    )
