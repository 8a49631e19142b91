"""Pictures to send: drawn by number and seed, or read from files; each a base64 data URL before the run starts.

A maker is a function that makes one image; `made` runs makers in threads, since Pillow and NumPy compute without Python's lock.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from llama_load.errors import UsageError
from llama_load.workloads.prompt import Image

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image as Picture
    from PIL.ImageDraw import ImageDraw

Maker = Callable[[], Image]

FORMATS = ("jpeg", "png")
# Below, shapes and strokes vanish; above, a picture in the making takes a gigabyte.
MIN_SIDE, MAX_SIDE = 16, 8192
# Data URLs of one run kept in memory. A 512x512 JPEG takes 60 kB: room for some 9000.
POOL_BYTES = 512 * 2**20
AT_A_TIME = 32
SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif"})
# How Pillow names the files that every server reads; MPO is a JPEG with a second picture behind it, as phones make them.
SENT_AS_THEY_ARE = {"JPEG": "jpeg", "MPO": "jpeg", "PNG": "png"}

# Pillow reads more, some by running other programs (Ghostscript for EPS), whatever a file is called.
READ = ("BMP", "GIF", "JPEG", "PNG", "WEBP")
# Decoded, an image of this many pixels takes 160 to 270 MB; cameras make 12 to 60 million.
MOST_PIXELS = 64 * 2**20
MOST_FILE_BYTES = 256 * 2**20

JPEG_QUALITY = 85  # what cameras and web sites use
GRAIN_BITS = 4
BRIGHTEST = 256 - 2**GRAIN_BITS  # colours stay below, so that grain added to them never wraps around
FIELD_CELLS = (5, 24)  # low-resolution noise: large patches of colour, and the smaller ones on them
SHAPES = 16
LINES_OF_TEXT = 8


def made(
    makers: Sequence[Maker],
    *,
    on_image_ready: Callable[[int], object] | None = None,
    most_bytes: int | None = None,
    threads: Callable[[int], Executor] = ThreadPoolExecutor,
) -> list[Image]:
    """What the makers make, in order; those after the first `most_bytes` of data URLs are left out.

    `on_image_ready` is called with the number of images that are ready. `threads(workers)` gives the pool. Where gevent has
    patched threads they share one core; gevent's own pool has real ones.
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


def drawings(count: int, size: tuple[int, int], image_format: str, seed: int, first: int = 0) -> list[Maker]:
    """Makers of the drawings number `first`, `first` + 1, … of `size` (width, height), no two alike, the same for the same seed.

    A 512x512 JPEG takes about 12 ms of a core and 44 kB. Raises UsageError for a size or format that cannot be drawn.
    """
    if not all(MIN_SIDE <= side <= MAX_SIDE for side in size):
        raise UsageError(f"an image of {size[0]}x{size[1]} cannot be drawn; its sides must be {MIN_SIDE} to {MAX_SIDE} pixels")
    if image_format not in FORMATS:
        raise UsageError(f"images cannot be drawn as {image_format!r}; the image format is {' or '.join(FORMATS)}")
    return [partial(_drawn, number, size, image_format, seed) for number in range(first, first + count)]


def files(path: Path) -> list[Maker]:
    """Makers of the images at a path: a file, or a folder with the folders in it, sorted; hidden files are left out.

    Raises UsageError when there is no such path or no image in the folder; a maker does so when its file cannot be read.
    """
    if path.is_file():
        return [partial(_read, path)]
    if not path.is_dir():
        raise UsageError(f"there are no images at {path}; --images takes a file, a folder or hf:REPO")
    found = sorted(file for file in path.rglob("*") if _is_image_file(file))
    if not found:
        raise UsageError(f"the folder {path} holds no images; they are known by their suffix: {', '.join(sorted(SUFFIXES))}")
    return [partial(_read, file) for file in found]


