"""A synchronise that somebody wrote."""

from __future__ import annotations

from harness.findings.rule import Advice, Rule, Spot


def _advise(spot: Spot) -> Advice:
    text = spot.statement.text() if spot.statement is not None else "torch.cuda.synchronize()"
    return Advice(
        "The host waits until the device has nothing left to do.",
        (
            f"# delete: {text}",
            "# to order two streams: stream.wait_stream(other); to time: CUDA events",
        ),
        "At the end of a measurement, or before memory is handed to another library, it is right.",
    )


RULE = Rule(
    kind="explicit-synchronize",
    sites=frozenset({"explicit_synchronize", "event_synchronize"}),
    advise=_advise,
)
