"""What a server or a file sends without end or in the worst pieces costs bounded memory and
time."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
import time
import zlib
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image as Pillow

from llama_load.ground.errors import UsageError
from llama_load.loadgen.wire.sse import EventStream
from llama_load.loadgen.workloads.data_files import DataFile
from llama_load.loadgen.workloads.huggingface import DataSet
from llama_load.loadgen.workloads.images import files, image_of, made
from llama_load.loadgen.workloads.text_files import text_files
from llama_load.outside.foreign_files import read_foreign_json
from llama_load.servers.apis import CHAT, EMBEDDINGS
from llama_load.servers.probe import Probe, ProbeSettings
from tests.conftest import Finished, environment
from tests.scripted_server import ScriptedServer


def cpu_s(work: object) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


@dataclass(frozen=True)
class Spent:
    """What some work took in a process of its own, above what its imports took."""

    error: str
    wall_s: float
    cpu_s: float
    rss_mib: float


def spent_in_child(imports: str, work: str) -> Spent:
    """Linux gives the maximum of the resident memory in KiB."""
    code = f"""
import json, resource, time
{imports}
def now():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return time.monotonic(), used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
before, error = now(), ""
try:
    {work}
except Exception as failure:
    error = f"{{type(failure).__name__}}: {{failure}}"
print(json.dumps([error[:1000], *(b - a for a, b in zip(before, now()))]))
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return Spent(*json.loads(done.stdout))


