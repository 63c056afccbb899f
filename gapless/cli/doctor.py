"""`gapless doctor`: this machine, how finely it measures, and what a GPU run would need."""

from __future__ import annotations

from gapless.cli.options import DeviceOption, JsonOption


def command(device: DeviceOption = None, json: JsonOption = False) -> None:
    """Show this machine and what it lacks.

    Its clock and noise floor say how small a difference it can tell apart.
    """
    from gapless.bench_run import default_device
    from gapless.checkup import check_up, machine_lines
    from gapless.json_documents import indented
    from gapless.terminal_tables import print_table
    from harness.tables.grid import Table

    checkup = check_up(device or default_device())
    print_table(Table(columns=("Fact", "Value"), rows=machine_lines(checkup)))
    for sentence in checkup.gpu_missing:
        print(sentence)
    for name, use in checkup.packages_missing.items():
        print(f"Without {name}: no {use}.")
    if json:
        print(indented(checkup))
