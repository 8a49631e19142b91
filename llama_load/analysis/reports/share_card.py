"""A picture of a shared run, to post: its throughput, its stages or latencies as bars, verdict,
server and hardware. SVG, or PNG drawn with Pillow.

It is made of the values that `llama-load share` writes, and of no others.
"""

from __future__ import annotations

import html
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from llama_load.analysis.reports.shared_sentences import (
    certain,
    duration,
    hardware_sentence,
    level_with_most_output,
    levels_with_output,
    load_name,
    load_sentence,
    server_sentence,
)
from llama_load.ground.image_package import need_pillow
from llama_load.run_folder.vocabulary.verdict_words import FAILED, INCOMPLETE, VALID
from llama_load.tables.numbers import short

# Pixels: the size that sites show of a link, and the border.
WIDTH = 1200
HEIGHT = 630
MARGIN = 60
BAR_LEFT = 350
LARGE = 76  # the headline, where it fits; its characters are so wide, in parts of this
EM_A_CHAR = 0.62
PIXELS_A_CHAR = 16  # of bold text of 23 pixels, at most
BAR_MOST = 640
BARS_TOP = 225
# Bars share this height; a bar takes this part of its own.
BARS_HEIGHT = 200
MOST_STEP = 66
BAR_SHARE = 0.68
# Stages that have a bar.
MOST_LEVELS = 5
BACKGROUND = "#ffffff"
TEXT = "#1c2127"
QUIET = "#59636e"
ORANGE = "#d97917"
BLUE = "#2563c4"
GOOD = "#1a7f52"
BAD = "#b3262d"
DOUBTFUL = "#8f5a00"
FAMILY = "system-ui, 'DejaVu Sans', 'Segoe UI', Helvetica, Arial, sans-serif"
# Fonts by the names under which systems have them, and bold ones.
FONTS = ("DejaVuSans.ttf", "LiberationSans-Regular.ttf", "Helvetica.ttc", "arial.ttf")
BOLD_FONTS = ("DejaVuSans-Bold.ttf", "LiberationSans-Bold.ttf", "arialbd.ttf")
# Characters of a line that fit the card: of text of 23 pixels, and of bold text, whose words of a
# verdict are capitals.
LONGEST = 92
LONGEST_BOLD = (WIDTH - 2 * MARGIN) // PIXELS_A_CHAR

