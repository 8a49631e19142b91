"""Numbers as people read them: in tables, sentences, cards and notes of charts."""

from __future__ import annotations

import math

NONE = "n/a"
MOST_CHARS = len("99999.99")  # of a figure in a terminal's table: a longer one is shown without decimals
FACTOR_FROM = 10.0  # a change to this ratio or more is shown as a factor


def fixed(value: float | None, digits: int = 2) -> str:
    """A number with this many decimals: 12.30; n/a if it is unknown."""
    return NONE if value is None else f"{value:.{digits}f}"


def short(value: float | None) -> str:
    """About three digits: 2072, 3.68, 44.1, 0.0042; n/a if it is unknown."""
    if value is None:
        return NONE
    return f"{value:.{0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else decimals_of(value, 2)}f}"


def brief(value: float | None) -> str:
    """Three or more significant digits, two of small ones: 0.0042, 0.123, 4.57, 45.7, 457, 45,678; n/a if it is unknown."""
    if value is None:
        return NONE
    size = abs(value)
    decimals = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 or not size else decimals_of(size, 3)
    return f"{value:,.{decimals}f}"


def milliseconds(value: float | None) -> str:
    """`brief` with its unit: 45.7 ms; n/a if it is unknown."""
    return NONE if value is None else f"{brief(value)} ms"


def count(value: int | None, known: int = 0) -> str:
    """A whole number: 128; `at least 100`, or n/a, where only `known` of it is known."""
    return str(value) if value is not None else f"at least {known}" if known else NONE


def whole_or_fixed(value: float | None) -> str:
    """A whole number without decimals, another with two: 64, 12.30; n/a if it is unknown."""
    return NONE if value is None else f"{value:.0f}" if float(value).is_integer() else f"{value:z.2f}"


def without_long_decimals(figure: str) -> str:
    """A plain figure without its decimals if it is long: 1234567.89 -> 1234568; other texts as they are."""
    is_plain = figure.isascii() and figure.removeprefix("-").replace(".", "", 1).isdigit()
    return f"{float(figure):.0f}" if is_plain and len(figure) > MOST_CHARS else figure


def decimals_of(value: float, least: int) -> int:
    """How many decimals show two digits of a value, `least` or more, 9 at most: 12.3 -> 2, 0.0042 -> 4, with `least` 2."""
    return min(9, max(least, 1 - math.floor(math.log10(abs(value))))) if value and math.isfinite(value) else least


# ---------------------------------------------------------------------- shares and changes


def percent(share: float | None, digits: int = 1, *, gap: str = "", sign: str = "") -> str:
    """A share in per cent: 0.055 -> 5.5%, with `gap` before the % and `sign` + before a positive one; n/a if it is unknown."""
    return NONE if share is None else f"{share:{sign}.{digits}%}".replace("%", f"{gap}%")


def percent_of(part: int, whole: int) -> str:
    """A share that is only 0 or 100 % if it is exactly that: 9999 of 10000 is 99.99 %."""
    if not whole:
        return NONE
    for decimals in (0, 1, 2):
        text = f"{100 * part / whole:.{decimals}f}"
        if float(text) not in (0.0, 100.0) or part in (0, whole):
            return f"{text} %"
    return "over 99.99 %" if 2 * part > whole else "under 0.01 %"


def change(ratio: float | None, digits: int = 1, *, gap: str = "") -> str:
    """A ratio as a change: 1.078 -> +7.8%, 12 -> x 12, with `gap` before the sign; n/a if it is unknown."""
    if ratio is None:
        return NONE
    return percent(ratio - 1, digits, gap=gap, sign="+") if ratio < FACTOR_FROM else f"x {ratio:.3g}"


def change_between(low: float, high: float, *, gap: str = "") -> str:
    """The interval of a change: `+2.1% to +13.9%`."""
    return f"{change(low, gap=gap)} to {change(high, gap=gap)}"


# ---------------------------------------------------------------------- sizes and times


def size(count_of_bytes: int, mib_digits: int = 1) -> str:
    """Bytes: 4.58 GiB, 19.7 MiB."""
    is_large = count_of_bytes >= 2**30
    return f"{count_of_bytes / 2**30:.2f} GiB" if is_large else f"{count_of_bytes / 2**20:.{mib_digits}f} MiB"


def decimal_size(count_of_bytes: int) -> str:
    """Bytes in units of 10^9 and 10^6, as people write them beside a model: 13.5GB, 20.9MB."""
    return f"{count_of_bytes / 1e9:.1f}GB" if count_of_bytes >= 1e8 else f"{count_of_bytes / 1e6:.1f}MB"


def parameters(number: int) -> str:
    """The parameters of a model: 8.03 B, 5.17 M, 600.00 K."""
    divisor, unit = (1e9, "B") if number >= 1e9 else (1e6, "M") if number >= 1e6 else (1e3, "K")
    return f"{number / divisor:.2f} {unit}"


def duration(seconds: float) -> str:
    """A time: 45 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
