"""Step counters of an optimizer on the device: read once per parameter."""

from __future__ import annotations

from harness.findings.rule import Advice, Location, Rule


def _advise(location: Location) -> Advice:
    return Advice(
        "The optimizer's step counters were moved to the device, by loading or offloading its "
        "state, and are read once per parameter.",
        (
            "for state in optimizer.state.values():",
            '    state["step"] = state["step"].cpu()  # once, after loading',
            "# or make the optimizer with fused=True",
        ),
        "A fused or capturable optimizer wants them on the device and does not read them.",
        confidence="high" if location.sites else "medium",
    )


RULE = Rule(
    kind="optimizer-step-on-device",
    advise=_advise,
    by_function=True,
)
