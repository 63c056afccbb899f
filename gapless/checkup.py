"""What this machine is, how finely it measures, and what it lacks."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from harness.machine.machine import clock_resolution_ns, describe_machine, noise_floor
from harness.record.records import Comparison, Machine, Record
from harness.tables import figures

if TYPE_CHECKING:
    from collections.abc import Callable

OPTIONAL_PACKAGES = {
    "psutil": "memory of the process and load of the machine",
    "pynvml": "clocks, power, energy and throttling of a GPU",
    "flash_attn": "FlashAttention for packed rows on a GPU, where torch has no varlen attention",
    "bitsandbytes": "4-bit weights (`pip install 'gapless[qlora]'`)",
}
"""Import name -> what it is for."""


class Checkup(Record, frozen=True, kw_only=True):
    """The state of this machine."""

    machine: Machine
    clock_resolution_ns: int
    noise: Comparison
    """A fixed, one-millisecond workload against itself."""
    gpu_missing: tuple[str, ...]
    """What a GPU run lacks, one sentence each; empty where it can run."""
    packages_missing: dict[str, str]
    """Optional package -> what is unknown or unavailable without it."""


def check_up(device: str) -> Checkup:
    """Look at this machine; takes a few seconds. Raises `UsageError` for an absent device."""
    return Checkup(
        machine=describe_machine(device),
        clock_resolution_ns=clock_resolution_ns(),
        noise=noise_floor(),
        gpu_missing=gpu_missing(),
        packages_missing=missing_packages(importlib.util.find_spec),
    )


def gpu_missing() -> tuple[str, ...]:
    """Why no GPU run is possible, one sentence each."""
    import torch

    if torch.cuda.is_available():
        return ()
    if torch.version.cuda is None and torch.version.hip is None:
        return ("No GPU run: this torch is a CPU build; install one built for CUDA or ROCm.",)
    return ("No GPU run: torch sees no GPU; check the driver with nvidia-smi or rocm-smi.",)


def missing_packages(find: Callable[[str], object | None]) -> dict[str, str]:
    """The optional packages that `find` does not find, with what they are for."""
    return {name: use for name, use in OPTIONAL_PACKAGES.items() if find(name) is None}


def machine_lines(checkup: Checkup) -> tuple[tuple[str, str], ...]:
    """Name and value of each fact, for people."""
    machine, noise = checkup.machine, checkup.noise
    gpus = ", ".join(
        f"{gpu.name}, {figures.byte_size(gpu.memory_bytes)}, driver {gpu.driver or 'unknown'}"
        for gpu in machine.gpus
    )
    noise_text = (
        f"{figures.speedup_range(noise.low, noise.high)} for a step of "
        f"{figures.milliseconds(noise.baseline_median_ms)} against itself "
        f"({noise.num_blocks} blocks, {noise.verdict})"
    )
    return (
        ("device", machine.device),
        ("GPU", gpus or "none"),
        ("CPU", f"{machine.cpu_model}, {machine.num_cpu_cores} cores"),
        ("threads of one op", str(machine.num_threads)),
        ("memory", figures.byte_size(machine.memory_bytes)),
        ("governor", machine.governor or "unknown"),
        ("python", f"{machine.python}, {machine.platform}"),
        ("torch", f"{machine.torch}, CUDA {machine.cuda or 'none'}"),
        ("transformers", machine.transformers or "none"),
        ("clock resolution", f"{checkup.clock_resolution_ns} ns"),
        ("noise floor", noise_text),
        ("tells apart from", figures.percent(noise.minimum_detectable, signed=False)),
    )
