"""Images to send: drawn by number and seed, or read from files; encoded as base64 data URLs before
the run starts.

A maker is a function that makes one image; `made` runs makers in threads, since Pillow and NumPy
release Python's lock.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from llama_load.ground.errors import UsageError
from llama_load.ground.image_package import need_pillow
from llama_load.loadgen.workloads.text_files import folder_files, read_whole
from llama_load.servers.prompt import Image

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image as Picture
    from PIL.ImageDraw import ImageDraw

Maker = Callable[[], Image]

FORMATS = ("jpeg", "png")
# Smaller: shapes and strokes vanish. Larger: drawing one takes a gigabyte of memory.
MIN_SIDE = 16
MAX_SIDE = 8192
# Memory for one run's data URLs. A 512x512 JPEG takes 60 kB: room for about 9000.
POOL_BYTES = 512 * 2**20
AT_A_TIME = 32
SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif"})
# Pillow's names of the formats that every server reads; MPO is a phone's JPEG with a second image
# after it.
SENT_AS_THEY_ARE = {"JPEG": "jpeg", "MPO": "jpeg", "PNG": "png"}

# Pillow reads more formats, some with other programs (Ghostscript for EPS), and ignores a file
# name's suffix.
READ = ("BMP", "GIF", "JPEG", "PNG", "WEBP")
# Decoding an image of this many pixels takes 160 to 270 MB; cameras make 12 to 60 million.
MOST_PIXELS = 64 * 2**20
MOST_FILE_BYTES = 16 * 2**20
# Pieces of a file, each of which the decoder looks at: cameras and programs write fewer than a
# hundred. A scan of a progressive JPEG goes over the whole picture: they write ten.
MOST_SEGMENTS = 10_000
MOST_SCANS = 100
_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8"
_GIF = b"GIF8"
_SCAN = b"\xff\xda"
# In a JPEG: not the escape of a byte of data, and no mark of a restart.
_MARKER = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")

JPEG_QUALITY = 85  # usual for cameras and web sites
GRAIN_BITS = 4
BRIGHTEST = (
    256 - 2**GRAIN_BITS
)  # colours stay below, so that adding grain never overflows
FIELD_CELLS = (
    5,
    24,
)  # low-resolution noise: cells of the large and the small patches of colour
SHAPES = 16
LINES_OF_TEXT = 8
# What needs Pillow, as the subject of a sentence.
PROMPT_WITH_IMAGES = "a prompt with images"


def made(
    makers: Sequence[Maker],
    *,
    on_image_ready: Callable[[int], object] | None = None,
    most_bytes: int | None = None,
    threads: Callable[[int], Executor] = ThreadPoolExecutor,
) -> list[Image]:
    """The images that the makers make, in order; those after the first `most_bytes` of data URLs
    are left out.

    `on_image_ready` is called with the number of finished images. `threads(workers)` gives the
    pool: threads patched by gevent share one core, gevent's own thread pool does not.
    """
    images: list[Image] = []
    total = 0
    with threads(os.cpu_count() or 1) as pool:
        for start in range(0, len(makers), AT_A_TIME):
            for image in pool.map(_call, makers[start : start + AT_A_TIME]):
                if isinstance(image, UsageError):
                    raise image
                total += len(image.data_url)
                if images and most_bytes is not None and total > most_bytes:
                    return images
                images.append(image)
            if on_image_ready is not None:
                on_image_ready(len(images))
    return images


def drawings(
    count: int,
    size: tuple[int, int],
    image_format: str,
    seed: int | str,
    first: int = 0,
) -> list[Maker]:
    """Makers of drawings `first`, `first` + 1, … of `size` (width, height): all different, the same
    for the same seed.

    A 512x512 JPEG takes about 12 ms of a core and 44 kB. UsageError: a size or format that cannot
    be drawn, or no Pillow.
    """
    need_pillow(PROMPT_WITH_IMAGES)
    if not all(MIN_SIDE <= side <= MAX_SIDE for side in size):
        raise UsageError(
            f"images must be {MIN_SIDE} to {MAX_SIDE} pixels wide and high, got {size[0]}x{size[1]}"
        )
    if image_format not in FORMATS:
        raise UsageError(
            f"the image format must be {' or '.join(FORMATS)}, got {image_format!r}"
        )
    return [
        partial(_drawn, number, size, image_format, seed)
        for number in range(first, first + count)
    ]


def files(path: Path) -> list[Maker]:
    """Makers of the images at a path: a file, or a folder with its subfolders, sorted; hidden files
    are left out.

    UsageError: no such path, or no image in the folder; a maker raises it when its file cannot be
    read.
    """
    if path.is_file():
        return [partial(_read_image, path)]
    if not path.is_dir():
        raise UsageError(
            f"there are no images at {path}; --images takes a file, a folder or hf:REPO"
        )
    below = folder_files(path, lambda file: file.suffix.lower() in SUFFIXES)
    if not below:
        raise UsageError(
            f"the folder {path} contains no images; recognized suffixes are "
            f"{', '.join(sorted(SUFFIXES))}"
        )
    return [partial(_read_image, file) for file in below]


def image_of(data: bytes, name: str) -> Image:
    """The image in a file's bytes: JPEG and PNG unchanged, other formats as PNG (the first frame of
    an animation).

    UsageError names an image that is broken or in an unknown format, or the missing package.
    """
    need_pillow(PROMPT_WITH_IMAGES)
    _refuse_much_work(data, name)
    from PIL import Image as Pillow
    from PIL import UnidentifiedImageError

    try:
        with Pillow.open(io.BytesIO(data), formats=READ) as picture:
            width, height = picture.size
            if width * height > MOST_PIXELS:
                raise UsageError(
                    f"the image {name} has {width}x{height} pixels, more than "
                    f"{MOST_PIXELS // 10**6} million"
                )
            kind = SENT_AS_THEY_ARE.get(picture.format or "")
            if kind == "jpeg":
                # decoding at 1/8 size finds broken files in 40 % of the time
                picture.draft("RGB", (1, 1))
            picture.load()
            if kind is None:
                kind = "png"
                data = _encoded(
                    picture.convert("RGBA" if picture.has_transparency_data else "RGB"),
                    "png",
                )
    except (
        OSError,
        ValueError,
        SyntaxError,
        EOFError,
        Pillow.DecompressionBombError,
    ) as error:
        reason = (
            f"its format is not one of {', '.join(READ)}"
            if isinstance(error, UnidentifiedImageError)
            else error
        )
        raise UsageError(f"the image {name} cannot be read: {reason}") from None
    return _image(data, kind, width, height)


def _refuse_much_work(data: bytes, name: str) -> None:
    """UsageError: decoding it would take more than an image of its size needs."""
    if len(data) > MOST_FILE_BYTES:
        raise UsageError(
            f"the image {name} has more than {MOST_FILE_BYTES >> 20} MiB; make it smaller"
        )
    segments = sum(1 for _ in islice(_segments(data), MOST_SEGMENTS + 1))
    if segments > MOST_SEGMENTS:
        raise UsageError(
            f"the image {name} has more than {MOST_SEGMENTS:,} segments; save it again as PNG"
        )
    if data.startswith(_JPEG) and data.count(_SCAN) > MOST_SCANS:
        raise UsageError(
            f"the image {name} has more than {MOST_SCANS} scans; save it again as PNG"
        )


def _segments(data: bytes) -> Iterator[object]:
    """One for each chunk of a PNG, marker of a JPEG, and block before the picture of a GIF."""
    if data.startswith(_PNG):
        at = len(_PNG)
        while at < len(data):
            yield at
            at += 12 + int.from_bytes(data[at : at + 4], "big")
    elif data.startswith(_JPEG):
        yield from _MARKER.finditer(data)
    elif data.startswith(_GIF):
        yield from _gif_blocks(data)


def _gif_blocks(data: bytes) -> Iterator[int]:
    flags = data[10:11]
    at = 13
    if flags and flags[0] & 0x80:  # a table of colours
        at += 3 << (1 + (flags[0] & 7))
    while data[at : at + 1] == b"\x21":  # an extension, with blocks up to an empty one
        at += 2
        while at < len(data):
            yield at
            size = data[at]
            at += 1 + size
            if not size:
                break


def _call(maker: Maker) -> Image | UsageError:
    """The image, or its error: gevent's pool prints a traceback of exceptions raised in it."""
    try:
        return maker()
    except UsageError as error:
        return error


