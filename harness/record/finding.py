"""One diagnosed place: what it costs, why it is there, and what to write instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from harness.record.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

Severity = Literal["high", "medium", "low"]
RankedBy = Literal["measured", "modelled", "count"]
Confidence = Literal["high", "medium", "low"]

_HIGH_SHARE, _MEDIUM_SHARE = 0.05, 0.01
"""Shares of the span as exposed time, from which a finding is of high or medium severity."""
_HIGH_SYNCS, _MEDIUM_SYNCS = 8, 2
"""Syncs per step, where no time is known."""
_OF_THE_STEP = ("launch-bound",)
_ORDER: dict[Severity, int] = {"high": 0, "medium": 1, "low": 2}


class Finding(Record, frozen=True, kw_only=True):
    """What one audit found at one place, all phases together."""

    kind: str
    """Such as `polling-loop`; one file each in `harness.findings`, or a plug-in's."""
    severity: Severity
    ranked_by: RankedBy
    """What the severity comes from: exposed time, measured or modelled; else the count of syncs."""
    confidence: Confidence
    why: str
    """One sentence."""
    instead: tuple[str, ...]
    """Lines to write in its place, with the names of this place where the source gives them."""
    unless: str
    """When not to bother."""
    optimization: str | None = None
    """`optimization=variant` that does it, for models of transformers."""
    file: str | None = None
    line: int | None = None
    lines: tuple[int, ...] = ()
    """All lines of `file` that belong to it."""
    code: str | None = None
    function: str | None = None
    module: str | None = None
    """Module path; `*` stands for a repeated index."""
    phases: tuple[str, ...] = ()
    count_per_step: float
    """How often it happens."""
    bytes_per_call: int | None = None
    """The largest copy of it; `None` where it copies nothing, or no size is known."""
    syncs_per_step: float = 0
    exposed_ms: float | None = None
    """Device idle time because of it, per step."""
    blocked_ms: float | None = None
    launch_ms: float | None = None
    """Modelled host time per step of launches that can be saved, for work without syncs.
    It is lost where the host is behind the device, and costs little where it is ahead."""
    across_steps: bool = False
    """Whether it happens once within a step, as it must, but is repeated in every step."""
    growth: str | None = None
    """How the syncs grow, such as `L*(1 + 7*E_hit)`."""


class Answer(Record, frozen=True, kw_only=True):
    """What an optimization says to findings: at which places it helps, and what to write instead.

    It speaks to a finding that fits all that is given here. `kinds` or `file` must be.
    """

    optimization: str
    """`optimization=variant` that mends the finding."""
    kinds: tuple[str, ...] = ()
    """Kinds of findings; empty for any."""
    file: str = ""
    """Part of the path of the file, with `/`."""
    function: str = ""
    """Pattern, as of `re.search`, of the function's qualified name."""
    phases: tuple[str, ...] = ()
    """Phases of which the finding has one; empty for any."""
    least_bytes: int = 0
    """Smallest copy that it speaks to."""
    why: str | None = None
    """In place of the finding's own sentence."""
    instead: tuple[str, ...] = ()
    """In place of the finding's own lines."""
    unless: str | None = None
    """In place of the finding's own sentence."""


def severity_of(
    syncs_per_step: float, exposed_ms: float | None, span_ms: float | None, *, modelled: bool
) -> tuple[Severity, RankedBy]:
    """Severity, and what it was judged by. `span_ms` is the time that `exposed_ms` is part of."""
    if exposed_ms is not None and span_ms:
        share = exposed_ms / span_ms
        by_time: Severity = (
            "high" if share >= _HIGH_SHARE else "medium" if share >= _MEDIUM_SHARE else "low"
        )
        return by_time, "modelled" if modelled else "measured"
    if syncs_per_step >= _HIGH_SYNCS:
        return "high", "count"
    return ("medium" if syncs_per_step >= _MEDIUM_SYNCS else "low"), "count"


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Most costly first: by severity, then exposed time, then syncs, then how often it happens.

    A finding on the whole step, such as `launch-bound`, comes after the places of its severity.
    """
    return tuple(
        sorted(
            findings,
            key=lambda f: (
                _ORDER[f.severity],
                f.kind in _OF_THE_STEP,
                -(f.exposed_ms or f.launch_ms or 0.0),
                -f.syncs_per_step,
                -f.count_per_step,
                f.file or "",
                f.line or 0,
            ),
        )
    )
