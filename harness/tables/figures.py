"""How a figure is formatted: one function for each kind, for the command line and every view.

A figure that is unknown is a dash, never 0.
"""

from __future__ import annotations

UNKNOWN = "-"


def percent(share: float | None, *, signed: bool = True) -> str:
    """`0.084` as `+8.4%`; one decimal below 10 %, none from 100 % on."""
    if share is None:
        return UNKNOWN
    value = 100 * share
    decimals = 0 if abs(value) >= 99.95 else 1
    text = f"{value:+.{decimals}f}%" if signed else f"{value:.{decimals}f}%"
    return text.replace("-0.0%", "+0.0%" if signed else "0.0%")


def speedup_range(low: float, high: float) -> str:
    """An interval, `[+7.9%, +8.9%]`."""
    return f"[{percent(low)}, {percent(high)}]"


def milliseconds(duration_ms: float | None) -> str:
    """A duration with three significant digits and its unit."""
    if duration_ms is None:
        return UNKNOWN
    if duration_ms >= 999.5:
        return f"{_three_digits(duration_ms / 1000)} s"
    if duration_ms >= 0.9995 or duration_ms == 0:
        return f"{_three_digits(duration_ms)} ms"
    return f"{_three_digits(duration_ms * 1000)} us"


def byte_size(num_bytes: int | None) -> str:
    """A size in binary units, `0.37 GiB`."""
    if num_bytes is None:
        return UNKNOWN
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(num_bytes) >= 0.1 * scale:
            return f"{_three_digits(num_bytes / scale)} {unit}"
    return f"{num_bytes} B"


def joules(energy_j: float | None) -> str:
    """An energy with three significant digits."""
    return UNKNOWN if energy_j is None else f"{_three_digits(energy_j)} J"


def count(number: float | None) -> str:
    """How many of something in a step, `1,536` or `0.5`."""
    return UNKNOWN if number is None else _three_digits(number)


def seconds(duration_s: float | None) -> str:
    """A duration in seconds with three significant digits."""
    return UNKNOWN if duration_s is None else f"{_three_digits(duration_s)} s"


def difference(value: float | None) -> str:
    """A difference between two computations, `1.2e-05`, or `0` where there is none."""
    if value is None:
        return UNKNOWN
    return "0" if value == 0 else f"{value:.1e}"


def parameter_count(number: int | None) -> str:
    """`14.8 B`, `350 M`."""
    if number is None:
        return UNKNOWN
    for unit, scale in (("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= scale:
            return f"{_three_digits(number / scale)} {unit}"
    return str(number)


def rate(per_second: float | None) -> str:
    """A rate per second, thousands separated."""
    if per_second is None:
        return UNKNOWN
    return _three_digits(per_second)


def _three_digits(value: float) -> str:
    """Three significant digits, or the whole number where it has more."""
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"
