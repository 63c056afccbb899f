"""`gapless list`: what there is to measure, and what of it this machine can run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.cli.options import DeviceOption, JsonOption

if TYPE_CHECKING:
    from gapless.inventory import Inventory


def command(device: DeviceOption = None, json: JsonOption = False) -> None:
    """Show what can be measured here.

    Scenarios, optimizations and their variants, and for each whether this machine has what it
    needs.
    """
    from gapless.bench_run import default_device
    from gapless.inventory import take_inventory
    from gapless.json_documents import indented

    inventory = take_inventory(device or default_device())
    _print_scenarios(inventory)
    _print_variants(inventory)
    if json:
        print(indented(inventory))


def _print_scenarios(inventory: Inventory) -> None:
    from gapless.terminal_tables import print_table
    from harness.tables.grid import Table

    rows = tuple(
        (
            scenario.name,
            scenario.model,
            str(scenario.num_layers),
            f"{scenario.full_tokens:,}",
            scenario.attention,
            ", ".join(scenario.optimizations),
        )
        for scenario in inventory.scenarios
    )
    columns = ("Scenario", "Model", "Layers", "Tokens at full size", "Attention", "Optimizations")
    print_table(Table(columns=columns, rows=rows, title="Scenarios"))


def _print_variants(inventory: Inventory) -> None:
    from gapless.terminal_tables import print_table
    from harness.tables.grid import Table

    rows = tuple(
        (
            f"{v.optimization} ({v.attention})" if v.attention else v.optimization,
            v.variant,
            v.role,
            "yes" if v.missing is None else f"no: {v.missing}",
            v.summary,
        )
        for v in inventory.variants
    )
    columns = ("Optimization", "Variant", "Role", f"Runs on {inventory.device}", "What it does")
    print_table(Table(columns=columns, rows=rows, title="Optimizations"))
