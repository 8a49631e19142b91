"""Data sets of the Hugging Face package, offline: Parquet, JSON and JSONL files and folders of this
machine."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.custom import Custom
from llama_load.loadgen.workloads.huggingface import DataSet, Place, place_of
from llama_load.loadgen.workloads.prompt_plan import Plan, PlanRequest, Traffic
from llama_load.loadgen.workloads.recorded import Conversations
from llama_load.loadgen.workloads.sharegpt import ShareGPT

REPOSITORY = Path(__file__).resolve().parents[3]


class Words:
    source = "words"

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]


@pytest.fixture(autouse=True)
def cache(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache of the tests' own, and a Hub that is said not to be there: nothing is waited for."""
    import huggingface_hub

    import datasets

    monkeypatch.setattr(
        datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache")
    )
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


def chat(number: int) -> dict:
    turns = [
        ("human", f"q{number} 你好 w w"),
        ("gpt", f"a{number} w w w w"),
        ("human", "and w w more"),
        ("gpt", "yes w w w"),
    ]
    return {
        "id": f"c{number}",
        "conversations": [{"from": who, "value": text} for who, text in turns],
    }


def plan(source: str | Path, num_prompts: int, turns: int | None = 1) -> Plan:
    traffic = Traffic(turns=turns)
    return ShareGPT().plan(
        PlanRequest(
            num_prompts=num_prompts,
            fill=True,
            warmup=2,
            seed=3,
            counter=Words(),
            dataset_path=str(source),
            traffic=traffic,
        )
    )


def write(folder: Path, entries: list[dict]) -> dict[str, Path]:
    """The same entries in every format."""
    folder.mkdir(exist_ok=True)
    files = {kind: folder / f"chats.{kind}" for kind in ("parquet", "json", "jsonl")}
    pq.write_table(pa.Table.from_pylist(entries), files["parquet"])
    files["json"].write_text(json.dumps(entries, ensure_ascii=False), encoding="utf-8")
    files["jsonl"].write_text(
        "\n".join(json.dumps(entry) for entry in entries), encoding="utf-8"
    )
    return files


@pytest.mark.parametrize("turns", [1, None])
def test_every_format_gives_the_plan_that_the_json_file_gives(
    tmp_path: Path, turns: int | None
) -> None:
    files = write(tmp_path, [chat(n) for n in range(12)])
    wanted = plan(files["json"], 6, turns)
    for source in (
        files["parquet"],
        f"hf:{files['parquet']}",
        f"hf:{files['json']}",
        f"hf:{files['jsonl']}:train",
    ):
        found = plan(source, 6, turns)
        assert (found.measured, found.warmup) == (wanted.measured, wanted.warmup)
        assert found.facts.dataset.path == str(source)
        assert len(found.facts.dataset.sha256) == 64


def test_a_folder_of_splits_is_a_data_set(tmp_path: Path) -> None:
    """As repositories lay it out; the split is train unless it is named."""
    for split, name in (("train", "a"), ("test", "b")):
        pq.write_table(
            pa.table({"name": [name] * 3, "size": [1, 2, 3]}),
            tmp_path / f"{split}-00000-of-00001.parquet",
        )
    assert DataSet(f"hf:{tmp_path}").columns == ["name", "size"]
    assert list(DataSet(f"hf:{tmp_path}").rows(["name"])) == [{"name": "a"}] * 3
    assert [row["size"] for row in DataSet(f"hf:{tmp_path}:test").rows()] == [1, 2, 3]
    with pytest.raises(UsageError, match=r"nothere.*train"):
        list(DataSet(f"hf:{tmp_path}:nothere").rows())


def test_messages_are_read_and_other_columns_are_named(tmp_path: Path) -> None:
    turns = [
        {"role": "user", "content": "what is it about"},
        {"role": "assistant", "content": "it is about ships"},
    ]
    pq.write_table(
        pa.table({"messages": [turns], "score": [1]}), tmp_path / "good.parquet"
    )
    assert plan(tmp_path / "good.parquet", 1).measured[0].text == "what is it about"
    pq.write_table(
        pa.table({"question": ["a"], "score": [1]}), tmp_path / "other.parquet"
    )
    with pytest.raises(
        UsageError, match=r"no conversation of two turns.* but prompts: .*\(-f custom\)"
    ):
        plan(tmp_path / "other.parquet", 1)
    with pytest.raises(UsageError, match="no column title; it has question, score"):
        DataSet(str(tmp_path / "other.parquet")).rows(["title"])
    pq.write_table(pa.table({"conversations": ["text"]}), tmp_path / "text.parquet")
    with pytest.raises(UsageError, match=r"row 1 of .* not in ShareGPT's layout"):
        plan(tmp_path / "text.parquet", 1)


