"""What is read of others has limits in bytes, memory, depth and number, and no link leads out of a
folder.

Files with holes are as large as they say and take no space: what reads one to its end would not
come back.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_load.analysis.comparison.llama_bench import bench_tests
from llama_load.analysis.comparison.run_folder import _server_flags
from llama_load.ground.errors import RunError, UsageError
from llama_load.lab.sweep.folder import read_journal as read_sweep
from llama_load.loadgen.workloads import data_files
from llama_load.loadgen.workloads.block_text import BlockText
from llama_load.loadgen.workloads.data_files import DataFile
from llama_load.loadgen.workloads.huggingface import DataSet
from llama_load.loadgen.workloads.images import files as images_of
from llama_load.loadgen.workloads.prompt_plan import PlanRequest
from llama_load.loadgen.workloads.talk_files import _ANYTHING, read_talks
from llama_load.loadgen.workloads.text_files import text_files
from llama_load.outside import foreign_json
from llama_load.outside.foreign_files import (
    LeadsOutsideError,
    TooLarge,
    begin_of,
    files_below,
    open_foreign,
    read_foreign_json,
)
from llama_load.outside.foreign_json import (
    MOST_DEPTH,
    TooDeep,
    check_json,
    decode_foreign,
)
from llama_load.outside.plain_http import Answer
from llama_load.run_folder.journal import read_journal
from llama_load.run_folder.manifest import (
    JOURNAL,
    MANIFEST,
    SpoolManifest,
    read_manifest,
)
from llama_load.run_folder.reading import _read_spool
from llama_load.run_folder.telemetry_file import read_samples
from tests.loadgen.workloads.test_custom import Words

GIB = 1 << 30
REQUEST = PlanRequest(num_prompts=2, fill=False, warmup=0, seed=0, counter=Words())


def hole(file: Path, size: int) -> Path:
    """A file of zeros that takes no space."""
    with file.open("wb") as opened:
        opened.truncate(size)
    return file


@pytest.mark.parametrize(
    "read",
    [
        read_journal,
        read_samples,
        read_foreign_json,
        bench_tests,
        lambda file: DataFile(file, ""),
        lambda file: list(text_files(file, 0)),
        lambda file: DataSet(str(file.rename(file.with_suffix(".parquet")))).facts,
        lambda file: images_of(file)[0](),
        lambda file: read_talks(file, REQUEST),
    ],
)
def test_a_file_of_400_gib_of_nothing_is_refused_at_once(
    read: Callable[[Path], object], tmp_path: Path
) -> None:
    with pytest.raises((TooLarge, UsageError, ValueError)):
        read(hole(tmp_path / "file", 400 * GIB))


def test_a_spool_has_the_limits_of_a_run(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_bytes(msgspec.json.encode(SpoolManifest("worker", 0)))
    hole(tmp_path / JOURNAL, 5 * GIB)
    with pytest.raises(UsageError, match="over the limit"):
        _read_spool(tmp_path)


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    os.mkfifo(tmp_path / "server" / "command")
    assert _server_flags(tmp_path) == {}
    with pytest.raises(OSError, match="not a regular file"):
        begin_of(tmp_path / "server" / "command", 1)
    with pytest.raises(OSError, match="not a regular file"):
        open_foreign(Path("/dev/zero"), 10)


# ---------------------------------------------------------------------- JSON


def nested(levels: int, kind: str) -> bytes:
    opening = "[" if kind == "lists" else '{"a":'
    closing = "]" if kind == "lists" else "}"
    return (opening * levels + "1" + closing * levels).encode()


@pytest.mark.parametrize("levels", [MOST_DEPTH + 1, 500, 5_000, 100_000])
@pytest.mark.parametrize("kind", ["lists", "objects"])
def test_json_of_any_depth_is_refused_in_a_sentence(
    levels: int, kind: str, tmp_path: Path
) -> None:
    """No reader raises anything else: RecursionError came from the decoder below some depth, from
    walks over the value above."""
    data = nested(levels, kind)
    file = tmp_path / MANIFEST
    file.write_bytes(data)
    readers: list[Callable[[], Any]] = [
        lambda: decode_foreign(data),
        lambda: read_foreign_json(file),
        lambda: bench_tests(file),
        lambda: read_manifest(tmp_path),
        lambda: list(DataFile(file, "").decoded(_ANYTHING)),
        lambda: read_talks(file, REQUEST),
        lambda: Answer(200, content=data).json(),
    ]
    for read in readers:
        with pytest.raises((UsageError, RunError, ValueError)):
            read()
    assert decode_foreign(nested(MOST_DEPTH, kind)) is not None
    (tmp_path / "cells.jsonl").write_bytes(data + b"\n")
    assert read_sweep(tmp_path) == {}


def test_json_that_would_fill_the_memory_is_refused_undecoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A list of empty lists takes thirty times its length; brackets in texts take nothing."""
    monkeypatch.setattr(foreign_json, "MOST_MEMORY_BYTES", 1 << 20)
    bomb = b"[" + b"[]," * 20_000 + b"[]]"
    with pytest.raises(TooDeep, match="of memory"):
        check_json(bomb)
    check_json(json.dumps([bomb.decode()] * 5).encode())
    check_json(b"[" + b"1.5," * 10_000 + b"1]")