def image_of(data: bytes, name: str) -> Image:
    """The image in a file's bytes: JPEG and PNG as they are, other formats as PNG (of an animation the first picture).

    Raises UsageError, with its `name`, when it is no image, or a broken one.
    """
    from PIL import Image as Pillow
    from PIL import UnidentifiedImageError

    try:
        with Pillow.open(io.BytesIO(data), formats=READ) as picture:
            width, height = picture.size
            if width * height > MOST_PIXELS:
                raise UsageError(f"the image {name} has {width}x{height} pixels, more than {MOST_PIXELS // 10**6} million")
            kind = SENT_AS_THEY_ARE.get(picture.format or "")
            if kind == "jpeg":
                picture.draft("RGB", (1, 1))  # decoded at an eighth of its size: broken files are found in 40 % of the time
            picture.load()
            if kind is None:
                kind, data = "png", _encoded(picture.convert("RGBA" if picture.has_transparency_data else "RGB"), "png")
    except (OSError, ValueError, SyntaxError, EOFError, Pillow.DecompressionBombError) as error:
        reason = f"it is in no format of {', '.join(READ)}" if isinstance(error, UnidentifiedImageError) else error
        raise UsageError(f"the image {name} cannot be read: {reason}") from None
    return _image(data, kind, width, height)


def _call(maker: Maker) -> Image | UsageError:
    """Its image, or what is wrong with it: gevent's pool prints a traceback of what is raised in it."""
    try:
        return maker()
    except UsageError as error:
        return error


def _is_image_file(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and file.is_file()


def _read(file: Path) -> Image:
    try:
        if file.stat().st_size > MOST_FILE_BYTES:
            raise UsageError(f"the image {file} is larger than {MOST_FILE_BYTES // 2**20} MiB")
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"the image {file} cannot be read: {error.strerror}") from None
    return image_of(data, str(file))


def _image(data: bytes, kind: str, width: int, height: int) -> Image:
    url = f"data:image/{kind};base64,".encode() + base64.b64encode(data)
    return Image(url, hashlib.sha256(data).hexdigest(), width, height)


def _encoded(picture: Picture, kind: str) -> bytes:
    file = io.BytesIO()
    if kind == "jpeg":
        picture.save(file, "JPEG", quality=JPEG_QUALITY)
    else:
        picture.save(file, "PNG", compress_level=1)  # the default level takes 1.5 times as long to save a tenth of the size
    return file.getvalue()


def _drawn(number: int, size: tuple[int, int], image_format: str, seed: int) -> Image:
    """Drawing `number` of a seed: a field of colours, shapes, lines of something like writing, grain."""
    import numpy as np
    from PIL import Image as Pillow
    from PIL import ImageDraw as Drawing

    # Seeds may be negative, which NumPy does not take.
    draw = np.random.default_rng(list(hashlib.sha256(f"{seed}/{number}".encode()).digest()))
    picture = _colour_field(draw, size)
    pen = Drawing.Draw(picture, "RGBA")
    for _ in range(SHAPES):
        _shape(draw, pen, size)
    for _ in range(LINES_OF_TEXT):
        _writing(draw, pen, size)
    pixels = np.asarray(picture)
    grain = np.frombuffer(draw.bytes(pixels.size), np.uint8).reshape(pixels.shape) >> (8 - GRAIN_BITS)
    return _image(_encoded(Pillow.fromarray(pixels + grain), image_format), image_format, *size)


def _colour_field(draw: np.random.Generator, size: tuple[int, int]) -> Picture:
    import numpy as np
    from PIL import Image as Pillow

    coarse, fine = (Pillow.fromarray(draw.integers(0, BRIGHTEST, (cells, cells, 3), dtype=np.uint8)) for cells in FIELD_CELLS)
    smooth = Pillow.Resampling.BILINEAR  # bicubic overshoots the brightest colour
    return Pillow.blend(coarse.resize(fine.size, smooth), fine, 0.3).resize(size, smooth)


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
        pen.polygon([(x, y), (x + width, y + height / 3), (x + width / 3, y + height)], fill=colour)


def _writing(draw: np.random.Generator, pen: ImageDraw, size: tuple[int, int]) -> None:
    """A line of letters, each two strokes through three points of its square."""
    import numpy as np

    height = draw.uniform(0.01, 0.03) * min(size)
    letters = int(draw.integers(8, 30))
    points = draw.uniform(0.0, height, (letters, 3, 2)) + draw.uniform(0.0, 0.9, 2) * size
    points[:, :, 0] += np.arange(letters)[:, None] * height
    colour = _colour(draw)
    for letter in points.reshape(letters, 6).tolist():
        pen.line(letter, fill=colour, width=max(1, min(size) // 300))