SHAPES = {
    "one line": lambda size: b"data: " + b"x" * size + b"\n\n",
    "lines": lambda size: b"data: xxxx\n" * (size // 11) + b"\n",
    "events": lambda size: b"data: xxxx\n\n" * (size // 12),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_stream_in_single_bytes_takes_linear_time(shape: str) -> None:
    """One line of 1.6 MB took 60 s, 88 times as long as one of 200 kB."""

    def feed(size: int) -> float:
        stream, data = EventStream(), SHAPES[shape](size)
        # Nothing is kept: the garbage collector would look through all objects of the earlier
        # tests, again and again.
        return cpu_s(
            lambda: deque(
                (stream.feed(data[at : at + 1]) for at in range(len(data))), maxlen=0
            )
        )

    small = min(feed(25_000) for _ in range(2))
    assert feed(200_000) < 20 * small  # linear: 8 times


def test_an_unterminated_string_in_a_data_file_takes_linear_time(
    tmp_path: Path,
) -> None:
    """160 kB took 45 s."""
    file = tmp_path / "x.json"
    file.write_bytes(b'[{"a": "' + b'\\"' * 200_000)
    begin = time.process_time()
    with pytest.raises(UsageError):
        DataFile(file, "a list")
    assert time.process_time() - begin < 3


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"]
)
def test_a_control_endpoint_that_drips_is_given_up(
    head: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It held up the preflight for over 75 s: each byte began the timeout again."""
    monkeypatch.setattr("llama_load.servers.probe.TIMEOUT_S", 1.0)
    steps = [head, *(step for _ in range(60) for step in (0.25, b"X"))]
    with ScriptedServer(steps) as server:
        begin = time.monotonic()
        with pytest.raises(UsageError, match="did not answer within"):
            Probe(ProbeSettings(server.url)).get("/health")
        assert time.monotonic() - begin < 10


GEVENT = "from gevent import monkey; monkey.patch_all()\n"
SESSION = "from llama_load.outside.plain_http import request; from llama_load.servers.tls import TlsOptions"


def test_a_tls_handshake_that_drips_is_given_up() -> None:
    """Under gevent, as in a run, each byte began the timeout again."""
    steps = [
        b"\x16\x03\x03\x40\x00",
        *(step for _ in range(40) for step in (0.25, b"\x02")),
    ]
    with ScriptedServer(steps, read_request=False) as server:
        url = server.url.replace("http:", "https:")
        spent = spent_in_child(
            GEVENT + SESSION,
            f"request('GET', '{url}', within_s=1.0, tls=TlsOptions(insecure=True).context)",
        )
    assert "no complete answer within 1 s" in spent.error
    assert spent.wall_s < 5


def compressed_journal(folder: Path) -> None:
    import pyarrow as pa

    from llama_load.run_folder.observed.record import schema, to_batch
    from tests.make_records import record

    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with (
        pa.OSFile(str(folder / "journal"), "wb") as file,
        pa.ipc.new_stream(file, schema(), options=options) as writer,
    ):
        writer.write_batch(to_batch([record(0, error="x" * 250_000_000)]))


def image_bomb(folder: Path) -> None:
    """Its head says how large it would be; who decodes it fills the memory with zeros."""
    head = struct.pack(">IIBBBBB", 30_000, 30_000, 1, 0, 0, 0, 0)
    pixels = zlib.compress(bytes((30_000 // 8 + 1) * 1000))
    with (folder / "bomb.png").open("wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        for kind, data in ((b"IHDR", head), (b"IDAT", pixels * 30), (b"IEND", b"")):
            file.write(struct.pack(">I", len(data)) + kind + data)
            file.write(struct.pack(">I", zlib.crc32(kind + data)))


@pytest.mark.parametrize(
    ("make", "imports", "work", "error"),
    [
        (compressed_journal, "from llama_load.run_folder.journal import read_journal; import pyarrow.parquet; from llama_load.run_folder.observed.record import schema; schema()", "assert not read_journal(Path('journal')).table.num_rows", ""),
        (image_bomb, "from llama_load.loadgen.workloads.images import image_of; import PIL.Image", "image_of(Path('bomb.png').read_bytes(), 'bomb.png')", "pixels"),
        (None, "from llama_load.loadgen.workloads.text_files import text_files", "list(text_files(Path('/dev/zero'), 0))", "not a regular file"),
        (None, "from llama_load.loadgen.workloads.data_files import DataFile", "DataFile(Path('/dev/zero'), 'x')", "not a regular file"),
    ],
    ids=["compressed journal", "image bomb", "text of /dev/zero", "data set of /dev/zero"],
)  # fmt: skip
def test_bombs_cost_little(
    tmp_path: Path, make: object, imports: str, work: str, error: str
) -> None:
    if make:
        make(tmp_path)
    spent = spent_in_child(
        f"import os; from pathlib import Path; os.chdir({str(tmp_path)!r})\n{imports}",
        work,
    )
    assert error in spent.error if error else not spent.error
    assert spent.rss_mib < 200
    assert spent.cpu_s < 10


def test_a_flood_from_a_control_endpoint_costs_little() -> None:
    steps = [b"HTTP/1.1 200 OK\r\n\r\n", *([b"x" * 2**20] * 1000)]
    with ScriptedServer(steps) as server:
        spent = spent_in_child(
            "from llama_load.servers import probe",
            f"probe.Probe(probe.ProbeSettings('{server.url}')).get('/health')",
        )
    assert "cannot reach" in spent.error
    assert spent.rss_mib < 200
    assert spent.cpu_s < 10


def test_an_answer_is_bounded_by_what_was_asked_for(
    run_locust: object, tmp_path: Path
) -> None:
    """--max-tokens 16 could cost 1.4 GB: comments without end, which no bound counted."""
    from tests.json_server import json_server

    flood = b": " + b"x" * 60_000 + b"\n\n"
    answers = {"/health": {}, "/v1/models": {"data": [{"id": "m"}]}, "/v1/chat/completions": (200, flood * 8, {"Content-Type": "text/event-stream"})}  # fmt: skip
    with json_server(answers) as server:
        done: Finished = run_locust(
            server.url, "--num-prompts", "2", "--warmup", "0", "--max-tokens", "16"
        )
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
    for read in (
        lambda: list(text_files(Path("/dev/zero"), 0)),
        lambda: DataFile(Path("/dev/zero"), "x"),
    ):
        with pytest.raises(UsageError, match="not a regular file"):
            read()


@pytest.mark.parametrize("path", ["/etc/hostname", "../secret.png", "http://127.0.0.1:1/x.png", "file:///etc/hostname", "zip://x::/etc/hostname"])  # fmt: skip
def test_a_cell_opens_no_file_outside_of_its_data_set(
    tmp_path: Path, path: str
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "secret.png").write_bytes(b"secret")
    folder = tmp_path / "data"
    folder.mkdir()
    pq.write_table(
        pa.table({"image": [{"bytes": None, "path": path}]}), folder / "x.parquet"
    )
    with pytest.raises(UsageError, match="which is not a file"):
        DataSet(str(folder / "x.parquet")).images(1, 0)


def test_a_cell_opens_only_files_of_its_data_set(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "own.png").write_bytes(b"picture")
    pq.write_table(
        pa.table({"image": [{"bytes": None, "path": str(tmp_path / "own.png")}]}),
        tmp_path / "x.parquet",
    )
    assert DataSet(str(tmp_path / "x.parquet")).images(1, 0) == [b"picture"]


def test_an_answer_is_bounded_by_the_tokens_asked_for() -> None:
    """64 KiB and 4 KiB a token: 128 KiB for 16 tokens, 256 KiB for three choices; no length, no
    such bound."""
    assert [CHAT.most_bytes(tokens, None) for tokens in (16, 3 * 16, None)] == [
        128 * 1024,
        256 * 1024,
        None,
    ]


def test_embeddings_are_bounded_by_their_inputs() -> None:
    """1 MiB and 256 KiB a text: 5 MiB for 16."""
    assert EMBEDDINGS.most_bytes(None, 16) == 5 * 2**20


def test_a_json_file_of_others_is_an_object_in_a_regular_file(tmp_path: Path) -> None:
    file, link = tmp_path / "a.json", tmp_path / "link.json"
    link.symlink_to(file)
    file.write_text('{"a": 1}')
    assert read_foreign_json(file) == read_foreign_json(link) == {"a": 1}
    with pytest.raises(OSError):
        read_foreign_json(link, follows_links=False)
    for text in ("[1]", "{", "[" * 100_000):
        file.write_text(text)
        with pytest.raises(ValueError):
            read_foreign_json(file)
