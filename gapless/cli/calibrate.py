"""`gapless calibrate`: measured costs of this machine in place of the catalogue's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.options import JsonOption, RealDeviceOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.clock.calibration import Profile
    from harness.clock.cpu_model import PhaseCheck
    from harness.tables.grid import Table


def command(
    device: RealDeviceOption = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Then model small CPU steps with it and measure them; CPU only."
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Measure launch cost, kernels, copies and syncs here, in under a minute, and keep them.

    The profile takes the place of the catalogue's entry wherever the clock stands for this device.
    """
    from gapless.bench_run import default_device
    from gapless.calibrate import calibrate_device, check_on_cpu
    from gapless.cli.results import results_of
    from harness.clock.calibration import save_profile
    from harness.errors import UsageError

    place = device or default_device()
    if check and place != "cpu":
        raise UsageError("--check models steps on the CPU; add --device cpu.")
    with results_of(json) as results:
        profile, checks = check_on_cpu() if check else (calibrate_device(place), ())
        path = save_profile(profile)
        results.table(_profile_table(profile))
        if checks:
            results.table(_checks_table(checks))
        results.text(f"Profile: {path}")
        results.document({"profile": profile, "checks": checks})


def _profile_table(profile: Profile) -> Table:
    from harness.tables import figures
    from harness.tables.grid import Table

    rows = tuple(
        (name.removesuffix("_ns").replace("_", " "), figures.milliseconds(value / 1e6))
        for name, value in profile.host_ns.items()
    )
    return Table(("Host", "An op takes"), rows, title=f"Measured on {profile.device}")


def _checks_table(checks: Sequence[PhaseCheck]) -> Table:
    from harness.tables import figures
    from harness.tables.grid import Table

    rows = tuple(
        (
            check.workload,
            check.phase,
            figures.milliseconds(check.modelled_ms),
            figures.milliseconds(check.measured_ms),
            figures.percent(check.error),
        )
        for check in checks
    )
    return Table(("Workload", "Phase", "Modelled", "Measured", "Off by"), rows)
