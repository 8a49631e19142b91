"""A picture of the first screen, to send to somebody: SVG, or PNG drawn with Pillow. No paths and no commands of this machine."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from functools import cache
from typing import Any

from rich.cells import cell_len

from llama_load.analysis.results import Results
from llama_load.foreign_text import fence, printable, redacted
from llama_load.reports.first_screen import BAD, DIM, DOUBTFUL, FULL_REPORT, GOOD, STRONG, Line, first_screen
from llama_load.reports.private_paths import without_paths

COLUMNS, CELL, LEADING, MARGIN = 80, 9, 22, 18  # pixels, of a font of 15
FONT_PX = 15
BACKGROUND, TEXT = "#ffffff", "#1c2127"
COLOURS = {GOOD: "#1a7f52", BAD: "#b3262d", DOUBTFUL: "#8f5a00", DIM: "#59636e"}
BOLD = frozenset((GOOD, BAD, DOUBTFUL, STRONG))
FAMILY = "ui-monospace, 'DejaVu Sans Mono', 'Noto Sans Mono CJK SC', Menlo, Consolas, monospace"
# Fonts by the names under which systems have them; the last resort is the one in Pillow, which has Latin letters only.
FONTS = ("DejaVuSansMono.ttf", "NotoSansMonoCJK-Regular.ttc", "Menlo.ttc", "consola.ttf", "LiberationMono-Regular.ttf")


def shown_lines(lines: Sequence[Line]) -> list[Line]:
    """The first screen up to the names of files."""
    end = next((number for number, line in enumerate(lines) if line.text.startswith(FULL_REPORT)), len(lines))
    return [Line(redacted(without_paths(printable(line.text, None))), line.style) for line in lines[:end]]


def short_markdown(screen: Sequence[Line]) -> str:
    """These lines of the first screen as a block of Markdown, to paste into an issue or a merge request."""
    text = "\n".join(line.text for line in shown_lines(screen))
    mark = fence(text)
    return f"{mark}\n{text}\n{mark}"


def as_svg(results: Results) -> str:
    """The picture as SVG; wide characters take two cells, so that columns stay aligned in any font."""
    lines = shown_lines(first_screen(results))
    width, height = _size(lines)
    rows = [_row(line, number) for number, line in enumerate(lines) if line.text]
    title = html.escape(lines[0].text) if lines else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
        f'font-family="{FAMILY}" font-size="{FONT_PX}"><title>{title}</title>'
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>' + "".join(rows) + "</svg>\n"
    )


def _row(line: Line, number: int) -> str:
    weight = 700 if line.style in BOLD else 400
    return (
        f'<text x="{MARGIN}" y="{MARGIN + LEADING * number + FONT_PX}" xml:space="preserve" font-weight="{weight}" '
        f'textLength="{CELL * cell_len(line.text)}" fill="{COLOURS.get(line.style, TEXT)}">{html.escape(line.text)}</text>'
    )


def as_png(results: Results, scale: int = 2) -> bytes:
    """The picture as PNG, `scale` times as large, each character in its cell."""
    from PIL import Image, ImageDraw

    lines = shown_lines(first_screen(results))
    width, height = _size(lines)
    picture = Image.new("RGB", (width * scale, height * scale), BACKGROUND)
    pen = ImageDraw.Draw(picture)
    for number, line in enumerate(lines):
        at = 0
        for character in line.text:
            pen.text(
                ((MARGIN + CELL * at) * scale, (MARGIN + LEADING * number) * scale),
                character,
                fill=COLOURS.get(line.style, TEXT),
                font=_font(FONT_PX * scale),
                stroke_width=1 if line.style in BOLD else 0,
            )
            at += cell_len(character)
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    return file.getvalue()


def _size(lines: Sequence[Line]) -> tuple[int, int]:
    columns = max([COLUMNS, *(cell_len(line.text) for line in lines)])
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
