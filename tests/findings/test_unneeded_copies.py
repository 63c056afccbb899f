"""Copies whose result nothing reads, across functions; and the many ways in which one is read."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

from harness.audit.emulated.emulated_audit import audit_callable

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.record.audit_report import AuditReport

Statistics = dict[str, Any]


class Layer(nn.Module):
    """A layer that copies its input to the host, for statistics that its caller may want."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.last: Statistics = {}

    def statistics(self, x: torch.Tensor) -> Statistics:
        return {"input": x.detach().cpu(), "shape": x.shape}

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Statistics]:
        statistics = self.statistics(x)
        return self.linear(x), statistics


def audit(use: Callable[[Layer, Statistics], Any]) -> AuditReport:
    """A step that hands what `Layer` copied to `use`."""

    def build() -> Callable[[], Any]:
        layer, x = Layer().cuda(), torch.randn(3, 4, device="cuda")

        def step() -> Any:
            y, statistics = layer(x)
            y.sum().backward()
            return use(layer, statistics)

        return step

    return audit_callable(build, build=True, steps=2, target="statistics")


def kinds(report: AuditReport) -> list[str]:
    return [finding.kind for finding in report.findings]


@pytest.mark.parametrize(
    "use",
    [lambda layer, found: None, lambda layer, found: len(found["input"].shape) and None],
    ids=["dropped by the caller", "asked for its shape alone"],
)
def test_a_copy_that_its_caller_drops_is_unneeded(use: Any) -> None:
    report = audit(use)
    (finding,) = report.findings

    assert (finding.kind, finding.confidence) == ("unneeded-copy", "high")
    assert finding.function == "Layer.statistics"
    assert finding.code == "return {'input': x.detach().cpu(), 'shape': x.shape}"
    (site,) = report.sites
    assert site.unread_per_step == site.count_per_step == 1


def keep_the_last(layer: Layer, found: Statistics) -> None:
    layer.last = found


LOG: list[Statistics] = []
READS: dict[str, Any] = {
    "returned to the caller of the step": lambda layer, found: found,
    "logged": lambda layer, found: LOG.append(found),
    "stored on the module": keep_the_last,
    "stored as a view": lambda layer, found: setattr(layer, "last", found["input"][0]),
    "formatted": lambda layer, found: f"{found['input']}" and None,
    "read as a list": lambda layer, found: found["input"].tolist() and None,
    "read by numpy": lambda layer, found: np.asarray(found["input"]).any() and None,
    "read through .data": lambda layer, found: found["input"].data.numpy().any() and None,
    "computed with": lambda layer, found: (found["input"] * 2) is None,
    "iterated over": lambda layer, found: list(found["input"]) and None,
    "pickled": lambda layer, found: pickle.dumps(found["input"]) and None,
    "copied": lambda layer, found: copy.deepcopy(found["input"]) is None,
    "taken as a number": lambda layer, found: float(found["input"][0, 0]) and None,
}


@pytest.mark.parametrize("use", READS.values(), ids=READS)
def test_a_copy_that_is_read_or_kept_is_not_unneeded(use: Any) -> None:
    LOG.clear()
    report = audit(use)
    assert kinds(report) == ["serialized-copy"]
    assert report.sites[0].unread_per_step == 0


class Kept(torch.autograd.Function):
    """Holds its input on the host for backward, with nothing else that reads it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.on_host = x.detach().cpu()
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * ctx.on_host.cuda()


def in_backward() -> Any:
    weight = torch.randn(3, 4, device="cuda", requires_grad=True)
    return lambda: Kept.apply(weight).sum().backward()  # type: ignore[no-untyped-call]


def offloaded() -> Any:
    weight = torch.randn(3, 4, device="cuda", requires_grad=True)

    def step() -> None:
        with torch.autograd.graph.save_on_cpu():
            loss = (weight * weight).sum()
        loss.backward()

    return step


def device_read_as_list() -> Any:
    values = torch.randn(3, 4, device="cuda")
    return lambda: values.tolist() and None


@pytest.mark.parametrize("build", [in_backward, offloaded, device_read_as_list])
def test_a_copy_for_backward_or_one_that_torch_reads_itself_is_needed(build: Any) -> None:
    report = audit_callable(build, build=True)
    assert report.sites
    assert "unneeded-copy" not in kinds(report)


def upload(*names: str) -> AuditReport:
    """A step that uploads a batch of two tensors and computes with those of these names."""

    def build() -> Any:
        batch = {"x": torch.randn(3, 4), "ids": torch.arange(4)}
        weight = torch.ones(4, device="cuda")

        def to_device() -> dict[str, torch.Tensor]:
            return {name: tensor.to("cuda") for name, tensor in batch.items()}

        def step() -> None:
            moved = to_device()
            for name in names:
                weight.mul(moved[name]).sum()

        return step

    return audit_callable(build, build=True)


def test_an_upload_that_no_op_reads_is_unneeded() -> None:
    assert kinds(upload()) == ["unneeded-copy"]


def test_uploads_of_which_some_are_read_stay_what_they_are_and_tell_of_the_others() -> None:
    report = upload("x")
    (finding,) = report.findings
    assert finding.kind == "serialized-copy"
    assert "1 of 2" in finding.why
    (finding,) = upload("x", "ids").findings
    assert finding.kind == "serialized-copy"
    assert "1 of 2" not in finding.why


def test_methods_of_tensors_are_as_before_afterwards() -> None:
    before = {name: getattr(torch.Tensor, name) for name in ("tolist", "numpy", "__repr__")}
    audit(lambda layer, found: None)
    for name, method in before.items():
        assert getattr(torch.Tensor, name) is method
