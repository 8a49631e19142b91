"""Images: drawings that no cache and no compressor knows, files sent as they are, and broken
ones."""

from __future__ import annotations

import base64
import hashlib
import io
import subprocess
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.images import (
    GRAIN_BITS,
    MOST_FILE_BYTES,
    MOST_SCANS,
    MOST_SEGMENTS,
    _colour_field,
    drawings,
    image_of,
    made,
)
from llama_load.servers.prompt import Image
from tests.loadgen.workloads.data import drawn, images_at


def file_of(image: Image) -> bytes:
    return base64.b64decode(image.data_url.partition(b",")[2], validate=True)


def picture_of(image: Image) -> Pillow.Image:
    return Pillow.open(io.BytesIO(file_of(image)))


def encoded(
    kind: str, size: tuple[int, int] = (40, 30), mode: str = "RGB", **options: object
) -> bytes:
    file = io.BytesIO()
    Pillow.effect_noise(size, 60).convert(mode).save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize(("kind", "name"), [("jpeg", "JPEG"), ("png", "PNG")])
def test_drawings_are_what_they_say_they_are(kind: str, name: str) -> None:
    """Size, format, MIME type and digest."""
    (image,) = drawn(1, (320, 200), kind, seed=1)
    assert image.data_url.decode().startswith(f"data:image/{kind};base64,")
    assert (picture_of(image).format, picture_of(image).size) == (name, (320, 200))
    assert (image.width, image.height) == (320, 200)
    assert image.sha256 == hashlib.sha256(file_of(image)).hexdigest()


def test_drawings_are_all_different_and_full_of_content() -> None:
    """No two alike, in any corner; every colour channel varies; a JPEG is as large as a
    photograph's (1 to 3 bits a pixel)."""
    images = drawn(12, (512, 512), "jpeg", seed=0)
    assert len({image.sha256 for image in images}) == 12
    pixels = [np.asarray(picture_of(image)) for image in images]
    for corner in (np.s_[:64, :64], np.s_[-64:, -64:]):
        assert len({one[corner].tobytes() for one in pixels}) == 12
    assert all((one.reshape(-1, 3).std(axis=0) > 15).all() for one in pixels)
    assert all(1.0 < len(file_of(image)) * 8 / 512**2 < 3.0 for image in images)


def test_drawings_depend_on_seed_and_number_alone() -> None:
    """Not on how many there are, where they begin, or which thread draws them."""
    ten = drawn(10, (64, 48), "png", seed=-3)
    assert drawn(10, (64, 48), "png", seed=-3) == ten
    assert (
        made(
            drawings(4, (64, 48), "png", -3, first=6),
            threads=lambda _: ThreadPoolExecutor(1),
        )
        == ten[6:]
    )
    assert not {image.sha256 for image in drawn(10, (64, 48), "png", seed=4)} & {
        image.sha256 for image in ten
    }


