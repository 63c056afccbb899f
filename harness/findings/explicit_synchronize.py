"""A synchronise that somebody wrote."""

from __future__ import annotations

from harness.findings.rule import Advice, Rule, Spot, leave_out


def _advise(spot: Spot) -> Advice:
    return Advice(
        "The host waits until the device has nothing left to do.",
        (
            leave_out(spot, "the synchronise", "synchronize", "current_stream", "default_stream"),
            "# to order two streams: stream.wait_stream(other); to time: CUDA events",
        ),
        "At the end of a measurement, or before memory is handed to another library, it is right.",
    )


RULE = Rule(
    kind="explicit-synchronize",
    advise=_advise,
)
