"""`non_blocking=True` from memory that is not pinned: the driver stages it, and blocks."""

from __future__ import annotations

from harness.findings.rule import Advice, Location, Rule


def _advise(location: Location) -> Advice:
    return Advice(
        "The copy asks not to block, but its memory is pageable, so the driver copies it through a "
        "staging buffer and overlaps nothing.",
        ("DataLoader(..., pin_memory=True)  # or x.pin_memory() once, where x is made",),
        "A tensor that is used once is not worth pinning: pinning copies it, too.",
        confidence="medium" if location.statement is None else "high",
    )


RULE = Rule(kind="pageable-async-copy", advise=_advise)
