"""The two plots of server-bench.py, drawn with Pillow: prompt_time.png (TTFT by prompt length), gen_rate.png (tokens by second)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llama_load.foreign_text import printable
from llama_load.lab.server_bench.bench_figures import BenchFigures

WIDTH, HEIGHT, MARGIN = 1536, 1152, 160
BLUE, INK, WHITE = (31, 119, 180, 90), (40, 40, 40, 255), (255, 255, 255, 255)
TICKS, FONT = 6, 26
DOT = 4


@dataclass(frozen=True, slots=True)
class _Axis:
    """From a value to a pixel; `steps` are the values with a tick."""

    place: Callable[[float], float]
    steps: Sequence[float]


def draw_plots(figures: BenchFigures, title: str, folder: Path) -> list[Path]:
    """Write both into a folder. Raises OSError."""
    points = list(zip(figures.prompt_tokens.tolist(), figures.ttft_ms.tolist(), strict=True))
    scatter, pen = _canvas(title, "Prompt length [tokens]", "Time to first token [ms]")
    x, y = _axes(pen, 1.05 * max(tokens for tokens, _ in points), 1.05 * max(ms for _, ms in points))
    for tokens, ms in points:
        left, top = x.place(tokens), y.place(ms)
        pen.ellipse((left - DOT, top - DOT, left + DOT, top + DOT), fill=BLUE)
    rates, pen = _canvas(title, "Time [s]", "Num. tokens generated per second")
    x, y = _axes(pen, len(figures.per_second), 1.05 * float(figures.per_second.max()))
    for second, tokens in enumerate(figures.per_second.tolist()):
        pen.rectangle((x.place(second), y.place(tokens), x.place(second + 1) - 1, y.place(0)), fill=BLUE[:3])
    files = [folder / "prompt_time.png", folder / "gen_rate.png"]
    for picture, file in zip((scatter, rates), files, strict=True):
        picture.convert("RGB").save(file)
    return files


def _canvas(title: str, below: str, beside: str) -> tuple[Any, Any]:
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("RGBA", (WIDTH, HEIGHT), WHITE)
    pen = ImageDraw.Draw(picture, "RGBA")
    pen.font = ImageFont.load_default(FONT)
    pen.text((WIDTH / 2, MARGIN / 2), printable(title, 80), fill=INK, anchor="mm")
    pen.text((WIDTH / 2, HEIGHT - MARGIN / 3), below, fill=INK, anchor="mm")
    side = Image.new("RGBA", (HEIGHT, 2 * FONT), WHITE)
    ImageDraw.Draw(side).text((HEIGHT / 2, FONT), beside, fill=INK, anchor="mm", font=pen.font)
    picture.paste(side.rotate(90, expand=True), (4, 0))
    return picture, pen


def _axes(pen: Any, most_x: float, most_y: float) -> tuple[_Axis, _Axis]:
    right, bottom = WIDTH - MARGIN / 2, HEIGHT - MARGIN
    x = _Axis(lambda value: MARGIN + (right - MARGIN) * value / most_x, _steps(most_x))
    y = _Axis(lambda value: bottom - (bottom - MARGIN) * value / most_y, _steps(most_y))
    pen.rectangle((MARGIN, MARGIN, right, bottom), outline=INK)
    for step in x.steps:
        pen.line((x.place(step), bottom, x.place(step), bottom + 8), fill=INK)
        pen.text((x.place(step), bottom + 14), f"{step:g}", fill=INK, anchor="mt")
    for step in y.steps:
        pen.line((MARGIN - 8, y.place(step), MARGIN, y.place(step)), fill=INK)
        pen.text((MARGIN - 14, y.place(step)), f"{step:g}", fill=INK, anchor="rm")
    return x, y


def _steps(most: float) -> list[float]:
    """0 and round numbers up to `most`: 0, 500, 1000, …; about `TICKS` of them."""
    if most <= 0:
        return [0.0]
    rough = most / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [step * number for number in range(int(most / step) + 1)]
