"""llama-load datasets: what is at hand, what is in it, and data sets made up."""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example as for_example
from hypothesis import given
from hypothesis import strategies as st

from llama_load.cli.main import main
from llama_load.lab.dataset_tools import inspection
from llama_load.lab.dataset_tools.histogram import histogram, quantile
from llama_load.loadgen.workloads.custom import Custom
from llama_load.loadgen.workloads.prompt_plan import PlanRequest
from llama_load.loadgen.workloads.sharegpt import ShareGPT
from llama_load.servers.counting import EstimatedCounter
from llama_load.servers.serving.launch import Server
from tests.conftest import REPOSITORY, environment
from tests.loadgen.workloads.data import first_exchanges


@pytest.fixture(autouse=True)
def _eighty_columns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_DATASETS_CACHE", raising=False)
    monkeypatch.delenv("LLAMA_LOAD_API_KEY", raising=False)


def datasets(
    capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0
) -> str:
    """What the command prints: stdout when it succeeds, the one sentence of stderr when it is
    refused."""
    try:
        found: object = main(["datasets", *map(str, arguments)])
    except SystemExit as ended:  # argparse
        found = ended.code
    assert found == code
    said = capsys.readouterr()
    if code:
        assert said.err.startswith("llama-load")
        assert said.err.count("\n") == 1
        return said.err
    return said.out


