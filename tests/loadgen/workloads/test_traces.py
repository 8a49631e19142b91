"""Recorded arrivals: Mooncake's and BurstGPT's files, run folders, and what is none of them."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_load.ground.errors import RunError, UsageError
from llama_load.loadgen.preflight import load_fits
from llama_load.loadgen.workloads.arrival import Arrival
from llama_load.loadgen.workloads.traces import read_trace_file
from llama_load.run_folder import MANIFEST, RunWriter
from scripts.make_samples import FOLDER
from tests.make_records import failed, manifest, record

MOONCAKE = """\
{"timestamp": 27482, "input_length": 6755, "output_length": 500, "hash_ids": [0, 1, 2]}
{"timestamp": 27482, "input_length": 7319, "output_length": 490, "hash_ids": [0, 14]}
{"timestamp": 30534, "input_length": 7234, "output_length": 794, "hash_ids": [0, 28]}
"""
MOONCAKE_ARRIVALS = [
    Arrival(0.0, 6755, 500, (0, 1, 2)),
    Arrival(0.0, 7319, 490, (0, 14)),
    Arrival(pytest.approx(3.052), 7234, 794, (0, 28)),
]
# As released: 1.1 without, 2.0 with sessions. No tokens: the request failed.
BURSTGPT = """\
Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,230,1317,Conversation log
118.5,GPT-4,417,0,417,API log
"""
BURSTGPT_SESSIONS = """\
Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5,"a, b",1.5,ChatGPT,472,18,490,Conversation log
45,,2,ChatGPT,1087,230,1317,Conversation log
118.5,,3,GPT-4,417,0,417,API log
"""
BURSTGPT_ARRIVALS = [
    Arrival(0.0, 472, 18),
    Arrival(40.0, 1087, 230),
    Arrival(113.5, 417, None),
]


SAMPLES = (
    "mooncake_sample.jsonl",
    "bailian_sample.jsonl",
    "burstgpt_sample.csv",
    "azure_sample.csv",
)


def load_trace(path: Path, **how: object) -> list[Arrival]:
    return load_fits.load_trace(path, **how).arrivals


def write(folder: Path, content: str | bytes, name: str = "trace") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_mooncake_traces_are_read(tmp_path: Path) -> None:
    """Milliseconds become seconds from the first arrival; names of files say nothing."""
    assert load_trace(write(tmp_path, MOONCAKE, "trace.csv")) == MOONCAKE_ARRIVALS


@pytest.mark.parametrize(
    "content",
    [
        BURSTGPT,
        BURSTGPT_SESSIONS,
        BURSTGPT.replace("Timestamp", " TIMESTAMP ").replace("Req", "req"),
    ],
)
def test_burstgpt_traces_are_read(tmp_path: Path, content: str) -> None:
    """Columns are found by their names, wherever they stand."""
    assert load_trace(write(tmp_path, content, "trace.jsonl")) == BURSTGPT_ARRIVALS


@pytest.mark.parametrize(
    ("content", "arrivals"),
    [(MOONCAKE, MOONCAKE_ARRIVALS), (BURSTGPT, BURSTGPT_ARRIVALS)],
)
def test_files_from_windows_are_read(
    tmp_path: Path, content: str, arrivals: list[Arrival]
) -> None:
    """Line ends, byte order marks, UTF-16, blank lines, no end of the last line; in folders with
    Chinese names."""
    folder = tmp_path / "到达 记录"
    folder.mkdir()
    crlf = content.replace("\n", "\r\n")
    for number, data in enumerate(
        [
            crlf.encode(),
            crlf.encode("utf-8-sig"),
            crlf.encode("utf-16"),
            crlf.strip().encode(),
            b"\n\r\n" + crlf.encode() + b"\r\n",
        ]
    ):
        assert load_trace(write(folder, data, f"对话{number}.txt")) == arrivals


def test_what_a_mooncake_line_leaves_out_is_unknown(tmp_path: Path) -> None:
    """Only the time must be there."""
    path = write(
        tmp_path,
        '{"timestamp": 1000}\n{"timestamp": 1500.5, "output_length": 3, "model": "a"}\n',
    )
    assert load_trace(path, unit="ms") == [
        Arrival(0.0),
        Arrival(pytest.approx(0.5005), output_tokens=3),
    ]


@given(
    st.lists(st.integers(0, 10**7), min_size=1, max_size=40),
    st.sampled_from([0.25, 1, 3]),
    st.randoms(use_true_random=False),
)
def test_arrivals_are_in_order_from_zero_at_any_speed(
    tmp_path_factory: pytest.TempPathFactory,
    instants_ms: list[int],
    speed: float,
    draw: random.Random,
) -> None:
    draw.shuffle(instants_ms)
    lines = [
        json.dumps({"timestamp": at, "input_length": place + 1})
        for place, at in enumerate(instants_ms)
    ]
    found = load_trace(
        write(tmp_path_factory.mktemp("trace"), "\n".join(lines)),
        speed=speed,
        unit="ms",
    )
    in_order = sorted(enumerate(instants_ms), key=lambda item: item[1])
    assert [arrival.input_tokens for arrival in found] == [
        place + 1 for place, _ in in_order
    ]
    assert [arrival.at_s for arrival in found] == pytest.approx(
        [(at - in_order[0][1]) / 1000 / speed for _, at in in_order]
    )
    assert found[0].at_s == 0


def test_a_run_of_ours_is_a_trace(tmp_path: Path) -> None:
    """Warm-up left out; what failed keeps its time and may answer up to its limit."""
    run = RunWriter(tmp_path / "跑", manifest())
    run.append(
        [
            record(
                2, start_ms=70_000, prompt_tokens=30, max_tokens=64
            ),  # answered 3 tokens
            record(0, start_ms=1_000, warmup=True),
            failed(1, start_ms=60_000),
        ]
    )
    expected = [Arrival(0.0, 10, 3), Arrival(5.0, 30, 3)]
    assert load_trace(run.path, speed=2) == expected  # killed, its journal left
    run.finish()
    assert load_trace(run.path, speed=2) == expected


def test_the_bundled_samples_of_all_layouts_are_the_same_arrivals() -> None:
    """They are written from the same 40 requests; Mooncake's are rounded to ms, Azure's dates begin
    elsewhere."""
    read = {name: load_trace(FOLDER / name) for name in SAMPLES}
    burstgpt = read["burstgpt_sample.csv"]
    assert len(burstgpt) == 40
    for arrivals in read.values():
        assert [(each.input_tokens, each.output_tokens) for each in arrivals] == [
            (each.input_tokens, each.output_tokens) for each in burstgpt
        ]
        assert [each.at_s for each in arrivals] == pytest.approx(
            [each.at_s for each in burstgpt], abs=2e-3
        )
    blocks = [read_trace_file(FOLDER / name).block_tokens for name in SAMPLES]
    assert blocks == [512, 16, 512, 512]
    assert all(
        len(each.hash_ids) == -(-(each.input_tokens or 0) // 16)
        for each in read["bailian_sample.jsonl"]
    )


@pytest.mark.parametrize(
    "instant",
    [
        "2024-05-10 00:00:00.5",
        "2024-05-10T00:00:00.5000000Z",
        "2024-05-10 02:00:00.5+02:00",
    ],
)
def test_azures_instants_may_have_a_zone_and_seven_digits(
    tmp_path: Path, instant: str
) -> None:
    rows = f"TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00,7,8\n{instant},1,2\n"
    assert [arrival.at_s for arrival in load_trace(write(tmp_path, rows))] == [0.0, 0.5]


def test_azures_bad_line_is_named(tmp_path: Path) -> None:
    rows = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00,7,8\nyesterday,1,2\n"
    with pytest.raises(
        UsageError,
        match=r"line 3 of .* has TIMESTAMP 'yesterday', which is no date and time",
    ):
        load_trace(write(tmp_path, rows))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "it is empty; each line must be Mooncake's"),
        ("\ufeff \r\n", "it is empty"),
        (bytes(range(256)) * 20, "trace .* is not valid JSON in UTF-8"),
        ("Timestamp,Request tokens,Response tokens\n", "contains no request"),
        (MOONCAKE + '{"timestamp": 1', "line 4 of .*trace is not valid JSON"),
        (
            '{"timestamp": 1}\n\n{"input_length": 5}\n',
            "line 3 of .* has no 'timestamp', the time of its request",
        ),
        ('{"timestamp": 1, "input_length": -5}\n', "line 1 of .* has input_tokens -5"),
        (
            '{"timestamp": 1, "input_length": 5.5}\n',
            "line 1 of .* has input_tokens 5.5",
        ),
        ('{"timestamp": 1e999}\n', "line 1 of .*"),
        ('{"timestamp": 1, "会话": 2}\n', "line 1 of .* has '会话', which is not"),
        (
            "TIMESTAMP,Context,Generated\n1,2,3\n",
            "line 2 of .* has 'Context', which is not understood.*--columns",
        ),
        (
            "Es war einmal ein König.\n",
            "line 1 of .* is not valid JSON in UTF-8.*Mooncake",
        ),
        ("a,b\n1,2\n", "line 2 of .* has no time, but 'a', 'b'.* timestamp=NAME"),
        (
            BURSTGPT + "\n2023-11-16 18:17:03,GPT-4,1,2,3,API log\n",
            "line 6 of .* has Timestamp '2023-11-16 18:17:03', which is no number",
        ),
        (BURSTGPT + "120,GPT-4\n", "line 5 has 2 cells, its header 6"),
        (BURSTGPT + "nan,GPT-4,1,2,3,API log\n", "line 5 of"),
        (BURSTGPT + "120,GPT-4,-1,2,3,API log\n", "line 5 of"),
        (BURSTGPT + "120,GPT-4,1,2.5,3,API log\n", "line 5 of"),
        (BURSTGPT + '120,"' + "x" * 200_000, "line 5 has 2 cells, its header 6"),
    ],
)
def test_what_is_no_trace_is_refused_in_a_sentence(
    tmp_path: Path, content: str | bytes, sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence) as caught:
        load_trace(write(tmp_path, content))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700


def test_missing_traces_and_other_folders_are_refused_in_a_sentence(
    tmp_path: Path,
) -> None:
    with pytest.raises(
        UsageError,
        match=re.escape(
            f"there is no trace at {tmp_path / '无'}; give the path of a file with --trace"
        ),
    ):
        load_trace(tmp_path / "无")
    with pytest.raises(UsageError, match="is no run folder"):
        load_trace(tmp_path)
    write(tmp_path, "{", MANIFEST)
    with pytest.raises(RunError, match="cannot be read"):
        load_trace(tmp_path)
    RunWriter(tmp_path / "empty", manifest()).finish()
    with pytest.raises(UsageError, match="empty contains no request"):
        load_trace(tmp_path / "empty")


SECONDS = [
    {"timestamp": 100 + n / 4, "input_length": 40, "output_length": 8}
    for n in range(12)
]


def rows(*lines: object) -> str:
    return "\n".join(map(json.dumps, lines)) + "\n"


def test_a_unit_that_nothing_names_is_asked_for_with_both_readings(
    tmp_path: Path,
) -> None:
    """12 requests, one each 0.25 s: 2.75 s, 12 / 2.75 = 4.4/s; or in ms 4,364/s."""
    path = write(tmp_path, rows(*SECONDS))
    both = r"12 requests in 2.75 s, 4.4/s if it is seconds, 12 requests in 0.00275 s, 4,364/s"
    with pytest.raises(UsageError, match=both):
        load_trace(path)
    assert load_trace(path, unit="s")[-1].at_s == 2.75
    assert load_trace(path, unit="ms")[-1].at_s == pytest.approx(0.00275)


@pytest.mark.parametrize(
    ("factor", "sentence"),
    [(1, "does not say the unit"), (4, "has Mooncake's layout, but not its rates")],
)
def test_mooncakes_layout_in_seconds_is_not_taken_for_ms(
    tmp_path: Path, factor: int, sentence: str
) -> None:
    """Its times are whole; whole seconds read as ms are a thousand requests a second."""
    lines = [
        {**row, "timestamp": row["timestamp"] * factor, "hash_ids": [n]}
        for n, row in enumerate(SECONDS)
    ]
    lines = [
        {**row, "timestamp": int(row["timestamp"]) if factor == 4 else row["timestamp"]}
        for row in lines
    ]
    with pytest.raises(UsageError, match=sentence):
        load_trace(write(tmp_path, rows(*lines)))


@pytest.mark.parametrize(
    ("name", "second"),
    [
        ("timestamp_ms", 1000),
        ("arrival_time_s", 1),
        ("arrived_at_us", 1_000_000),
        ("Timestamp (ns)", 10**9),
        ("timestamp_start_unix_ms", 1000),
    ],
)
def test_a_unit_in_the_columns_name_holds(
    tmp_path: Path, name: str, second: int
) -> None:
    lines = [{name: n * second, "input_tokens": 5} for n in (1, 3)]
    assert [each.at_s for each in load_trace(write(tmp_path, rows(*lines)))] == [0, 2]


def test_requests_without_lengths_are_left_out_and_counted(tmp_path: Path) -> None:
    """BurstGPT's third request failed: it has no answer tokens."""
    path = write(tmp_path, BURSTGPT)
    trace = load_fits.load_trace(path)
    kept = trace.with_lengths(path, None, sets_answers=False)
    assert kept.arrivals == BURSTGPT_ARRIVALS[:2]
    (left_out, not_read) = load_fits.trace_rows(kept)
    assert left_out.value == (
        "1 of 3 rows: 1 without an answer length, as of requests that failed (--output-len "
        "sends them)"
    )
    assert (
        not_read.value == "fields that change no request: Model, Total tokens, Log Type"
    )
    assert (
        trace.with_lengths(path, None, sets_answers=True).arrivals == BURSTGPT_ARRIVALS
    )
    none = write(tmp_path, rows({"timestamp_s": 1}))
    with pytest.raises(
        UsageError, match=r"no request of the trace .* has both lengths"
    ):
        load_fits.load_trace(none).with_lengths(none, 5, sets_answers=False)
