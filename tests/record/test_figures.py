"""Figures as people read them: known answers, and unknown is a dash."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.tables.figures import byte_size, milliseconds, percent, rate, speedup_range


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (percent(0.084), "+8.4%"),
        (percent(-0.0461), "-4.6%"),
        (percent(-0.0001), "+0.0%"),
        (percent(1.5), "+150%"),
        (percent(0.023, signed=False), "2.3%"),
        (speedup_range(0.0789, 0.0891), "[+7.9%, +8.9%]"),
        (milliseconds(0.0123), "12.3 us"),
        (milliseconds(0.9999), "1 ms"),
        (milliseconds(12.34), "12.3 ms"),
        (milliseconds(999.7), "1 s"),
        (milliseconds(123_400), "123 s"),
        (milliseconds(0), "0 ms"),
        (byte_size(402_653_184), "0.375 GiB"),
        (byte_size(1000), "0.977 KiB"),
        (byte_size(12), "12 B"),
        (rate(6718.4), "6,718"),
        (rate(12.34), "12.3"),
        (rate(0.3739), "0.374"),
    ],
)
def test_known_figures(text: str, expected: str) -> None:
    assert text == expected


@pytest.mark.parametrize("write", [percent, milliseconds, byte_size, rate])
def test_unknown_is_a_dash(write) -> None:
    assert write(None) == "-"


@given(st.floats(min_value=1e-6, max_value=1e9))
def test_a_duration_reads_back_within_its_three_digits(duration_ms: float) -> None:
    number, unit = milliseconds(duration_ms).split()
    back = float(number.replace(",", "")) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit]
    assert back == pytest.approx(duration_ms, rel=5.1e-3)