@given(
    st.tuples(st.integers(16, 200), st.integers(16, 200)),
    st.sampled_from(["jpeg", "png"]),
    st.integers(),
)
@settings(max_examples=settings().max_examples // 2)
def test_any_size_can_be_drawn(size: tuple[int, int], kind: str, seed: int) -> None:
    first, second = drawn(2, size, kind, seed)
    assert picture_of(first).size == size
    assert first.sha256 != second.sha256


@given(st.integers(0, 2**32))
def test_grain_has_room_above_every_colour(seed: int) -> None:
    """Otherwise a bright pixel would wrap around to a dark one, and a drawing would be full of
    black dots."""
    field = np.asarray(_colour_field(np.random.default_rng(seed), (64, 64)))
    assert field.max() + 2**GRAIN_BITS <= 256


@pytest.mark.parametrize(
    ("size", "kind", "sentence"),
    [
        ((8, 512), "jpeg", "got 8x512"),
        ((512, 9000), "png", "16 to 8192"),
        ((64, 64), "tiff", "jpeg or png"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_a_sentence(
    size: tuple[int, int], kind: str, sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        drawn(1, size, kind, 0)


def test_progress_is_reported() -> None:
    ready: list[int] = []
    drawn(70, (16, 16), "png", 0, ready.append)
    assert ready == [32, 64, 70]


def test_the_pool_ends_where_its_bytes_do() -> None:
    """The first image is kept whatever it weighs."""
    images = drawn(40, (32, 32), "png", 0)
    sizes = [len(image.data_url) for image in images]
    makers = drawings(40, (32, 32), "png", 0)
    assert made(makers, most_bytes=sum(sizes[:35])) == images[:35]
    assert made(makers, most_bytes=sum(sizes[:35]) - 1) == images[:34]
    assert made(makers, most_bytes=1) == images[:1]


@pytest.mark.parametrize(
    ("kind", "mode", "options", "mime"),
    [
        ("JPEG", "RGB", {}, "jpeg"),
        ("JPEG", "CMYK", {}, "jpeg"),
        ("JPEG", "L", {"progressive": True}, "jpeg"),
        ("PNG", "RGBA", {}, "png"),
        ("PNG", "P", {}, "png"),
    ],
)
def test_jpeg_and_png_files_are_sent_byte_by_byte(
    kind: str, mode: str, options: dict, mime: str
) -> None:
    data = encoded(kind, mode=mode, **options)
    image = image_of(data, "x")
    assert file_of(image) == data
    assert (image.width, image.height) == (40, 30)
    assert image.data_url.decode().startswith(f"data:image/{mime};")


@pytest.mark.parametrize(
    ("kind", "options"), [("WEBP", {"lossless": True}), ("BMP", {}), ("GIF", {})]
)
def test_other_formats_become_png(kind: str, options: dict) -> None:
    """With the same pixels."""
    data = encoded(kind, **options)
    picture = picture_of(image_of(data, "x"))
    assert picture.format == "PNG"
    assert picture.tobytes() == Pillow.open(io.BytesIO(data)).convert("RGB").tobytes()


def test_transparency_survives_and_an_animation_gives_its_first_picture() -> None:
    clear = Pillow.new("RGBA", (20, 10), (255, 0, 0, 0))
    file = io.BytesIO()
    clear.save(file, "WEBP", lossless=True)
    assert picture_of(image_of(file.getvalue(), "x")).getpixel((0, 0))[3] == 0
    red, blue = Pillow.new("RGB", (20, 10), "red"), Pillow.new("RGB", (20, 10), "blue")
    file = io.BytesIO()
    red.save(file, "GIF", save_all=True, append_images=[blue])
    assert picture_of(image_of(file.getvalue(), "x")).convert("RGB").getpixel(
        (0, 0)
    ) == (255, 0, 0)


def test_a_folder_gives_its_images_in_order(tmp_path: Path) -> None:
    """Folders in it too; suffixes in any case; hidden files and others are left out."""
    kept = ["a.jpg", "b.PNG", "图片/一 😀.webp", "图片/二.Jpeg"]
    (tmp_path / "图片").mkdir()
    for number, name in enumerate(kept):
        kind = {"jpg": "JPEG", "peg": "JPEG", "png": "PNG", "ebp": "WEBP"}[
            name.lower()[-3:]
        ]
        (tmp_path / name).write_bytes(encoded(kind, (30 + number, 20)))
    (tmp_path / "._a.jpg").write_bytes(b"resource fork")
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / "folder.png").mkdir()
    assert [image.width for image in images_at(tmp_path)] == [30, 31, 32, 33]
    assert [image.width for image in images_at(tmp_path / "图片" / "二.Jpeg")] == [33]


def test_a_file_is_known_by_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(encoded("PNG"))
    (image,) = images_at(tmp_path / "picture")
    assert image.data_url.decode().startswith("data:image/png;")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "GIF", "WEBP"])
def test_images_cut_short_are_refused_by_name(tmp_path: Path, kind: str) -> None:
    data = encoded(kind, (200, 200))
    for length in (0, 10, len(data) // 2):
        (tmp_path / "broken.jpg").write_bytes(data[:length])
        with pytest.raises(UsageError, match=r"broken\.jpg cannot be read: "):
            images_at(tmp_path)


@given(
    st.binary(max_size=200),
    st.integers(0, 400),
    st.sampled_from(["JPEG", "PNG", "GIF", "WEBP", "BMP"]),
)
def test_damaged_images_are_read_or_refused_in_a_sentence(
    garbage: bytes, at: int, kind: str
) -> None:
    data = encoded(kind)
    try:
        image_of(data[:at] + garbage + data[at + len(garbage) :], "x")
    except UsageError as error:
        assert str(error).startswith("the image x cannot be read: ")


def png_of(chunks: int) -> bytes:
    """With so many comments before its picture."""
    whole = encoded("png")
    content = b"tEXta\0b"
    crc = zlib.crc32(content).to_bytes(4, "big")
    comment = (len(content) - 4).to_bytes(4, "big") + content + crc
    return whole[:33] + comment * chunks + whole[33:]


def jpeg_of(comments: int, scans: int = 0) -> bytes:
    whole = encoded("jpeg")
    scan = b"\xff\xda\0\x08\x01\x01\0\0\x3f\0"
    return whole[:2] + b"\xff\xfe\0\x03a" * comments + scan * scans + whole[2:]


def gif_of(blocks: int) -> bytes:
    whole = encoded("gif", mode="L")
    at = 13 + 3 * 256
    return whole[:at] + b"\x21\xfe" + b"\x01a" * blocks + b"\0" + whole[at:]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (encoded("png") + bytes(MOST_FILE_BYTES), "more than 16 MiB"),
        (png_of(MOST_SEGMENTS), "more than 10,000 segments"),
        (jpeg_of(MOST_SEGMENTS), "more than 10,000 segments"),
        (gif_of(MOST_SEGMENTS), "more than 10,000 segments"),
        (jpeg_of(0, MOST_SCANS), "more than 100 scans"),
    ],
    ids=["size", "png", "jpeg", "gif", "scans"],
)
def test_an_image_of_too_much_work_is_refused_undecoded(data: bytes, why: str) -> None:
    begun_s = time.thread_time()
    with pytest.raises(UsageError, match=why):
        image_of(data, "x")
    assert time.thread_time() - begun_s < 0.5


def test_an_image_of_many_segments_is_read() -> None:
    for data in (png_of(9_000), jpeg_of(9_000), gif_of(9_000)):
        assert image_of(data, "x").width == 40


def test_missing_paths_and_empty_folders_are_refused_in_a_sentence(
    tmp_path: Path,
) -> None:
    with pytest.raises(
        UsageError, match=r"there are no images at .*nothing; --images takes"
    ):
        images_at(tmp_path / "nothing")
    with pytest.raises(UsageError, match="contains no images"):
        images_at(tmp_path)
    (tmp_path / "notes.txt").write_text("no image")
    with pytest.raises(
        UsageError, match=r"notes\.txt cannot be read: its format is not one of"
    ):
        images_at(tmp_path / "notes.txt")


def test_without_pillow_a_sentence_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(
        UsageError, match="images needs the package pillow: pip install"
    ):
        drawings(1, (64, 64), "jpeg", 0)
    with pytest.raises(
        UsageError, match="images needs the package pillow: pip install"
    ):
        image_of(b"\xff\xd8", "a.jpg")


def test_one_broken_file_is_named_among_many(tmp_path: Path) -> None:
    makers = [partial(image_of, encoded("PNG"), str(number)) for number in range(40)]
    makers[35] = partial(image_of, b"broken", "number 35")
    with pytest.raises(UsageError, match="number 35 cannot be read"):
        made(makers)


def test_importing_the_modules_stays_cheap() -> None:
    code = "import sys, llama_load.loadgen.workloads.vision; sys.exit(any(name in sys.modules for name in ('PIL', 'numpy', 'datasets')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