def _read_image(file: Path) -> Image:
    return image_of(read_whole(file, "image", MOST_FILE_BYTES), str(file))


def _image(data: bytes, kind: str, width: int, height: int) -> Image:
    url = f"data:image/{kind};base64,".encode() + base64.b64encode(data)
    return Image(url, hashlib.sha256(data).hexdigest(), width, height)


def _encoded(picture: Picture, kind: str) -> bytes:
    file = io.BytesIO()
    if kind == "jpeg":
        picture.save(file, "JPEG", quality=JPEG_QUALITY)
    else:
        # the default level takes 1.5 times as long for 10 % less
        picture.save(file, "PNG", compress_level=1)
    return file.getvalue()


def _drawn(
    number: int, size: tuple[int, int], image_format: str, seed: int | str
) -> Image:
    """Drawing `number` of a seed: a field of colours, shapes, lines that resemble writing,
    grain."""
    import numpy as np
    from PIL import Image as Pillow
    from PIL import ImageDraw as Drawing

    # Seeds may be negative; NumPy's may not.
    draw = np.random.default_rng(
        list(hashlib.sha256(f"{seed}/{number}".encode()).digest())
    )
    picture = _colour_field(draw, size)
    pen = Drawing.Draw(picture, "RGBA")
    for _ in range(SHAPES):
        _shape(draw, pen, size)
    for _ in range(LINES_OF_TEXT):
        _writing(draw, pen, size)
    pixels = np.asarray(picture)
    grain = np.frombuffer(draw.bytes(pixels.size), np.uint8).reshape(pixels.shape) >> (
        8 - GRAIN_BITS
    )
    return _image(
        _encoded(Pillow.fromarray(pixels + grain), image_format), image_format, *size
    )