def test_a_number_that_no_report_can_print_is_refused(tmp_path: Path) -> None:
    """Of an integer of 400 digits no float can be made: `report` ended in a traceback. Digits in
    texts are none."""
    data = b'{"n_params": [-%s]}' % (b"9" * 301)
    (tmp_path / MANIFEST).write_bytes(data)
    readers: list[Callable[[], Any]] = [
        lambda: decode_foreign(data),
        lambda: read_foreign_json(tmp_path / MANIFEST),
        lambda: read_manifest(tmp_path),
        lambda: Answer(200, content=data).json(),
    ]
    for read in readers:
        with pytest.raises((RunError, ValueError), match="more than 300 digits"):
            read()
    assert decode_foreign(b"[%s]" % (b"9" * 300)) == [int("9" * 300)]
    text = "3" * 5000
    assert decode_foreign(json.dumps({text: [text]}).encode()) == {text: [text]}


values = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(st.sampled_from('[]{}",\\a'), max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.sampled_from('[{"\\'), max_size=3), inner, max_size=3
        )
    ),
    max_leaves=30,
)


def depth_of(value: Any) -> int:
    parts = (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, list)
        else ()
    )
    return (1 if isinstance(value, dict | list) else 0) + max(
        map(depth_of, parts), default=0
    )


@pytest.mark.hypothesis
@given(value=values)
def test_the_depth_is_that_of_the_value(value: Any) -> None:
    without_strings = foreign_json._STRING.sub(b"", json.dumps(value).encode())
    assert foreign_json._depth_of(without_strings) == depth_of(value)


@pytest.mark.hypothesis
@given(
    data=st.binary(max_size=60)
    | st.text(st.sampled_from('[]{}",:\\1 a')).map(str.encode)
)
def test_what_is_no_json_is_a_value_error(data: bytes) -> None:
    try:
        decode_foreign(data)
    except ValueError:
        return


# ---------------------------------------------------------------------- data sets


def test_a_data_set_in_another_encoding_is_converted_up_to_a_limit(
    tmp_path: Path,
) -> None:
    """3 GiB of zeros are valid UTF-32, and take 12 GiB to convert."""
    with pytest.raises(UsageError, match="save it as UTF-8"):
        DataFile(hole(tmp_path / "zeros.json", 3 * GIB), "")


@pytest.mark.parametrize(
    "data", ["[" + "1," * 50 + "1]", "[" + "{}," * 50 + "{}]", "{}\n" * 50]
)
def test_a_data_set_has_a_limit_of_entries(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "MOST_ENTRIES", 20)
    file = tmp_path / "data.json"
    file.write_text(data)
    with pytest.raises(UsageError, match="more than 20 entries"):
        DataFile(file, "")


def test_commas_in_texts_are_no_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "MOST_ENTRIES", 20)
    file = tmp_path / "data.json"
    file.write_text(json.dumps([{"a": "one, two, three"}] * 15))
    assert len(DataFile(file, "")) == 15


