"""What a server or a file sends without end or in the worst pieces costs bounded memory and time."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from PIL import Image as Pillow

from llama_load.errors import UsageError
from llama_load.targets.probe import Probe, Wanted
from llama_load.wire.sse import EventStream
from llama_load.workloads.data_files import DataFile
from llama_load.workloads.huggingface import DataSet
from llama_load.workloads.images import files, image_of, made
from llama_load.workloads.text_files import text_files
from tests.conftest import Finished
from tests.scripted_server import ScriptedServer


def cpu_s(work: object) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def test_a_stream_in_single_bytes_takes_linear_time() -> None:
    """400 kB took 8 s. (CPU time, and bounded by what four times less takes.)"""

    def feed(size: int) -> float:
        stream, data = EventStream(), b"data: " + b"x" * size + b"\n\n"
        return cpu_s(lambda: [stream.feed(data[at : at + 1]) for at in range(len(data))])

    small = feed(100_000)
    assert feed(400_000) < 10 * small + 0.2


def test_an_unterminated_string_in_a_data_file_takes_linear_time(tmp_path: Path) -> None:
    """160 kB took 45 s."""
    file = tmp_path / "x.json"
    file.write_bytes(b'[{"a": "' + b'\\"' * 200_000)
    begin = time.process_time()
    with pytest.raises(UsageError):
        DataFile(file, "a list")
    assert time.process_time() - begin < 3


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"])
def test_a_control_endpoint_that_drips_is_given_up(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """It held up the preflight for over 75 s: each byte began the timeout again."""
    monkeypatch.setattr("llama_load.targets.probe.TIMEOUT_S", 1.0)
    steps = [head, *(step for _ in range(60) for step in (0.25, b"X"))]
    with ScriptedServer(steps) as server:
        begin = time.monotonic()
        with pytest.raises(UsageError, match="did not answer within"):
            Probe(Wanted(server.url)).get("/health")
        assert time.monotonic() - begin < 10


def test_an_answer_is_bounded_by_what_was_asked_for(run_locust: object, tmp_path: Path) -> None:
    """--max-tokens 16 could cost 1.4 GB: comments without end, which no bound counted."""
    from tests.json_server import json_server

    flood = b": " + b"x" * 60_000 + b"\n\n"
    answers = {"/health": {}, "/v1/models": {"data": [{"id": "m"}]}, "/v1/chat/completions": (200, flood * 200, {"Content-Type": "text/event-stream"})}  # fmt: skip
    with json_server(answers) as server:
        done: Finished = run_locust(server.url, "--num-prompts", "2", "--warmup", "0", "--max-tokens", "16")
    assert set(done.records.strings("status")) == {"too_large"}
    assert "within 131072 bytes" in done.records.strings("error")[0]


@pytest.mark.parametrize("kind", ["EPS", "TIFF", "PPM"])
def test_images_in_other_formats_are_not_decoded(tmp_path: Path, kind: str) -> None:
    """Pillow runs Ghostscript for an EPS that is called x.png."""
    Pillow.new("RGB", (20, 20)).save(file := tmp_path / "x.png", kind)
    with pytest.raises(UsageError, match="its format is not one of"):
        made(files(file))


def test_an_image_that_would_fill_the_memory_is_refused_undecoded() -> None:
    data = io.BytesIO()
    Pillow.new("1", (13_300, 13_300)).save(data, "PNG")
    with pytest.raises(UsageError, match="pixels"):
        image_of(data.getvalue(), "bomb.png")


def test_devices_are_not_read(tmp_path: Path) -> None:
    for read in (lambda: list(text_files(Path("/dev/zero"), 0)), lambda: DataFile(Path("/dev/zero"), "x")):
        with pytest.raises(UsageError, match="not a regular file"):
            read()


@pytest.mark.parametrize("path", ["/etc/hostname", "../secret.png", "http://127.0.0.1:1/x.png", "file:///etc/hostname", "zip://x::/etc/hostname"])  # fmt: skip
def test_a_cell_opens_no_file_outside_of_its_data_set(tmp_path: Path, path: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "secret.png").write_bytes(b"secret")
    folder = tmp_path / "data"
    folder.mkdir()
    pq.write_table(pa.table({"image": [{"bytes": None, "path": path}]}), folder / "x.parquet")
    with pytest.raises(UsageError, match="which is not a file"):
        DataSet(str(folder / "x.parquet")).images(1, 0)


def test_a_cell_opens_only_files_of_its_data_set(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "own.png").write_bytes(b"picture")
    pq.write_table(pa.table({"image": [{"bytes": None, "path": str(tmp_path / "own.png")}]}), tmp_path / "x.parquet")
    assert DataSet(str(tmp_path / "x.parquet")).images(1, 0) == [b"picture"]
