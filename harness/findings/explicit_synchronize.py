"""An explicit synchronise in the code."""

from __future__ import annotations

from harness.findings.rule import Advice, Location, Rule, leave_out


def _advise(location: Location) -> Advice:
    return Advice(
        "The host waits until the device has finished all queued work.",
        (
            leave_out(
                location, "the synchronise", "synchronize", "current_stream", "default_stream"
            ),
            "# to order two streams: stream.wait_stream(other); to time: CUDA events",
        ),
        "It is right at the end of a measurement, or before memory is handed to another library.",
    )


RULE = Rule(
    kind="explicit-synchronize",
    advise=_advise,
)
