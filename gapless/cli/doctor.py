"""`gapless doctor`: this machine, how finely it measures, and what a GPU run would need."""

from __future__ import annotations

from gapless.cli.options import JsonOption, RealDeviceOption


def command(device: RealDeviceOption = None, json: JsonOption = False) -> None:
    """Show this machine and what it lacks.

    Its clock and noise floor say how small a difference it can tell apart.
    """
    from gapless.bench_run import default_device
    from gapless.checkup import check_up, machine_lines
    from gapless.cli.results import results_of
    from harness.tables.grid import Table

    with results_of(json) as results:
        checkup = check_up(device or default_device())
        results.table(Table(columns=("Fact", "Value"), rows=machine_lines(checkup)))
        for sentence in checkup.gpu_missing:
            results.text(sentence)
        for name, use in checkup.packages_missing.items():
            results.text(f"Without {name}: no {use}.")
        results.document(checkup)