def _colour_field(draw: np.random.Generator, size: tuple[int, int]) -> Picture:
    import numpy as np
    from PIL import Image as Pillow

    coarse, fine = (
        Pillow.fromarray(draw.integers(0, BRIGHTEST, (cells, cells, 3), dtype=np.uint8))
        for cells in FIELD_CELLS
    )
    smooth = Pillow.Resampling.BILINEAR  # bicubic exceeds the brightest colour
    return Pillow.blend(coarse.resize(fine.size, smooth), fine, 0.3).resize(
        size, smooth
    )


def _colour(draw: np.random.Generator) -> tuple[int, ...]:
    return tuple(draw.integers(0, BRIGHTEST, 3).tolist())


def _shape(draw: np.random.Generator, pen: ImageDraw, size: tuple[int, int]) -> None:
    x, y = (draw.uniform(-0.1, 1.0, 2) * size).tolist()
    width, height = (draw.uniform(0.05, 0.35, 2) * min(size)).tolist()
    colour = (*_colour(draw), int(draw.integers(90, 220)))
    kind = int(draw.integers(3))
    if kind == 0:
        pen.ellipse((x, y, x + width, y + height), fill=colour)
    elif kind == 1:
        pen.rectangle((x, y, x + width, y + height), fill=colour)
    else:
        right = (x + width, y + height / 3)
        below = (x + width / 3, y + height)
        pen.polygon([(x, y), right, below], fill=colour)


def _writing(draw: np.random.Generator, pen: ImageDraw, size: tuple[int, int]) -> None:
    """A line of letters, each two strokes through three points of its square."""
    import numpy as np

    height = draw.uniform(0.01, 0.03) * min(size)
    letters = int(draw.integers(8, 30))
    points = (
        draw.uniform(0.0, height, (letters, 3, 2)) + draw.uniform(0.0, 0.9, 2) * size
    )
    points[:, :, 0] += np.arange(letters)[:, None] * height
    colour = _colour(draw)
    for letter in points.reshape(letters, 6).tolist():
        pen.line(letter, fill=colour, width=max(1, min(size) // 300))