def spawned(*arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    """The command in a separate process, from the repository's root, where a folder is named
    datasets as the package is."""
    return subprocess.run(
        [sys.executable, "-m", "llama_load.cli.main", "datasets", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=100,
        cwd=REPOSITORY,
        env=environment() | {"COLUMNS": "80", "HF_HUB_OFFLINE": "1"} | env,
        check=False,
    )


def narrow(text: str, *but: object) -> bool:
    """Whether it fits 80 columns, paths aside."""
    for path in but:
        text = text.replace(str(path), "")
    return all(len(line) <= 80 for line in text.splitlines())


def conversations(path: Path, lengths: list[tuple[int, int]], turns: int = 1) -> Path:
    """A ShareGPT file with questions and answers of this many characters."""
    entries = []
    for number, (question, answer) in enumerate(lengths):
        said = [
            {"from": "human", "value": "q" * question},
            {"from": "gpt", "value": "a" * answer},
        ] * turns
        entries.append({"id": number, "conversations": said})
    path.write_text(json.dumps(entries), encoding="utf-8")
    return path


def value(report: str, name: str) -> str:
    """The value of a line of the report, such as Conversations."""
    found = re.search(rf"^{name}: +(.*)$", report, re.MULTILINE)
    assert found is not None, report
    return found[1]


def slots(report: str) -> dict[int, list[int]]:
    """The numbers of the table at the end: how many fit, by context."""
    rows = re.findall(
        r"^ +([\d,]+) +([\d,]+) +[\d.]+%(?: +([\d,]+) +[\d.]+%)?$",
        report.partition("fit a slot")[2],
        re.MULTILINE,
    )
    return {
        _number(context): [_number(each) for each in numbers if each]
        for context, *numbers in rows
    }


def _number(text: str) -> int:
    return int(text.replace(",", ""))


# list


def test_list_names_the_samples_and_says_how_to_get_more(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said = datasets(capsys, "list")
    assert re.search(
        r"sharegpt_sample\.json +220 conversations +45\d\.\d kB +--dataset-path",
        said.replace("\n", " "),
    )
    assert re.search(r"mooncake_sample\.jsonl .*--trace", said)
    assert re.search(r"perplexity_text\.txt .*--text", said)
    assert "No data set in Hugging Face's cache" in said
    assert "fetch hf:OWNER/NAME" in " ".join(said.split())
    assert "speculation_prompts.jsonl " in said  # not broken at 80 columns
    assert narrow(said)


def test_list_names_what_is_in_the_cache_of_the_hub(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """As the package lays it out; a data set of local files, one cut off while it was written, and
    one older are left out."""

    def info(folder: str, **about: object) -> Path:
        file = tmp_path / "hf" / "datasets" / folder / "dataset_info.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(about))
        return file

    def split(rows: int) -> dict[str, object]:
        return {"num_examples": rows, "num_bytes": 2_500_000}

    source = {
        "download_checksums": {"hf://datasets/Acme/Chat-Logs@3f2a/train.parquet": {}}
    }
    old = info(
        "acme___chat-logs/default/0.0.0/3f29", splits={"train": split(1)}, **source
    )
    os.utime(old, (1, 1))
    info(
        "acme___chat-logs/default/0.0.0/3f2a",
        splits={"train": split(94_145), "test": split(12)},
        **source,
    )
    info("acme___plain/default/0.0.0/aa", splits={"train": split(7)})
    info("json/default-1e00/0.0.0/bb", splits={"train": split(5)})
    cut = info("acme___cut/default/0.0.0/cc")
    cut.write_text('{"splits": {"tr')
    said = datasets(capsys, "list")
    assert re.search(r"^hf:Acme/Chat-Logs +94,145 rows +2\.5 MB", said, re.MULTILINE)
    assert re.search(r"^hf:Acme/Chat-Logs:test +12 rows", said, re.MULTILINE)
    assert re.search(r"^hf:acme/plain +7 rows", said, re.MULTILINE)
    assert said.count("rows") == 3
    assert "No data set" not in said
    assert narrow(said)


# fetch


@pytest.mark.heavy
def test_fetch_without_network_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    """Catches a traceback of the hub's client where there is no network."""
    done = spawned("fetch", "hf:acme/chat", HF_HOME=str(tmp_path))
    assert done.returncode == 2
    assert done.stdout == ""
    assert "hf:acme/chat" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.heavy
def test_what_was_fetched_is_listed_and_needs_no_network(tmp_path: Path) -> None:
    """The cache is filled as fetch fills it, but from a file: the package writes it, the folder
    then gets the Hub's name. Catches a cache that the datasets package lays out otherwise than
    `datasets list` reads it."""
    data = tmp_path / "chat.jsonl"
    turns = [
        {"from": "human", "value": "这是什么？ What is this?"},
        {"from": "gpt", "value": "一个问题。 A question."},
    ]
    data.write_text(
        "".join(
            json.dumps({"id": str(n), "conversations": turns}) + "\n" for n in range(30)
        )
    )
    cache = tmp_path / "hf" / "datasets"
    script = f"import datasets; datasets.load_dataset('json', data_files={str(data)!r})"
    env = environment() | {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1"}
    subprocess.run(
        [sys.executable, "-c", script],
        env=env,
        cwd=tmp_path,
        check=True,
        capture_output=True,
        timeout=100,
    )
    (made,) = cache.glob("json/*/*/*/dataset_info.json")
    hub = cache / "acme___chat" / "default" / "0.0.0" / "3f2a"
    shutil.copytree(made.parent, hub)
    (hub / "json-train.arrow").rename(hub / "chat-train.arrow")
    info = json.loads(made.read_text())
    info |= {
        "dataset_name": "chat",
        "config_name": "default",
        "builder_name": "parquet",
    }
    (hub / "dataset_info.json").write_text(json.dumps(info))

    home = str(tmp_path / "hf")
    fetched = spawned("fetch", "hf:acme/chat", HF_HOME=home)
    assert (fetched.returncode, fetched.stdout) == (
        0,
        "hf:acme/chat: 30 rows with the columns id, conversations\n",
    )
    assert "hf:acme/chat" in spawned("list", HF_HOME=home).stdout
    inspected = spawned("inspect", "hf:acme/chat", HF_HOME=home)
    assert value(inspected.stdout, "Rows read") == "30, all of them"
    assert value(inspected.stdout, "Usable").startswith("30 of 30")


@pytest.mark.parametrize("name", ["chat.json", "acme/chat", "hf:."])
def test_fetch_is_for_the_hub(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert "hf:OWNER/NAME" in datasets(capsys, "fetch", name, code=2)


# inspect


def test_inspect_counts_by_hand(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Estimated tokens are round(characters / 4.2) + 1: 42 characters 11, 4200 1001, 8400 2001; 4
    are 2, too few for the rule.

    With the template's 40, 2048 holds 11 + 11 and 1001 + 11 and 2 + 11, not 11 + 2001; 4096 holds
    all.
    """
    file = conversations(
        tmp_path / "chats.json", [(42, 42), (4200, 42), (42, 8400), (4, 42)], turns=3
    )
    said = datasets(capsys, "inspect", file)
    assert value(said, "Conversations") == "4, all of them counted"
    assert (
        value(said, "Turns")
        == "12 questions with answers, 3.0 per conversation (max 3)"
    )
    assert value(said, "Tokens counted by").startswith("estimate, off by 20 %")
    assert value(said, "Usable").startswith("3 of 4 (75.0%)")
    assert "p50 11  p90 1,001  p99 1,001  max 1,001  mean 256" in said
    assert "max 2,001" in said
    assert slots(said) == {2048: [3, 2], 4096: [4, 3], 8192: [4, 3], 16384: [4, 3]}
    assert narrow(said, file)


def test_inspect_with_answers_of_a_given_length_and_one_context(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """1001 + 7 + 40 = 1048, a token too many; 11 + 7 + 40 = 58."""
    file = conversations(tmp_path / "chats.json", [(42, 42), (4200, 42), (42, 1)])
    said = datasets(capsys, "inspect", file, "--output-len", 7, "--ctx-per-slot", 1047)
    assert "Answers: 7 tokens each" in said
    assert slots(said) == {1047: [2, 2]}
    assert value(said, "Usable").startswith("3 of 3")
    assert slots(
        datasets(capsys, "inspect", file, "--output-len", 7, "--ctx-per-slot", 1048)
    ) == {1048: [3, 3]}


def test_what_inspect_calls_usable_is_what_a_run_would_take(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Also where the first to speak is the model, which vLLM takes for the question."""
    file = conversations(
        tmp_path / "chats.json", [(length, 60) for length in range(1, 9000, 90)]
    )
    entries = json.loads(file.read_text())
    entries[5]["conversations"].insert(0, {"from": "gpt", "value": "hi"})
    file.write_text(json.dumps(entries))
    request = PlanRequest(
        num_prompts=1000,
        fill=False,
        warmup=0,
        seed=0,
        counter=EstimatedCounter(),
        dataset_path=str(file),
        output_len=None,
    )
    taken = len(ShareGPT().plan(request).measured)
    assert 0 < taken < 100
    assert value(datasets(capsys, "inspect", file), "Usable").startswith(
        f"{taken} of 100"
    )


def test_inspect_counts_a_sample_of_a_large_file_and_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "SAMPLE", 200)
    file = conversations(tmp_path / "many.json", [(42, 42)] * 201)
    said = datasets(capsys, "inspect", file)
    assert (
        value(said, "Conversations")
        == "201, of which 200 were counted, drawn at random"
    )
    assert value(said, "Usable").startswith("200 of 200")
    assert narrow(said, file)


def test_inspect_distinguishes_prompts_from_conversations(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    question, answer = (
        {"role": "user", "content": "What is it?"},
        {"role": "assistant", "content": "It is a question."},
    )
    lines = {
        "custom": [
            {"prompt": "你好，世界！", "output_tokens": 9},
            {"messages": [question, answer, question]},
            {"messages": [question, answer], "output_tokens": 3},
        ],
        "sharegpt_chat": [
            {"messages": [question, answer]},
            {
                "id": 1,
                "conversations": [
                    {"from": "human", "value": "a b"},
                    {"from": "gpt", "value": "c d"},
                ],
            },
        ],
    }
    for locustfile, examples in lines.items():
        for example in examples:
            file = tmp_path / "data.jsonl"
            file.write_bytes(
                b"\xef\xbb\xbf"
                + json.dumps(example, ensure_ascii=False).encode()
                + b"\n"
            )
            assert value(datasets(capsys, "inspect", file), "Layout").endswith(
                f"locustfiles/{locustfile}.py"
            ), example


def test_inspect_of_prompts_of_ones_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """round(42 / 4.2) + 1 = 11 and 9 for the answer; the second 11 and 128: with the template 60
    and 179 tokens."""
    file = tmp_path / "mine.jsonl"
    file.write_text(
        json.dumps({"prompt": "q" * 42, "output_tokens": 9})
        + "\n"
        + json.dumps({"prompt": "r" * 42})
        + "\n"
    )
    said = datasets(capsys, "inspect", file, "--ctx-per-slot", 60)
    assert value(said, "Prompts") == "2, all of them counted"
    assert "vllm" not in said
    assert slots(said) == {60: [1]}
    file.write_text('{"prompt": "good"}\n{"prompt": 5}\n')
    assert "line 2 of" in datasets(capsys, "inspect", file, code=2)


def test_inspect_counts_with_a_tokenizer(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"[?]": 0}, unk_token="[?]")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    file = tmp_path / "mine.jsonl"
    file.write_text('{"prompt": "one two three four five"}\n')
    said = datasets(capsys, "inspect", file, "--tokenizer", tmp_path)
    assert value(said, "Tokens counted by") == "tokenizer tokenizer.json"
    assert "p50 5 " in said


def test_inspect_asks_the_server(
    capsys: pytest.CaptureFixture[str], llama_server: Server
) -> None:
    """The real llama-server, 4096 tokens a slot: it counts, and its template is smaller than the
    guess."""
    said = datasets(
        capsys,
        "inspect",
        REPOSITORY / "datasets" / "sharegpt_sample.json",
        "--host",
        llama_server.url,
    )
    assert value(said, "Tokens counted by") == "server"
    assert list(slots(said)) == [4096]
    assert "and 40 tokens of chat template" not in said


@pytest.mark.parametrize(
    ("content", "arguments", "sentence"),
    [
        (None, (), "there is no data set at"),
        ("", (), "is empty"),
        ('[{"conversations": [', (), "not valid JSON"),
        ("[]", (), "no conversation of two turns"),
        ('{"a": 1}', (), "no conversation of two turns"),
        (
            '[{"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]}]',
            ("--output-len", "0"),
            "argument --output-len: must be a whole number from 1 to",
        ),
        (
            '[{"conversations": []}]',
            ("--ctx-per-slot", "-4"),
            "argument --ctx-per-slot: must be a whole number from 1 to 10000000, got '-4'",
        ),
        ('[{"conversations": []}]', ("--host", "ftp://x"), "--host"),
        ('[{"conversations": []}]', ("--tokenizer", "nowhere"), "no tokenizer.json"),
    ],
)
def test_inspect_refuses_in_a_sentence(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    content: str | None,
    arguments: tuple[str, ...],
    sentence: str,
) -> None:
    file = tmp_path / "data.json"
    if content is not None:
        file.write_text(content)
    assert sentence in datasets(capsys, "inspect", file, *arguments, code=2)


# make


def test_made_up_conversations_are_of_the_lengths_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The mean of 900 log-normal lengths with sigma 0.7 is within a tenth of the true one but once
    in ten thousand seeds."""
    file = tmp_path / "made.json"
    said = datasets(
        capsys,
        "make",
        file,
        "--conversations",
        900,
        "--turns",
        2,
        "--input-len",
        100,
        "--output-len",
        300,
    )
    assert said == f"900 conversations written to {file}\n"
    found, _ = first_exchanges(file)
    count = EstimatedCounter().count
    assert statistics.mean(
        count([question for _, question, _ in found])
    ) == pytest.approx(100, rel=0.1)
    assert statistics.mean(count([answer for _, _, answer in found])) == pytest.approx(
        300, rel=0.1
    )
    assert len({question for _, question, _ in found}) == 900
    chinese = sum("\u4e00" <= question[0] <= "\u9fff" for _, question, _ in found)
    assert chinese == 300
    assert value(datasets(capsys, "inspect", file), "Turns").startswith(
        "1,800 questions"
    )


def test_made_up_lines_are_prompts_of_ones_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "made.jsonl"
    assert (
        datasets(capsys, "make", file, "--conversations", 12)
        == f"12 prompts written to {file}\n"
    )
    plan = Custom().plan(
        PlanRequest(
            num_prompts=12,
            fill=False,
            warmup=0,
            seed=0,
            counter=EstimatedCounter(),
            dataset_path=str(file),
            output_len=None,
        )
    )
    assert len(plan.measured) == 12
    assert len({prompt.max_tokens for prompt in plan.measured}) > 6


def test_the_same_seed_makes_the_same_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        datasets(
            capsys,
            "make",
            tmp_path / f"{name}.json",
            "--conversations",
            20,
            "--seed",
            seed,
        )
    a, b, c = ((tmp_path / f"{name}.json").read_bytes() for name in "abc")
    assert a == b != c


def test_the_shortest_made_up_texts_are_still_usable(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "short.json"
    datasets(capsys, "make", file, "--input-len", 4, "--output-len", 4)
    assert value(datasets(capsys, "inspect", file), "Usable").startswith("200 of 200")


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("there.json", (), "is not overwritten"),
        ("data.txt", (), "must end in .json"),
        ("data.jsonl", ("--turns", "2"), "need a .json file"),
        (
            "data.json",
            ("--turns", "0"),
            "argument --turns: must be a whole number from 1 to",
        ),
        (
            "data.json",
            ("--conversations", "-1"),
            "argument --conversations: must be a whole number from 1 to",
        ),
        ("data.json", ("--input-len", "3"), "must be 4 tokens or more"),
        ("nowhere/data.json", (), "cannot be written"),
    ],
)
def test_make_refuses_in_a_sentence(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    name: str,
    arguments: tuple[str, ...],
    sentence: str,
) -> None:
    (tmp_path / "there.json").write_text("mine")
    assert sentence in datasets(capsys, "make", tmp_path / name, *arguments, code=2)
    assert (tmp_path / "there.json").read_text() == "mine"
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == [
        "there.json"
    ]


def test_make_and_inspect_from_a_shell(tmp_path: Path) -> None:
    file = tmp_path / "聊天.json"
    assert spawned("make", file).returncode == 0
    done = spawned("inspect", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert value(done.stdout, "Conversations").startswith("200")


# histogram


def test_quantiles_are_lengths_that_are_there() -> None:
    """Nearest rank: of 1…10, half do not exceed 5, nine in ten do not exceed 9, and 99 % need the
    tenth."""
    lengths = list(range(1, 11))
    assert [quantile(lengths, percent) for percent in (0, 50, 90, 99, 100)] == [
        1,
        5,
        9,
        10,
        10,
    ]


def test_a_histogram_of_nothing_says_so() -> None:
    assert histogram([]) == ["  none"]


def test_bins_grow_where_lengths_differ_much_and_are_even_where_not() -> None:
    wide = [line.split()[0] for line in histogram([5, 70, 3000])[:-1]]
    assert wide == [
        "5–9",
        "10–19",
        "20–49",
        "50–99",
        "100–199",
        "200–499",
        "500–999",
        "1,000–1,999",
        "2,000–4,999",
    ]
    even = [line.split()[0] for line in histogram([190, 214])[:-1]]
    assert even == ["190–194", "195–199", "200–204", "205–209", "210–214"]


@given(
    st.lists(
        st.one_of(st.integers(0, 40), st.integers(0, 10**7 - 1)),
        min_size=1,
        max_size=60,
    )
)
@for_example([10**7 - 1])
def test_every_length_has_its_place_in_a_histogram(lengths: list[int]) -> None:
    """The bins are about 12, follow one another, and hold each length once; a bar for each that is
    not empty; 80 columns, for lengths below ten million."""
    *rows, summary = histogram(lengths)
    assert 1 <= len(rows) <= 12
    behind = None
    for row in rows:
        label, *bar, count, _ = row.split()
        first, last = map(_number, label.split("–") if "–" in label else (label, label))
        assert behind is None or first == behind
        behind = last + 1
        assert _number(count) == sum(first <= length <= last for length in lengths)
        assert bool(bar) == bool(_number(count))
    assert sum(_number(row.split()[-2]) for row in rows) == len(lengths)
    assert f"max {max(lengths):,} " in summary
    assert narrow("\n".join([*rows, summary]))
