"""Do two arms compute the same? Loss and every parameter gradient, before any speed counts.

The same weights: the pass runs forward and backward only, so neither weights nor optimizer state
are written; buffers, which a forward may write, are put back before each arm. The same batch, and
the same random numbers. The baseline's gradients are kept in host memory and brought back to the
device one parameter at a time, in slices, so the pass needs no second set of gradients on the
device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from harness.bench.training_state import restore_buffers, seed_everything, snapshot_buffers
from harness.record.records import Parity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import nn

    from harness.workload import Workload

_SLICE_NUMEL = 1 << 24
_REPEAT_ROUNDINGS = 256
_REPEAT_CEILING = 0.05

Tolerance = tuple[float, str]


@dataclass(frozen=True)
class Difference:
    """How far one tensor is from its counterpart; or, in `problem`, why they cannot be compared."""

    max_abs: float = 0.0
    max_reference: float = 0.0
    bitwise: bool = True
    problem: str | None = None


@dataclass
class ParityCheck:
    """Compares arms with the baseline on one batch.

    Where an arm that should be equal to the last bit is not, the baseline is run once more. If it
    does not repeat itself either (atomics add in no fixed order), the arm need only be as close as
    rounding in the model's dtype explains, and the record says so.
    """

    workload: Workload
    select: Callable[[str], None]
    baseline: str
    seed: int
    batch: int = 0
    _loss: torch.Tensor = field(init=False)
    _gradients: dict[str, torch.Tensor | None] = field(init=False)
    _buffers: dict[str, torch.Tensor] = field(init=False)
    _repeats: bool | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._buffers = snapshot_buffers(self.workload.model)
        loss = self._run(self.baseline)
        self._loss = loss.to("cpu", copy=True)
        self._gradients = {
            name: None if parameter.grad is None else parameter.grad.detach().to("cpu", copy=True)
            for name, parameter in _trainable(self.workload.model).items()
        }
        self._clear()

    def check(self, arm: str, tolerance: Tolerance) -> tuple[Parity, Parity]:
        """Loss and gradients of one arm; `tolerance` is the allowed difference, and why."""
        differences = self._compare_with_baseline(self._run(arm))
        self._clear()
        allowed, reason = tolerance
        bitwise = all(difference.bitwise for difference in differences.values())
        if allowed == 0.0 and not bitwise and not self._baseline_repeats():
            allowed = repeat_tolerance(model_dtype(self.workload.model))
            reason = "the baseline itself does not repeat to the last bit on this device"
        loss = {"loss": differences.pop("loss")}
        return (
            self._judge(arm, "loss", loss, allowed, reason),
            self._judge(arm, "gradients", differences, allowed, reason),
        )

    def _baseline_repeats(self) -> bool:
        if self._repeats is None:
            again = self._compare_with_baseline(self._run(self.baseline))
            self._repeats = all(difference.bitwise for difference in again.values())
            self._clear()
        return self._repeats

    def _run(self, arm: str) -> torch.Tensor:
        """One forward and backward; leaves the gradients on the parameters, returns the loss."""
        restore_buffers(self.workload.model, self._buffers)
        self.select(arm)
        self.workload.select_batch(self.batch)
        self.workload.zero_grad()
        seed_everything(self.seed)
        loss = self.workload.forward().detach()
        self.workload.backward()
        return loss

    def _clear(self) -> None:
        self.workload.zero_grad()
        restore_buffers(self.workload.model, self._buffers)

    def _compare_with_baseline(self, loss: torch.Tensor) -> dict[str, Difference]:
        differences = {"loss": compare_tensors(loss, self._loss)}
        parameters = _trainable(self.workload.model)
        for name in self._gradients.keys() | parameters.keys():
            parameter = parameters.get(name)
            gradient = None if parameter is None else parameter.grad
            differences[f"gradient of {name}"] = compare_tensors(
                gradient, self._gradients.get(name)
            )
        return differences

    def _judge(
        self,
        arm: str,
        quantity: str,
        differences: Mapping[str, Difference],
        allowed: float,
        reason: str,
    ) -> Parity:
        problems = [
            f"{name} {difference.problem}"
            for name, difference in sorted(differences.items())
            if difference.problem is not None
        ]
        if quantity == "gradients" and not any(
            gradient is not None for gradient in self._gradients.values()
        ):
            problems.append("no parameter has a gradient in the baseline")
        worst_name, max_abs, max_rel = _worst(differences, model_dtype(self.workload.model))
        if not math.isfinite(max_rel):
            problems.append(f"{worst_name} is not zero as in the baseline")
        passed = not problems and max_rel <= allowed
        if problems:
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            reason = problems[0] + more
        elif not passed:
            reason = f"{worst_name} differs by more than allowed ({reason})"
        bitwise = not problems and all(difference.bitwise for difference in differences.values())
        return Parity(
            arm=arm,
            baseline=self.baseline,
            quantity=quantity,
            passed=passed,
            bitwise=bitwise,
            max_abs_difference=None if problems else max_abs,
            max_rel_difference=None if problems else max_rel,
            tolerance=allowed,
            reason=reason,
            worst=None if bitwise or problems else worst_name.removeprefix("gradient of "),
            num_compared=len(differences),
        )


def compare_tensors(value: torch.Tensor | None, reference: torch.Tensor | None) -> Difference:
    """Compare two tensors of any device in slices; the reference is moved to the value's device.

    Missing, of another shape, or not finite on either side is a problem, never a small difference.
    """
    if value is None or reference is None:
        if value is None and reference is None:
            return Difference()
        return Difference(
            bitwise=False,
            problem="is missing" if value is None else "is missing in the baseline",
        )
    if value.shape != reference.shape:
        return Difference(
            bitwise=False,
            problem=f"has shape {tuple(value.shape)} against {tuple(reference.shape)}",
        )
    max_abs = max_reference = 0.0
    bitwise = value.dtype == reference.dtype
    value, reference = value.detach().reshape(-1), reference.detach().reshape(-1)
    for start in range(0, value.numel(), _SLICE_NUMEL):
        ours = value[start : start + _SLICE_NUMEL]
        theirs = reference[start : start + _SLICE_NUMEL].to(value.device)
        bitwise = bitwise and _same_bits(ours, theirs)
        wide = torch.float64 if ours.dtype == torch.float64 else torch.float32
        ours, theirs = ours.to(wide), theirs.to(wide)
        for name, part in (("", ours), (" in the baseline", theirs)):
            if not bool(torch.isfinite(part).all()):
                kind = "NaN" if bool(torch.isnan(part).any()) else "infinite"
                return Difference(bitwise=False, problem=f"is {kind}{name}")
        if not bitwise:
            max_abs = max(max_abs, float((ours - theirs).abs().max()))
        max_reference = max(max_reference, float(theirs.abs().max()))
    return Difference(max_abs=max_abs, max_reference=max_reference, bitwise=bitwise)


def repeat_tolerance(dtype: torch.dtype) -> float:
    """How far a pass may be from its own repetition: some hundred roundings of the dtype."""
    return min(_REPEAT_CEILING, _REPEAT_ROUNDINGS * torch.finfo(dtype).eps)


def model_dtype(model: nn.Module) -> torch.dtype:
    """The coarsest floating dtype among the parameters: it sets the rounding."""
    dtypes = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    return max(dtypes, key=lambda dtype: torch.finfo(dtype).eps, default=torch.float32)


def _worst(differences: Mapping[str, Difference], dtype: torch.dtype) -> tuple[str, float, float]:
    """Name and relative difference of the worst tensor, and the largest absolute difference.

    A gradient that is zero but for rounding (the bias of a key projection) would differ by its
    own size; so a tensor's scale is never taken below one rounding step of the largest gradient.
    """
    largest = max((difference.max_reference for difference in differences.values()), default=0.0)
    floor = largest * torch.finfo(dtype).eps
    worst_name, worst_rel = "", -1.0
    for name, difference in sorted(differences.items()):
        scale = max(difference.max_reference, floor)
        if difference.max_abs == 0.0:
            relative = 0.0
        else:
            relative = difference.max_abs / scale if scale else math.inf
        if relative > worst_rel:
            worst_name, worst_rel = name, relative
    max_abs = max((difference.max_abs for difference in differences.values()), default=0.0)
    return worst_name, max_abs, max(worst_rel, 0.0)


def _same_bits(value: torch.Tensor, reference: torch.Tensor) -> bool:
    if value.dtype != reference.dtype:
        return False
    return torch.equal(
        value.contiguous().view(torch.uint8), reference.contiguous().view(torch.uint8)
    )


def _trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in model.named_parameters() if p.requires_grad}