def test_what_is_no_data_set_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"no parquet")
    with pytest.raises(
        UsageError, match=r"broken\.parquet cannot be read: .*[Pp]arquet"
    ):
        plan(tmp_path / "broken.parquet", 1)
    (tmp_path / "notes.docx").write_bytes(b"x")
    with pytest.raises(UsageError, match="not a Parquet, JSON or JSONL file"):
        DataSet(f"hf:{tmp_path / 'notes.docx'}")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="cannot be read"):
        DataSet(f"hf:{tmp_path / 'empty'}")
    with pytest.raises(UsageError, match="hf:OWNER/NAME"):
        DataSet("hf:")
    with pytest.raises(UsageError, match="cannot be read"):
        (tmp_path / "broken.jsonl").write_text('{"a": 1}\n{"a": ')
        list(DataSet(f"hf:{tmp_path / 'broken.jsonl'}").rows())


@pytest.mark.parametrize("spec", ["hf:nobody/has-this", "hf:nobody/has-this:test"])
def test_what_cannot_be_reached_is_named_with_the_ways_out(spec: str) -> None:
    with pytest.raises(
        UsageError,
        match=r"cannot be reached.*--dataset-path FILE.*llama-load datasets fetch",
    ):
        plan(spec, 1)


@pytest.mark.parametrize(
    "path", ["nothing.parquet", "hf:./nothing", "hf:/no/such/file.json"]
)
def test_a_file_that_is_not_there_is_not_looked_for_on_the_hub(path: str) -> None:
    with pytest.raises(UsageError, match="there is no data set at"):
        ShareGPT().plan(
            PlanRequest(
                num_prompts=1,
                fill=True,
                warmup=0,
                seed=0,
                counter=Words(),
                dataset_path=path,
            )
        )


def picture(number: int, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8), (10 * number, 0, 0)).save(file, kind)
    return file.getvalue()


def test_images_come_as_the_files_they_are(tmp_path: Path) -> None:
    """From a column of type Image, as the package writes them, whatever its name; drawn with the
    seed."""
    import datasets

    files = [picture(n, "JPEG" if n % 2 else "PNG") for n in range(20)]
    table = datasets.Dataset.from_dict(
        {"text": ["x"] * 20, "photo": [{"bytes": file, "path": None} for file in files]}
    )
    table.cast_column("photo", datasets.Image()).to_parquet(tmp_path / "photos.parquet")
    found = DataSet(f"hf:{tmp_path / 'photos.parquet'}").images(5, seed=1)
    assert len(set(found)) == 5
    assert set(found) <= set(files)
    assert found == DataSet(f"hf:{tmp_path / 'photos.parquet'}").images(5, seed=1)
    assert found != DataSet(f"hf:{tmp_path / 'photos.parquet'}").images(5, seed=2)
    assert sorted(
        DataSet(f"hf:{tmp_path / 'photos.parquet'}").images(99, seed=2)
    ) == sorted(files)


def test_columns_named_image_may_hold_bytes_in_several_ways(tmp_path: Path) -> None:
    files = [picture(n) for n in range(4)]
    pq.write_table(pa.table({"image": files}), tmp_path / "bytes.parquet")
    pq.write_table(
        pa.table({"images": [[{"bytes": file}] for file in files]}),
        tmp_path / "lists.parquet",
    )
    pq.write_table(
        pa.table({"picture": [*({"bytes": file} for file in files), None]}),
        tmp_path / "picture.parquet",
    )
    for name in ("bytes", "lists", "picture"):
        assert sorted(
            DataSet(f"hf:{tmp_path / name}.parquet").images(9, seed=0)
        ) == sorted(files)
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "none.parquet")
    with pytest.raises(
        UsageError, match="no column image or images or picture; it has text"
    ):
        DataSet(f"hf:{tmp_path / 'none.parquet'}").images(1, seed=0)
    pq.write_table(pa.table({"image": [1, 2]}), tmp_path / "numbers.parquet")
    with pytest.raises(UsageError, match=r"column image .* contains no images"):
        DataSet(f"hf:{tmp_path / 'numbers.parquet'}").images(1, seed=0)


