"""Calibrates the device at hand and checks the calibrated clock on small CPU steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless import factory
from harness.clock.calibration import Profile, calibrated
from harness.clock.calibration_kernels import calibrate
from harness.clock.costs import Costs, catalogue_costs
from harness.clock.cpu_model import PhaseCheck, check_phases
from harness.clock.gpus import find_gpu, gpu_names
from harness.errors import UsageError
from scenarios.build_options import BuildOptions
from scenarios.scenario_catalogue import get

if TYPE_CHECKING:
    import torch

CHECKED = ("qwen3-0.6b-packed-sft", "llama3.2-1b-packed-sft", "qwen3-8b-packed-sft")
_CHECK_LAYERS, _CHECK_TOKENS = 6, 256


def calibrate_device(name: str) -> Profile:
    """Measure `cpu`, `cuda` or `cuda:N`. Raises `UsageError` for a device that is not here."""
    import torch

    if name == "cpu":
        return calibrate(torch.device("cpu"), "cpu", "this machine's CPU")
    if not torch.cuda.is_available():
        raise UsageError(f"{name} cannot be calibrated: torch sees no GPU here; choose cpu.")
    device = torch.device(name)
    shown = torch.cuda.get_device_name(device)
    return calibrate(device, _catalogue_key(shown), shown)


def check_on_cpu() -> tuple[Profile, tuple[PhaseCheck, ...]]:
    """Calibrate the CPU on one thread, then model and measure small steps on it."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        profile = calibrate_device("cpu")
        costs = cpu_costs(profile)
        checks = [check for name in CHECKED for check in _check(name, costs, torch.device("cpu"))]
    finally:
        torch.set_num_threads(threads)
    return profile, tuple(checks)


def cpu_costs(profile: Profile) -> Costs:
    """Costs of a calibrated CPU; classes that were not measured take the first GPU's shares."""
    return calibrated(catalogue_costs(find_gpu(gpu_names()[0])), profile)


def _check(name: str, costs: Costs, device: torch.device) -> tuple[PhaseCheck, ...]:
    options = BuildOptions(
        device=str(device),
        num_layers=_CHECK_LAYERS,
        tokens=_CHECK_TOKENS,
        num_batches=1,
        attention="sdpa",
    )
    workload, _ = factory.build(factory.make_spec(get(name), options, ()))
    return check_phases(name, workload, costs)


def _catalogue_key(shown: str) -> str:
    """The catalogue's key of a GPU by the name its driver gives; else that name itself."""
    for key in gpu_names():
        if find_gpu(key).name == shown:
            return key
    return shown.replace(" ", "-")
