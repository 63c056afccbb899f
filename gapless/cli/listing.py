"""`gapless list`: what there is to measure, and what of it this machine can run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.cli.options import JsonOption, RealDeviceOption

if TYPE_CHECKING:
    from gapless.inventory import Inventory
    from harness.tables.grid import Table


def command(device: RealDeviceOption = None, json: JsonOption = False) -> None:
    """Show what can be measured here.

    Scenarios, optimizations and their variants, and for each whether this machine has what it
    needs.
    """
    from gapless.bench_run import default_device
    from gapless.cli.results import results_of
    from gapless.inventory import take_inventory

    with results_of(json) as results:
        inventory = take_inventory(device or default_device())
        results.table(_scenarios(inventory))
        results.table(_variants(inventory))
        results.text(f"GPUs to emulate: {', '.join(inventory.gpus)}.")
        if inventory.findings:
            kinds = ", ".join(inventory.findings)
            results.text(f"Kinds of findings of other packages: {kinds}.")
        for note in inventory.notes:
            results.text(f"Note: {note}")
        results.document(inventory)


def _scenarios(inventory: Inventory) -> Table:
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
    return Table(columns=columns, rows=rows, title="Scenarios")


def _variants(inventory: Inventory) -> Table:
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
    return Table(columns=columns, rows=rows, title="Optimizations")