def test_a_folder_of_image_files_is_a_data_set(tmp_path: Path) -> None:
    files = [picture(n) for n in range(3)]
    for number, file in enumerate(files):
        (tmp_path / f"{number}.png").write_bytes(file)
    assert sorted(DataSet(f"hf:{tmp_path}").images(3, seed=0)) == sorted(files)


@pytest.mark.heavy
def test_the_repositorys_folder_of_data_does_not_hide_the_package(
    tmp_path: Path,
) -> None:
    """With the repository first on the path, as in a run of Locust, and with gevent's patches.
    Catches an import of `datasets` that finds the folder of this repository."""
    file = write(tmp_path / "data", [chat(1)])["parquet"]
    code = "from gevent import monkey; monkey.patch_all(); from llama_load.loadgen.workloads.huggingface import DataSet; import sys; print(len(list(DataSet(sys.argv[1]).rows())))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(file)],
        cwd=REPOSITORY,
        env=os.environ
        | {
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(tmp_path),
            "PYTHONPATH": str(REPOSITORY),
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.stdout.strip(), done.returncode) == ("1", 0), done.stderr


def test_the_package_is_loaded_only_when_it_is_asked_for() -> None:
    code = "import sys, llama_load.loadgen.workloads.sharegpt; print('datasets' in sys.modules, 'pyarrow' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert done.stdout.strip() == "False False"


@pytest.mark.parametrize(
    "named",
    [
        "{secret}",
        "../secret.txt",
        "../*.txt",
        "link.txt",
        "**/link.txt",
        "https://127.0.0.1:1/x.json",
        "zip://a.txt::{secret}",
    ],
)
def test_the_readme_of_a_data_set_names_no_files_outside_of_it(
    tmp_path: Path, named: str
) -> None:
    """`data_files: /etc/passwd` in the README of a folder was read into prompts."""
    secret = tmp_path / "secret.txt"
    secret.write_text("a secret line\n")
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "link.txt").symlink_to(secret)
    (folder / "README.md").write_text(
        f"---\nconfigs:\n- config_name: default\n  data_files: '{named.format(secret=secret)}'\n---\n"
    )
    with pytest.raises(UsageError) as raised:
        list(DataSet(str(folder)).rows())
    assert "a secret line" not in str(raised.value)
    assert "not a file of its own" in str(raised.value) or "cannot be read" in str(
        raised.value
    ), raised.value


def test_a_linked_data_set_and_a_readme_that_names_its_files_are_read(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"x": 1}\n')
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  data_files: 'a.jsonl'\n---\n"
    )
    (tmp_path / "elsewhere").symlink_to(folder)
    (tmp_path / "one.jsonl").symlink_to(folder / "a.jsonl")
    for place in (folder, tmp_path / "elsewhere", tmp_path / "one.jsonl"):
        assert list(DataSet(str(place)).rows()) == [{"x": 1}]


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ("hf:a/b", Place("a/b", None, "train")),
        ("hf:a/b:test", Place("a/b", None, "test")),
        ("hf:a/b:small:test", Place("a/b", "small", "test")),
        ("hf:a/b:small:", Place("a/b", "small", "train")),
    ],
)
def test_a_spec_has_a_configuration_and_a_split(spec: str, place: Place) -> None:
    assert place_of(spec) == place


def test_a_configuration_is_a_set_of_files_of_its_own(tmp_path: Path) -> None:
    """As the README of a repository declares them; custom.py and conversations.py read it, too."""
    (tmp_path / "README.md").write_text(
        "---\nconfigs:\n- config_name: small\n  data_files: small.jsonl\n"
        "- config_name: large\n  data_files: large.jsonl\n---\n"
    )
    for name in ("small", "large"):
        (tmp_path / f"{name}.jsonl").write_text(
            f'{{"prompt": "Name a {name} river."}}\n'
        )
    request = PlanRequest(
        num_prompts=1,
        fill=False,
        warmup=0,
        seed=0,
        counter=Words(),
        dataset_path=f"hf:{tmp_path}:large:train",
    )
    for workload in (Custom(), Conversations()):
        found = workload.plan(request)
        assert [prompt.text for prompt in found.measured] == ["Name a large river."]
        assert found.facts.dataset.path == f"hf:{tmp_path}:large:train"
    unknown = replace(request, dataset_path=f"hf:{tmp_path}:huge:train")
    with pytest.raises(UsageError, match="huge"):
        Custom().plan(unknown)
