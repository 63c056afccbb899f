"""Each wait is laid at the right door: line, library, module, phase, kind, intention."""

from __future__ import annotations

import gc
import linecache
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from harness.audit.emulated.emulated_audit import audit_callable
from harness.audit.emulated.intended import allow_sync
from harness.emulator.tensors.tensor import EmulatedTensor
from harness.errors import UsageError, WorkloadError
from harness.findings.module_paths import common_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.record.audit_report import AuditReport, Site


def audit(build: Callable[[], Callable[[], Any]], **options: Any) -> AuditReport:
    return audit_callable(build, build=True, mode="values", **options)


def only(report: AuditReport) -> Site:
    (site,) = report.sites
    return site


class Keep(nn.Module):
    def forward(self, h: torch.Tensor) -> torch.Tensor:
        kept = h[h > 0]
        return h + kept.sum()


class Stack(nn.Module):
    def __init__(self, num_layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(4, 4), Keep()) for _ in range(num_layers)
        )

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            h = layer(h)
        return h


def build_stack(run: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> Callable[[], Any]:
    model, x = Stack(3).cuda(), torch.rand(2, 4, device="cuda", requires_grad=True)
    return lambda: run(model, x).sum().backward()


def test_backward_names_the_forward_line_and_module() -> None:
    report = audit(lambda: build_stack(lambda model, x: model(x)))

    forward, backward = sorted(report.sites, key=lambda site: site.phase, reverse=True)
    assert (forward.phase, backward.phase) == ("forward", "backward")
    assert forward.code == backward.code == "kept = h[h > 0]"
    assert forward.function == backward.function == "Keep.forward"
    assert forward.line == backward.line
    assert forward.module == backward.module == "layers.*.1"
    assert (forward.op, backward.op) == ("aten::index", "aten::index_put")
    assert forward.count_per_step == backward.count_per_step == 3


@pytest.mark.parametrize("reentrant", [True, False])
def test_lines_survive_checkpoint_recompute(reentrant: bool) -> None:
    def run(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = checkpoint(model, x, use_reentrant=reentrant)
        return result

    report = audit(lambda: build_stack(run))

    assert {site.phase for site in report.sites} == {"forward", "recompute", "backward"}
    assert {site.code for site in report.sites} == {"kept = h[h > 0]"}
    assert {site.module for site in report.sites} == {"layers.*.1"}
    assert {site.phase: site.count_per_step for site in report.sites}["backward"] == 3


def test_a_wait_in_a_library_names_the_user_s_line_and_the_library_s() -> None:
    def build() -> Callable[[], Any]:
        probs = torch.tensor([0.5, 0.5], device="cuda")
        return lambda: torch.distributions.Categorical(probs=probs)

    site = only(audit(build))
    assert site.kind == "argument_validation"
    assert site.code == "return lambda: torch.distributions.Categorical(probs=probs)"
    assert site.library is not None
    assert "distribution.py" in site.library


def test_double_backward_is_not_taken_for_recompute() -> None:
    def build() -> Callable[[], Any]:
        x = torch.rand(5, device="cuda", requires_grad=True)

        def step() -> None:
            y = x[x > 0.5]
            (grad,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
            grad.sum().backward()

        return step

    assert {site.phase for site in audit(build).sites} == {"forward", "backward"}


def test_the_data_loader_is_its_own_phase() -> None:
    def collate(rows: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack(rows).to("cuda")

    def build() -> Callable[[], Any]:
        loader = torch.utils.data.DataLoader(
            list(torch.ones(4, 2)),
            batch_size=2,
            collate_fn=collate,  # type: ignore[arg-type]
        )
        return lambda: [batch + 1 for batch in loader]

    site = only(audit(build))
    assert (site.phase, site.kind, site.count_per_step) == ("data", "pageable_h2d", 2)
    assert site.code == 'return torch.stack(rows).to("cuda")'
    assert site.bytes_per_call == 16


def test_the_optimizer_is_its_own_phase() -> None:
    def build() -> Callable[[], Any]:
        p = nn.Parameter(torch.rand(3, 3, device="cuda"))
        optimizer = torch.optim.Adafactor([p])

        def step() -> None:
            p.sum().backward()
            optimizer.step()

        return step

    assert {site.phase for site in audit(build).sites} == {"optimizer"}


def test_polling_reading_per_parameter_and_rebuilding_are_told_apart() -> None:
    class Experts(nn.Module):
        def forward(self, h: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            index = mask.flatten().ne(0).nonzero()
            expert_of = h.argmax(-1)
            for expert in range(3):
                if (expert_of == expert).any():
                    h = h + 1
            return h.flatten()[index[0]].sum() + h

    def build() -> Callable[[], Any]:
        layers = nn.ModuleList(Experts() for _ in range(2))
        mask = torch.ones(4, 3, device="cuda")
        h = torch.rand(4, 3, device="cuda")
        weights = [nn.Parameter(torch.rand(2, device="cuda")) for _ in range(4)]

        def step() -> None:
            x = h
            for layer in layers:
                x = layer(x, mask)
            for param in weights:
                param.norm().item()

        return step

    kinds = {site.kind: site.count_per_step for site in audit(build).sites}
    assert kinds == {"expert_poll": 6, "per_layer_rebuild": 2, "per_param_scalar_read": 4}


def test_reads_in_another_loop_beside_that_over_experts_poll_nothing() -> None:
    class Model(nn.Module):
        def forward(self, h: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            for _layer in range(2):
                h = h / lengths.max().item()
            for expert in range(3):
                if (h.argmax(-1) == expert).any():
                    h = h + 1
            return h

    def build() -> Callable[[], Any]:
        model = Model()
        h, lengths = torch.rand(4, 3, device="cuda"), torch.ones(4, device="cuda")

        def step() -> None:
            hits = 0.0
            for labels in model(h, lengths).argmax(-1).split(2):
                top5 = h.topk(2).indices
                hits += (top5 == labels[0]).sum().item()
            for _expert in range(1):
                h.sum().item()

        return step

    kinds = {(site.kind, site.code): site.count_per_step for site in audit(build).sites}
    assert kinds == {
        ("scalar_read", "h = h / lengths.max().item()"): 2,
        ("expert_poll", "if (h.argmax(-1) == expert).any():"): 3,
        ("scalar_read", "hits += (top5 == labels[0]).sum().item()"): 2,
        ("scalar_read", "h.sum().item()"): 1,
    }


def test_intended_waits_are_listed_apart() -> None:
    def build() -> Callable[[], Any]:
        x = torch.rand(1, device="cuda")

        def step() -> None:
            with allow_sync("logged every step on purpose"):
                x.item()
            float(x)

        return step

    report = audit(build)
    assert report.syncs_per_step == 1
    assert only(report).code == "float(x)"
    (intended,) = report.intended
    assert (intended.code, intended.intended) == ("x.item()", "logged every step on purpose")
    with pytest.raises(UsageError, match="reason"), allow_sync(" "):
        pass


def test_counts_are_averages_over_the_steps_after_warm_up() -> None:
    def build() -> Callable[[], Any]:
        x = torch.rand(1, device="cuda")
        calls = iter(range(100))
        return lambda: x.item() if next(calls) % 2 else None

    assert audit(build, steps=4, warmup=1).syncs_per_step == 0.5
    assert audit(build, steps=1, warmup=1).syncs_per_step == 1
    assert audit(build, steps=1, warmup=0).syncs_per_step == 0


def test_a_copy_that_cannot_be_asynchronous_is_a_finding_but_no_sync() -> None:
    host = torch.ones(4)
    report = audit(lambda: lambda: host.to("cuda", non_blocking=True))
    site = only(report)
    assert (site.kind, site.syncs_per_call, report.syncs_per_step) == (
        "pageable_non_blocking",
        0,
        0,
    )
    (copy,) = report.copies
    assert (copy.direction, copy.memory, copy.blocking, copy.bytes_per_step) == (
        "h2d", "pageable", False, 16,
    )  # fmt: skip


def test_a_step_that_raises_is_the_workload_s_error() -> None:
    def build() -> Callable[[], Any]:
        return lambda: torch.ones(2, device="cuda") @ torch.ones(3, device="cuda")

    with pytest.raises(WorkloadError, match="RuntimeError"):
        audit(build)
    assert not torch.cuda.is_available() or torch.version.cuda


def test_many_audits_leave_nothing_behind() -> None:
    def once() -> None:
        audit(lambda: build_stack(lambda model, x: model(x)))

    def ours() -> int:
        gc.collect()
        return sum(1 for o in gc.get_objects() if type(o) is EmulatedTensor)

    once()
    before = ours()
    hooks = len(nn.modules.module._global_forward_hooks)
    for _ in range(10):
        once()
    assert ours() <= before
    assert len(nn.modules.module._global_forward_hooks) == hooks
    assert linecache.getline(__file__, 1)


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["model.layers.0.mlp", "model.layers.11.mlp"], "model.layers.*.mlp"),
        (["model.layers.0.mlp"], "model.layers.0.mlp"),
        (["a.0.b.1", "a.2.b.1"], "a.*.b.1"),
        (["encoder", "decoder"], None),
        (["a.0", "a"], None),
        ([], None),
    ],
)
def test_module_paths_are_joined(paths: list[str], expected: str | None) -> None:
    assert common_path(paths) == expected
