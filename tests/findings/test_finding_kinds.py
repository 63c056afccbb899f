"""Each kind on a place that has it, with the code to write instead, and on a look-alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from harness.audit.emulated.emulated_audit import EmulatedAudit
from harness.findings.finding_catalogue import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.record.finding import Finding

Step = "Callable[[], object]"


def findings_of(make: Callable[[], Any]) -> tuple[Finding, ...]:
    """Findings of the second call of the step that `make` gives."""
    with EmulatedAudit(boundary="explicit", skip=1, steps=1) as running:
        step = make()
        for _ in range(2):
            returned = step()
            running.mark_step()
            del returned
    return running.report.findings


def data(*size: int) -> torch.Tensor:
    return torch.randn(*size, device="cuda")


def polling_loop(bad: bool) -> Any:
    experts = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)]).to("cuda")
    h, picked = data(6, 4), torch.tensor([0, 1, 2, 0, 1, 2], device="cuda")

    def polls() -> torch.Tensor:
        out = torch.zeros_like(h)
        for number, expert in enumerate(experts):
            rows = torch.where(picked == number)[0]
            out[rows] = expert(h[rows])
        return out

    def groups() -> torch.Tensor:
        out = h[torch.sort(picked, stable=True).indices]
        return torch.cat([expert(part) for expert, part in zip(experts, out.split(2), strict=True)])

    return polls if bad else groups


def rebuilt_metadata(bad: bool) -> Any:
    layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)]).to("cuda")
    lengths, h = torch.tensor([2, 4], device="cuda"), data(6, 4)

    class Layer(nn.Module):
        def forward(self, h: torch.Tensor, ends: torch.Tensor | None) -> torch.Tensor:
            if ends is None:
                ends = lengths.cumsum(0) * 2
            return h + ends[0]

    layer = Layer()

    def step() -> torch.Tensor:
        ends = None if bad else lengths.cumsum(0) * 2
        x = h
        for linear in layers:
            x = layer(linear(x), ends)
        return x

    return step


def serialized_copy(bad: bool) -> Any:
    batch = torch.randn(6, 4)
    pinned = batch.pin_memory()
    return lambda: batch.to("cuda") if bad else pinned.to("cuda", non_blocking=True)


def scalar_read(bad: bool) -> Any:
    loss = data(1).sum()
    total = torch.zeros((), device="cuda")

    def reads() -> float:
        running = 0.0
        running += loss.item()
        return running

    return reads if bad else lambda: total.add_(loss.detach())


def per_parameter(bad: bool) -> Any:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).to("cuda")

    def step() -> Any:
        model(data(2, 4)).sum().backward()
        if not bad:
            return torch.stack(torch._foreach_norm([p.grad for p in model.parameters()])).norm()
        total = 0.0
        for p in model.parameters():
            total += p.grad.norm().item() ** 2
        return total

    return step


def data_dependent_shape(bad: bool) -> Any:
    counts, rows = torch.tensor([2, 4], device="cuda"), torch.arange(2, device="cuda")

    def step() -> torch.Tensor:
        if bad:
            return rows.repeat_interleave(counts)
        return rows.repeat_interleave(counts, output_size=6)

    return step


def tensor_index(bad: bool) -> Any:
    table, position = data(6, 4), torch.tensor(2, device="cuda")

    def step() -> torch.Tensor:
        if bad:
            row = table[position]
            return row * 2
        return table.index_select(0, position[None])[0]

    return step


def host_built_tensor(bad: bool) -> Any:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean = torch.ones(4)
            self.register_buffer("kept", torch.ones(4))

        def forward(self, h: torch.Tensor) -> torch.Tensor:
            if bad:
                return h - self.mean.to(h.device)
            return h - self.kept

    model, h = Scale().to("cuda"), data(6, 4)
    return lambda: model(h)


def validation_check(bad: bool) -> Any:
    logits = data(6, 4)

    def step() -> torch.Tensor:
        if bad:
            return torch.distributions.Categorical(logits=logits).sample()
        return torch.distributions.Categorical(logits=logits, validate_args=False).sample()

    return step


def error_check(bad: bool) -> Any:
    matrix = torch.eye(4, device="cuda")

    def step() -> torch.Tensor:
        if bad:
            root = torch.linalg.cholesky(matrix)
            return root * 2
        return torch.linalg.cholesky_ex(matrix)[0]

    return step


def explicit_synchronize(bad: bool) -> Any:
    return lambda: torch.cuda.synchronize() if bad else torch.cuda.current_stream()


def allocator(bad: bool) -> Any:
    return lambda: torch.cuda.empty_cache() if bad else torch.cuda.memory_allocated()


def optimizer_step_on_device(bad: bool) -> Any:
    model = nn.Linear(4, 4).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

    def step() -> None:
        model(data(2, 4)).sum().backward()
        optimizer.step()
        for state in optimizer.state.values():
            if bad and not state["step"].is_cuda:
                state["step"] = state["step"].to("cuda", non_blocking=True)

    return step


def pageable_async_copy(bad: bool) -> Any:
    batch = torch.randn(6, 4)
    pinned = batch.pin_memory()
    return lambda: (batch if bad else pinned).to("cuda", non_blocking=True)


def unneeded_copy(bad: bool) -> Any:
    counts = torch.arange(4, device="cuda")

    def drops() -> torch.Tensor:
        on_host = counts.cpu()  # noqa: F841  # unused, as the kind says
        return counts * 2

    return drops if bad else lambda: counts * 2


CASES: list[tuple[str, Any, tuple[str, ...]]] = [
    (
        "polling-loop",
        polling_loop,
        ("expert_of_row, order = torch.sort(picked.flatten(), stable=True)",),
    ),
    (
        "rebuilt-metadata",
        rebuilt_metadata,
        ("h = layer(h, ends)  # pass it on; recompute gets it, too",),
    ),
    ("serialized-copy", serialized_copy, ("DataLoader(..., pin_memory=True)",)),
    ("scalar-read", scalar_read, ("running += loss.detach()",)),
    (
        "scalar-read",
        per_parameter,
        ("total = torch.linalg.vector_norm(torch.stack(norms))  # stays on the device",),
    ),
    (
        "data-dependent-shape",
        data_dependent_shape,
        ("return rows.repeat_interleave(counts, output_size=total)",),
    ),
    ("tensor-index", tensor_index, ("row = table.index_select(0, position[None])[0]",)),
    (
        "host-built-tensor",
        host_built_tensor,
        ('self.register_buffer("mean", mean, persistent=False)  # __init__',),
    ),
    (
        "validation-check",
        validation_check,
        ("torch.distributions.Distribution.set_default_validate_args(False)",),
    ),
    ("validation-check", error_check, ("root = torch.linalg.cholesky_ex(matrix)[0]",)),
    ("explicit-synchronize", explicit_synchronize, ()),
    ("allocator", allocator, ()),
    (
        "optimizer-step-on-device",
        optimizer_step_on_device,
        ('    state["step"] = state["step"].cpu()  # once, after loading',),
    ),
    ("pageable-async-copy", pageable_async_copy, ()),
    ("unneeded-copy", unneeded_copy, ("# delete: on_host = counts.cpu()",)),
]


@pytest.mark.parametrize(
    ("kind", "make", "instead"), CASES, ids=lambda value: getattr(value, "__name__", None)
)
def test_a_place_that_has_it_is_found_and_told_what_to_write(
    kind: str, make: Any, instead: tuple[str, ...]
) -> None:
    found = findings_of(lambda: make(True))

    assert {finding.kind for finding in found} == {kind}
    (finding,) = found
    assert set(instead) <= set(finding.instead)
    assert finding.why.endswith(".")
    assert finding.unless.endswith(".")
    assert finding.file == __file__


@pytest.mark.parametrize(
    ("kind", "make", "instead"), CASES, ids=lambda value: getattr(value, "__name__", None)
)
def test_a_look_alike_has_no_finding(kind: str, make: Any, instead: tuple[str, ...]) -> None:
    assert findings_of(lambda: make(False)) == ()


def test_every_kind_is_tried_here_or_in_the_trace_tests() -> None:
    assert set(KINDS) - {kind for kind, _, _ in CASES} == {"launch-bound"}


def test_a_branch_becomes_a_choice_on_the_device() -> None:
    def make() -> Any:
        h = data(4)

        def step() -> torch.Tensor:
            out = h
            if torch.isinf(out).any():
                out = out.clamp(-1.0, 1.0)
            return out

        return step

    (finding,) = findings_of(make)
    assert finding.instead[0] == (
        "out = torch.where(torch.isinf(out).any(), out.clamp(-1.0, 1.0), out)"
        "  # both sides are computed"
    )


def test_slice_bounds_are_read_together() -> None:
    def make() -> Any:
        h, cu = data(6, 4), torch.tensor([0, 2, 6], device="cuda")

        def step() -> list[torch.Tensor]:
            parts = []
            for i in range(1, 3):
                part = h[cu[i - 1] : cu[i]]
                parts.append(part)
            return parts

        return step

    found = findings_of(make)
    assert all(
        finding.instead
        == ("bounds = cu.tolist()  # once per step", "part = h[bounds[i - 1]:bounds[i]]")
        for finding in found
    )
    assert sum(finding.syncs_per_step for finding in found) == 4


def test_a_copy_whose_result_is_used_is_needed() -> None:
    def make() -> Any:
        counts = torch.arange(4, device="cuda")

        def step() -> list[int]:
            on_host = counts.cpu()
            return [int(c) for c in on_host]

        return step

    assert [finding.kind for finding in findings_of(make)] == ["serialized-copy"]


def test_one_line_is_one_finding_in_all_phases() -> None:
    from torch.utils.checkpoint import checkpoint

    def make() -> Any:
        model, h = nn.Linear(4, 4).to("cuda"), data(2, 4)

        def layer(x: torch.Tensor) -> torch.Tensor:
            y = model(x)
            return (y * y.detach().sum().item()).exp()

        return lambda: checkpoint(layer, h, use_reentrant=False).sum().backward()

    (finding,) = findings_of(make)
    assert finding.phases == ("forward", "recompute")
    assert finding.syncs_per_step == 2