WEKA = {
    "block_size": 64,
    "requests": [
        {"type": "s", "in": 100, "out": 5, "t": number, "hash_ids": []}
        for number in range(3)
    ],
}


@pytest.mark.parametrize("wait", ["1e300", "1e7", "1e999"])
def test_a_wait_longer_than_any_run_is_refused(wait: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(WEKA).replace('"t": 1', f'"think_time": {wait}, "t": 1'))
    with pytest.raises(UsageError, match=r"after a wait|is JSON, but not"):
        read_talks(file, REQUEST)


def test_a_wait_of_400_digits_is_refused(tmp_path: Path) -> None:
    """No float can be made of it, so that the sentence could not be."""
    line = '{"messages": [{"role": "user", "content": "a", "delay_s": %s}]}'
    file = tmp_path / "talks.jsonl"
    file.write_text(line % ("9" * 400))
    with pytest.raises(UsageError, match="after a wait"):
        read_talks(file, REQUEST)


def test_a_small_trace_cannot_ask_for_a_gigabyte_of_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3 kB asked for 400 million tokens."""
    monkeypatch.setattr(
        "llama_load.loadgen.workloads.block_text.MOST_TOKENS", 5_000_000
    )
    text = BlockText("0", Words())
    with pytest.raises(UsageError, match="million tokens in all"):
        for _ in range(40):
            text.prompt(iter(()), 1_000_000)


class Constant:
    """A tokenizer that counts the same for every text."""

    source = "server /tokenize"

    def count(self, texts: Sequence[str]) -> list[int]:
        return [7] * len(texts)


def test_a_tokenizer_that_counts_nothing_for_words_is_refused() -> None:
    """It may be the server's: a prompt of a known length had no end, and filled the memory."""
    with pytest.raises(UsageError, match="counts 0 tokens for"):
        BlockText("0", Constant())


# ---------------------------------------------------------------------- links


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "id_rsa"
    file.write_text("-----BEGIN PRIVATE KEY-----")
    return file


FOLDERS: list[tuple[str, Callable[[Path], object]]] = [
    ("a.txt", lambda folder: list(text_files(folder, 0))),
    ("a.json", lambda folder: read_talks(folder, REQUEST)),
    ("a.png", images_of),
    ("below/a.txt", lambda folder: list(text_files(folder, 0))),
    ("below/a.png", images_of),
]


@pytest.mark.parametrize(("name", "read"), FOLDERS)
@pytest.mark.parametrize(
    "way", ["absolute", "relative", "through a folder", "through a link"]
)
def test_a_link_does_not_lead_out_of_a_folder(
    name: str, read: Callable[[Path], object], way: str, secret: Path, tmp_path: Path
) -> None:
    """Documents, conversations and images of others: a link in them sent a private key to the
    server."""
    folder = tmp_path / "folder"
    link = folder / name
    link.parent.mkdir(parents=True)
    if way == "absolute":
        link.symlink_to(secret)
    elif way == "relative":
        link.symlink_to(os.path.relpath(secret, link.parent))
    elif way == "through a link":
        (folder / "hop").symlink_to(secret)
        link.symlink_to(folder / "hop")
    else:
        (folder / "out").symlink_to(tmp_path)
        link.symlink_to(folder / "out" / secret.name)
    with pytest.raises(UsageError, match="leads out of"):
        read(folder)


def test_links_within_a_folder_and_a_named_link_are_followed(
    secret: Path, tmp_path: Path
) -> None:
    """The person who names a link means the file."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.txt").write_text("text")
    (folder / "b.txt").symlink_to("a.txt")
    (folder / "loop.txt").symlink_to("loop.txt")
    assert files_below(folder) == [folder / "a.txt", folder / "b.txt"]
    named = tmp_path / "named"
    named.symlink_to(folder)
    assert len(list(text_files(named, 0))) == 2
    assert [file.text for file in text_files(secret, 0)] == [secret.read_text()]
    (folder / "c.txt").symlink_to(secret)
    with pytest.raises(LeadsOutsideError):
        files_below(folder)
