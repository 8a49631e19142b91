"""Numbers as people read them: in tables, sentences, cards and notes of charts."""

from __future__ import annotations

import math

NONE = "n/a"
# The longest figure of a terminal's table that is shown with its decimals.
MOST_CHARS = len("99999.99")
FACTOR_FROM = 10.0  # a change to this ratio or more is shown as a factor


def fixed(value: float | None, digits: int = 2) -> str:
    """A number with this many decimals: 12.30; n/a if it is unknown."""
    if value is None:
        return NONE
    return f"{value:.{digits}f}"


def short(value: float | None) -> str:
    """About three digits: 2072, 3.68, 44.1, 0.0042; n/a if it is unknown."""
    if value is None:
        return NONE

    size = abs(value)
    if size >= 99.95:
        return f"{value:.0f}"
    if size >= 9.995:
        return f"{value:.1f}"

    decimals = decimals_of(value, 2)

    return f"{value:.{decimals}f}"


def brief(value: float | None) -> str:
    """Three or more significant digits, two of small numbers; n/a if it is unknown.

    0.0042, 0.123, 4.57, 45.7, 457, 45,678.
    """
    if value is None:
        return NONE

    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:,.1f}"
    if size >= 1 or not size:
        return f"{value:,.2f}"

    decimals = decimals_of(size, 3)

    return f"{value:,.{decimals}f}"


def milliseconds(value: float | None) -> str:
    """`brief` with its unit: 45.7 ms; n/a if it is unknown."""
    if value is None:
        return NONE
    return f"{brief(value)} ms"


def count(value: int | None, known: int = 0) -> str:
    """A whole number: 128; `at least 100`, or n/a, where only `known` of it is known."""
    if value is not None:
        return str(value)
    if known:
        return f"at least {known}"
    return NONE


def whole_or_fixed(value: float | None) -> str:
    """A whole number without decimals, another with two: 64, 12.30; n/a if it is unknown."""
    if value is None:
        return NONE
    if float(value).is_integer():
        return f"{value:.0f}"
    return f"{value:z.2f}"


def without_long_decimals(figure: str) -> str:
    """A plain figure without its decimals if it is long: 1234567.89 -> 1234568.

    Other texts as they are.
    """
    if len(figure) <= MOST_CHARS or not figure.isascii():
        return figure

    unsigned = figure.removeprefix("-")
    digits = unsigned.replace(".", "", 1)
    if not digits.isdigit():
        return figure

    return f"{float(figure):.0f}"


def decimals_of(value: float, least: int) -> int:
    """How many decimals show two digits of a value, `least` or more, 9 at most.

    12.3 -> 2, 0.0042 -> 4, with `least` 2.
    """
    if not value or not math.isfinite(value):
        return least

    power = math.floor(math.log10(abs(value)))
    decimals = max(least, 1 - power)

    return min(9, decimals)


# ---------------------------------------------------------------------- shares and changes


def percent(
    share: float | None, digits: int = 1, *, gap: str = "", sign: str = ""
) -> str:
    """A share in per cent: 0.055 -> 5.5%; n/a if it is unknown.

    With `gap` before the %, and with `sign` + before a positive one.
    """
    if share is None:
        return NONE
    text = f"{share:{sign}.{digits}%}"
    return text.replace("%", f"{gap}%")


def percent_of(part: int, whole: int) -> str:
    """A share that is only 0 or 100 % if it is exactly that: 9999 of 10000 is 99.99 %."""
    if not whole:
        return NONE

    is_exact = part in (0, whole)
    for decimals in (0, 1, 2):
        text = f"{100 * part / whole:.{decimals}f}"
        if is_exact or float(text) not in (0.0, 100.0):
            return f"{text} %"

    if 2 * part > whole:
        return "over 99.99 %"

    return "under 0.01 %"


def change(ratio: float | None, digits: int = 1, *, gap: str = "") -> str:
    """A ratio as a change: 1.078 -> +7.8%, 12 -> x 12; n/a if it is unknown.

    With `gap` before the %.
    """
    if ratio is None:
        return NONE
    if ratio < FACTOR_FROM:
        return percent(ratio - 1, digits, gap=gap, sign="+")
    return f"x {ratio:.3g}"


def change_between(low: float, high: float, *, gap: str = "") -> str:
    """The interval of a change: `+2.1% to +13.9%`."""
    return f"{change(low, gap=gap)} to {change(high, gap=gap)}"


# ---------------------------------------------------------------------- sizes and times


def size(count_of_bytes: int, mib_digits: int = 1) -> str:
    """Bytes: 4.58 GiB, 19.7 MiB."""
    if count_of_bytes >= 2**30:
        return f"{count_of_bytes / 2**30:.2f} GiB"
    return f"{count_of_bytes / 2**20:.{mib_digits}f} MiB"


def decimal_size(count_of_bytes: int) -> str:
    """Bytes in units of 10^9 and 10^6, as people write them beside a model: 13.5GB, 20.9MB."""
    if count_of_bytes >= 1e8:
        return f"{count_of_bytes / 1e9:.1f}GB"
    return f"{count_of_bytes / 1e6:.1f}MB"


def parameters(number: int) -> str:
    """The parameters of a model: 8.03 B, 5.17 M, 600.00 K."""
    if number >= 1e9:
        return f"{number / 1e9:.2f} B"
    if number >= 1e6:
        return f"{number / 1e6:.2f} M"
    return f"{number / 1e3:.2f} K"


def duration(seconds: float) -> str:
    """A time: 45 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min"