NO_FIGURES = ("no figures", "that can be used")
BARS = (
    ("First token, median", "median_ttft_ms", ORANGE),
    ("First token, p99", "p99_ttft_ms", ORANGE),
    ("Whole answer, median", "median_e2el_ms", BLUE),
    ("Whole answer, p99", "p99_e2el_ms", BLUE),
)


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle, in pixels."""

    x: int
    y: int
    width: int
    height: int
    colour: str


@dataclass(frozen=True, slots=True)
class Words:
    """A text; `y` is its baseline, in pixels."""

    x: int
    y: int
    text: str
    size: int
    colour: str = TEXT
    is_bold: bool = False


def has_figures(shared: Mapping[str, Any]) -> bool:
    """Whether there is a figure to draw: there is no card without."""
    return _headline(shared) != NO_FIGURES


def card(shared: Mapping[str, Any]) -> Iterator[Box | Words]:
    """The shapes of the card, from `shared_run`."""
    yield Box(0, 0, WIDTH, HEIGHT, BACKGROUND)
    verdict = shared["llama_load"]["verdict"]
    yield Box(0, 0, WIDTH, 12, _colour(verdict))

    value, unit = _headline(shared)
    large = f"{value} {unit}"
    fitting = int((WIDTH - 2 * MARGIN) / (EM_A_CHAR * len(large)))
    yield Words(MARGIN, 130, large, min(LARGE, fitting), is_bold=True)
    yield Words(MARGIN, 178, _cut(load_sentence(shared)), 23, QUIET)
    yield from _bars(shared)

    y = BARS_TOP + BARS_HEIGHT + 45
    yield Words(MARGIN, y, _cut(server_sentence(shared)), 23)
    yield Words(MARGIN, y + 36, _cut(hardware_sentence(shared)), 23)
    headline = _cut(verdict["headline"], LONGEST_BOLD)
    yield Words(MARGIN, y + 84, headline, 23, _colour(verdict), is_bold=True)
    version = shared["llama_load"]["version"] or ""
    yield Words(MARGIN, HEIGHT - 28, f"llama-load {version} {_date(shared)}", 18, QUIET)


def _headline(shared: Mapping[str, Any]) -> tuple[str, str]:
    """The figure in large type, and its unit; of a run in stages the most output of one."""
    best = level_with_most_output(shared)
    if best is not None:
        return short(best["output_throughput"]), f"tokens/s {load_name(best)}"

    for key, unit in (
        ("output_throughput", "tokens/s"),
        ("request_throughput", "req/s"),
    ):
        figure = certain(shared, key)
        if figure:
            return short(figure), unit
    return NO_FIGURES


@dataclass(frozen=True, slots=True)
class _Bar:
    """A bar: its name, its length in any unit, the text at its end, its colour."""

    name: str
    value: float
    text: str
    colour: str


def _bars(shared: Mapping[str, Any]) -> Iterator[Box | Words]:
    """The bars of the stages, else of the latencies; the longest takes all of the room."""
    bars = list(_level_bars(shared)) or list(_latency_bars(shared))
    if not bars or _headline(shared) == NO_FIGURES:
        return

    longest = max(bar.value for bar in bars)
    step = min(MOST_STEP, BARS_HEIGHT // len(bars))
    height = round(BAR_SHARE * step)
    y = BARS_TOP
    for bar in bars:
        width = max(2, round(_room(bars) * bar.value / longest))
        baseline = y + height // 2 + 8
        yield Words(MARGIN, baseline, bar.name, 23)
        yield Box(BAR_LEFT, y, width, height, bar.colour)
        yield Words(BAR_LEFT + width + 14, baseline, bar.text, 23, is_bold=True)
        y += step


def _room(bars: Sequence[_Bar]) -> int:
    """Pixels of the longest bar: beside it there is room for the longest text."""
    longest = max(len(bar.text) for bar in bars)
    return min(BAR_MOST, WIDTH - BAR_LEFT - MARGIN - PIXELS_A_CHAR * longest)


def _level_bars(shared: Mapping[str, Any]) -> Iterator[_Bar]:
    """The output of some stages, the first and the last among them."""
    levels = levels_with_output(shared)
    if len(levels) < 2:
        return

    count = min(len(levels), MOST_LEVELS)
    for number in range(count):
        level = levels[round(number * (len(levels) - 1) / (count - 1))]
        text = f"{short(level['output_throughput'])} tok/s"
        if level["median_ttft_ms"] is not None:
            text += f", first token {duration(level['median_ttft_ms'])}"
        name = load_name(level).partition(" ")[2]
        yield _Bar(name, level["output_throughput"], text, BLUE)


def _latency_bars(shared: Mapping[str, Any]) -> Iterator[_Bar]:
    """Each latency that is certain."""
    for name, key, colour in BARS:
        ms = certain(shared, key)
        if ms:
            yield _Bar(name, ms, duration(ms), colour)


def _colour(verdict: Mapping[str, Any]) -> str:
    """Green only if every statement holds, as on the first screen."""
    words = verdict["words"]
    if FAILED in words or INCOMPLETE in words:
        return BAD
    if words != [VALID]:
        return DOUBTFUL
    return GOOD if verdict["headline"] == VALID else TEXT


def _cut(text: str, longest: int = LONGEST) -> str:
    """The text, or as many of its first words as fit, and an ellipsis."""
    if len(text) <= longest:
        return text
    start = text[: longest - 2]
    words = start.rpartition(" ")[0]
    return f"{words or start} …"


def _date(shared: Mapping[str, Any]) -> str:
    """The day of the run, which has eight digits, with dashes."""
    digits = shared["date"]
    if not digits:
        return ""
    day = "-".join((digits[:4], digits[4:6], digits[6:]))
    return f"· {day}"


def card_svg(shared: Mapping[str, Any]) -> str:
    """The card as SVG."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" ',
        f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="{FAMILY}">',
        f"<title>{html.escape(' '.join(_headline(shared)))}</title>",
    ]
    for shape in card(shared):
        if isinstance(shape, Box):
            parts.append(
                f'<rect x="{shape.x}" y="{shape.y}" width="{shape.width}" '
                f'height="{shape.height}" fill="{shape.colour}"/>'
            )
        else:
            weight = 700 if shape.is_bold else 400
            parts.append(
                f'<text x="{shape.x}" y="{shape.y}" font-size="{shape.size}" '
                f'font-weight="{weight}" fill="{shape.colour}">'
                f"{html.escape(shape.text)}</text>"
            )
    parts.append("</svg>\n")
    return "".join(parts)


def card_png(shared: Mapping[str, Any]) -> bytes:
    """The card as PNG. UsageError: there is no Pillow."""
    need_pillow("a card as PNG")
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", (WIDTH, HEIGHT), BACKGROUND)
    pen = ImageDraw.Draw(picture)
    for shape in card(shared):
        if isinstance(shape, Box):
            right = shape.x + shape.width
            below = shape.y + shape.height
            pen.rectangle((shape.x, shape.y, right, below), fill=shape.colour)
        else:
            pen.text(
                (shape.x, shape.y),
                shape.text,
                fill=shape.colour,
                font=_font(shape.size, is_bold=shape.is_bold),
                anchor="ls",
            )

    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    return file.getvalue()


@cache
def _font(size: int, *, is_bold: bool) -> Any:
    from PIL import ImageFont

    names = (*BOLD_FONTS, *FONTS) if is_bold else FONTS
    for name in names:
        try:
            return ImageFont.truetype(name, size)
        except OSError:
            continue

    return ImageFont.load_default(size)
