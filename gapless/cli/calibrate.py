"""`gapless calibrate`: measured costs of this machine in place of the catalogue's."""

from __future__ import annotations

from typing import Annotated

import typer

from gapless.cli.options import DeviceOption, JsonOption


def command(
    device: DeviceOption = None,
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
    from gapless.terminal_tables import print_table
    from harness.clock.calibration import save_profile
    from harness.errors import UsageError
    from harness.tables import figures
    from harness.tables.grid import Table

    place = device or default_device()
    if check and place != "cpu":
        raise UsageError("--check models steps on the CPU; add --device cpu.")
    profile, checks = check_on_cpu() if check else (calibrate_device(place), ())
    path = save_profile(profile)
    rows = tuple(
        (name.removesuffix("_ns").replace("_", " "), figures.milliseconds(value / 1e6))
        for name, value in profile.host_ns.items()
    )
    print_table(Table(("Host", "An op takes"), rows, title=f"Measured on {profile.device}"))
    if checks:
        compared = tuple(
            (
                c.workload,
                c.phase,
                figures.milliseconds(c.modelled_ms),
                figures.milliseconds(c.measured_ms),
                figures.percent(c.error),
            )
            for c in checks
        )
        print_table(Table(("Workload", "Phase", "Modelled", "Measured", "Off by"), compared))
    print(f"Profile: {path}")
    if json:
        from gapless.json_documents import indented

        print(indented({"profile": profile, "checks": checks}))
