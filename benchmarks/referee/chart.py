"""A chart of errors as SVG: a row per client, a dot for the median and one for p99, on a
logarithmic axis."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence

from benchmarks.referee.kept import Cell
from truth.finding import number
from truth.units import percentile

LEFT, RIGHT, ROW, HEAD, GAP = 190, 70, 20, 30, 16  # pixels
BLOCK_HEAD = 44  # its title, and the axis below it
WIDTH = 860
LEAST_MS, MOST_MS = 0.001, 10_000.0
OURS, OTHERS, GRID, TEXT = "#1a7f52", "#b3262d", "#dddddd", "#1c2127"
LEGEND = (
    "error in ms, logarithmic: ● p50  ◆ p99 of the absolute difference from the server's log, medians"
    " of the runs"
)
HEADING = 'font-weight="600" font-size="14"'
FONT = "system-ui, 'Segoe UI', 'DejaVu Sans', Arial, sans-serif"


def chart(
    blocks: Sequence[tuple[str, Sequence[Cell]]], latency: str, title: str
) -> str:
    """Errors of a latency in ms, a block per case, by its title. Clients that report none are left
    out."""
    drawn = [(name, _values(cells, latency)) for name, cells in blocks]
    drawn = [(name, values) for name, values in drawn if values]
    height = (
        HEAD + sum(BLOCK_HEAD + ROW * len(values) + GAP for _, values in drawn) + HEAD
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'font-family="{FONT}" font-size="12" fill="{TEXT}"><title>{html.escape(title)}</title>'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{_text(10, 20, title, HEADING)}'
    ]
    top = HEAD
    for name, values in drawn:
        parts += _block(top, name, values)
        top += BLOCK_HEAD + ROW * len(values) + GAP
    parts.append(_text(LEFT, top + 14, LEGEND))
    return "".join(parts) + "</svg>\n"


def _values(cells: Sequence[Cell], latency: str) -> list[tuple[str, float, float]]:
    """The medians of p50 and p99 of each client."""
    values: list[tuple[str, float, float]] = []
    for cell in cells:
        p50s, p99s = cell.errors_of(latency)
        if p50s:
            p50 = abs(percentile(p50s, 50))
            p99 = abs(percentile(p99s, 50))
            values.append((cell.client, p50, p99))
    return values


def _block(
    top: float, title: str, values: Sequence[tuple[str, float, float]]
) -> Iterator[str]:
    bottom = top + BLOCK_HEAD + ROW * len(values)
    yield _text(10, top + 16, title, 'font-weight="600"')
    for power in range(round(math.log10(LEAST_MS)), round(math.log10(MOST_MS)) + 1):
        x = _x(10.0**power)
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top + BLOCK_HEAD - 4}" y2="{bottom}" stroke="{GRID}"/>'
        yield _text(
            x, top + 36, f"{10.0**power:g}", 'text-anchor="middle" fill="#59636e"'
        )
    for place, (name, p50, p99) in enumerate(values):
        y = top + BLOCK_HEAD + ROW * place + ROW / 2
        colour = OURS if name.startswith("llama-load") else OTHERS
        left, right = _x(p50), _x(p99)
        yield _text(
            LEFT - 8,
            y + 4,
            name.replace("--client-priority ", "at "),
            'text-anchor="end"',
        )
        yield f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2"/>'
        yield f'<circle cx="{left:.1f}" cy="{y}" r="4" fill="{colour}"/>'
        yield f'<path d="M{right:.1f} {y - 5}l5 5l-5 5l-5 -5z" fill="{colour}"/>'
        yield _text(right + 9, y + 4, number(p99), 'fill="#59636e"')


def _x(value_ms: float) -> float:
    inside = min(max(value_ms, LEAST_MS), MOST_MS)
    span = math.log10(MOST_MS / LEAST_MS)
    return LEFT + (WIDTH - LEFT - RIGHT) * math.log10(inside / LEAST_MS) / span


def _text(x: float, y: float, text: str, attributes: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {attributes}>{html.escape(text)}</text>'
