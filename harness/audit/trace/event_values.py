"""Numbers and labels of trace events, as written by many profilers and by damage, as columns."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.audit.trace.columns import UNKNOWN, Int64
from harness.boundary.foreign_text import visible_name

if TYPE_CHECKING:
    from collections.abc import Sequence

INVALID = np.iinfo(np.int64).min
"""Stands for a time that cannot be used."""
LARGEST_NS = 2**61
"""Time stamps beyond it are damage; differences of two below it fit in 64 bits."""
LARGEST_DURATION_NS = 10**15
"""Eleven days."""


def nanoseconds(values: Sequence[Any], largest: int = LARGEST_NS) -> Int64:
    """Microseconds as written to whole nanoseconds; damage becomes `INVALID`."""
    try:
        array = np.array(values)
    except (ValueError, OverflowError):
        array = np.array(values, dtype=object)
    if array.dtype.kind == "i":
        fine = np.abs(array) < largest // 1000
        return np.where(fine, array * 1000, INVALID).astype(np.int64)
    if array.dtype.kind == "f":
        with np.errstate(invalid="ignore", over="ignore"):
            scaled = np.rint(array * 1000)
            fine = np.abs(scaled) < largest
            return np.where(fine, scaled, INVALID).astype(np.int64)
    return np.array([_nanosecond(value, largest) for value in values], dtype=np.int64)


def _nanosecond(value: Any, largest: int) -> int:
    if isinstance(value, Decimal):
        if not value.is_finite() or value.adjusted() > 18:
            return INVALID
        result = int((value * 1000).to_integral_value())
    elif isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        result = round(value * 1000) if abs(value) < largest else INVALID
    else:
        return INVALID
    return result if abs(result) < largest else INVALID


def integers(values: Sequence[Any]) -> Int64:
    """Numbers that may be missing, text or too large, as 64-bit integers."""
    try:
        array = np.array(values)
    except (ValueError, OverflowError):
        array = np.array(values, dtype=object)
    if array.dtype.kind == "i":
        return array.astype(np.int64, copy=False)
    return np.array([_integer(value) for value in values], dtype=np.int64)


def _integer(value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return UNKNOWN
    return number if abs(number) < LARGEST_NS else UNKNOWN


def tidy_label(value: int | float | str | None) -> int | str:
    """`"5555"` and `"stream 7"` of the traces of 2021 and `"0x0"` of HIP as numbers."""
    if value is None:
        return UNKNOWN
    if not isinstance(value, str):
        return int(value) if math.isfinite(value) else UNKNOWN
    match = re.fullmatch(r"(?:stream )?(\d{1,18})", value)
    return int(match[1]) if match else visible_name(value)
