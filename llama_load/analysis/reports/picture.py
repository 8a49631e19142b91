"""A picture of the first screen, to send to somebody: SVG, or PNG drawn with Pillow.

It has no paths and no commands of this machine.
"""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from functools import cache
from typing import Any

from rich.cells import cell_len

from llama_load.analysis.reports.first_screen import (
    BAD,
    DIM,
    DOUBTFUL,
    FULL_REPORT,
    GOOD,
    STRONG,
    Line,
    first_screen,
)
from llama_load.analysis.reports.private_paths import without_paths
from llama_load.analysis.results.results import Results
from llama_load.ground.image_package import need_pillow
from llama_load.outside.foreign_text import fence, printable, redacted

COLUMNS = 80
# Pixels: the font, the width of a character, the distance of two lines, the border.
FONT_PX = 15
CELL = 9
LEADING = 22
MARGIN = 18
BACKGROUND = "#ffffff"
TEXT = "#1c2127"
COLOURS = {GOOD: "#1a7f52", BAD: "#b3262d", DOUBTFUL: "#8f5a00", DIM: "#59636e"}
BOLD = frozenset((GOOD, BAD, DOUBTFUL, STRONG))
FAMILY = "ui-monospace, 'DejaVu Sans Mono', 'Noto Sans Mono CJK SC', Menlo, Consolas, monospace"
# Fonts by the names under which systems have them; the last resort is the one in Pillow, which has
# Latin letters only.
FONTS = (
    "DejaVuSansMono.ttf",
    "NotoSansMonoCJK-Regular.ttc",
    "Menlo.ttc",
    "consola.ttf",
    "LiberationMono-Regular.ttf",
)


def shown_lines(lines: Sequence[Line]) -> list[Line]:
    """The first screen up to the names of files."""
    shown = []
    for line in lines:
        if line.text.startswith(FULL_REPORT):
            break

        text = without_paths(printable(line.text, None))
        shown.append(Line(redacted(text), line.style))

    return shown


def short_markdown(screen: Sequence[Line]) -> str:
    """These lines as a block of Markdown, to paste into an issue or a merge request."""
    text = "\n".join(line.text for line in shown_lines(screen))
    mark = fence(text)
    return f"{mark}\n{text}\n{mark}"


def as_svg(results: Results) -> str:
    """The picture as SVG.

    Wide characters take two cells, so that columns stay aligned in any font.
    """
    lines = shown_lines(first_screen(results))
    width, height = _size_in_pixels(lines)
    title = html.escape(lines[0].text) if lines else ""
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" ',
        f'width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" ',
        f'font-family="{FAMILY}" font-size="{FONT_PX}">',
        f"<title>{title}</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
    ]
    for number, line in enumerate(lines):
        if line.text:
            parts.append(_svg_text(line, number))

    parts.append("</svg>\n")

    return "".join(parts)


def _svg_text(line: Line, number: int) -> str:
    """A line of text; `number`: its place, from 0."""
    y = MARGIN + LEADING * number + FONT_PX
    weight = 700 if line.style in BOLD else 400
    length = CELL * cell_len(line.text)
    colour = COLOURS.get(line.style, TEXT)

    return (
        f'<text x="{MARGIN}" y="{y}" xml:space="preserve" font-weight="{weight}" '
        f'textLength="{length}" fill="{colour}">{html.escape(line.text)}</text>'
    )


def as_png(results: Results, scale: int = 2) -> bytes:
    """The picture as PNG, `scale` times as large, each character in its cell. UsageError: there is
    no Pillow."""
    need_pillow("a picture as PNG")
    from PIL import Image, ImageDraw

    lines = shown_lines(first_screen(results))
    width, height = _size_in_pixels(lines)
    picture = Image.new("RGB", (width * scale, height * scale), BACKGROUND)
    pen = ImageDraw.Draw(picture)
    font = _font(FONT_PX * scale)
    for number, line in enumerate(lines):
        colour = COLOURS.get(line.style, TEXT)
        stroke = 1 if line.style in BOLD else 0
        x = MARGIN * scale
        y = (MARGIN + LEADING * number) * scale
        for character in line.text:
            pen.text((x, y), character, fill=colour, font=font, stroke_width=stroke)
            x += CELL * cell_len(character) * scale

    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)

    return file.getvalue()


def _size_in_pixels(lines: Sequence[Line]) -> tuple[int, int]:
    """Width and height in pixels."""
    columns = COLUMNS
    for line in lines:
        columns = max(columns, cell_len(line.text))
    return 2 * MARGIN + CELL * columns, 2 * MARGIN + LEADING * len(lines)


@cache
def _font(size: int) -> Any:
    from PIL import ImageFont

    for name in FONTS:
        try:
            return ImageFont.truetype(name, size)
        except OSError:
            continue

    return ImageFont.load_default(size)
