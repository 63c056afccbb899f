"""Each kind on a place that has it, with the code to write instead, and on a look-alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from harness.audit.emulated.emulated_audit import EmulatedAudit, audit_callable
from harness.findings.finding_catalogue import KINDS, with_findings
from harness.record.audit_report import AuditReport, Site, from_json, to_json
from harness.record.sync_kinds import SyncKind
from harness.tables.finding_text import finding_lines

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


def site(**changed: Any) -> Site:
    fields = {
        "op": "aten::_local_scalar_dense", "kind": SyncKind.SCALAR_READ, "phase": "forward",
        "count_per_step": 1.0, "syncs_per_call": 1.0,
    }  # fmt: skip
    return Site(**(fields | changed))


def report(*sites: Site, **changed: Any) -> AuditReport:
    fields = {
        "source": "trace", "target": "t", "device": "GPU", "steps": 2,
        "syncs_per_step": float(len(sites)), "sites": sites,
    }  # fmt: skip
    return AuditReport(**(fields | changed))


def test_time_ranks_before_count() -> None:
    from harness.record.audit_report import AuditTimeline

    timed = report(
        site(module="often", count_per_step=100.0, exposed_ms=0.001),
        site(module="rarely", exposed_ms=5.0),
        timeline=AuditTimeline(span_ms=100.0),
    )
    first, second = with_findings(timed).findings
    assert (first.module, first.severity, first.ranked_by) == ("rarely", "high", "measured")
    assert (second.module, second.severity) == ("often", "low")


def test_without_time_the_count_decides_and_says_so() -> None:
    first, second = with_findings(
        report(site(module="a"), site(module="b", count_per_step=8.0))
    ).findings
    assert (first.module, first.severity, first.ranked_by) == ("b", "high", "count")
    assert second.severity == "low"


def test_no_wait_is_lost_or_counted_twice() -> None:
    found = with_findings(report(*(site(kind=kind, module=kind) for kind in SyncKind))).findings
    assert sum(finding.syncs_per_step for finding in found) == len(SyncKind)


def test_reads_that_repeat_within_one_call_of_a_trace_are_a_polling_loop() -> None:
    from harness.record.trace_details import PollingLoop, TraceDetails

    polling = PollingLoop(
        site=1, scope="Moe_0", calls=2, reads_per_call=8.0, max_reads_per_call=8, blocked_ms=1.0,
        exposed_ms=1.0,
    )  # fmt: skip
    traced = report(site(module="a"), site(module="b"), trace=TraceDetails(polling=(polling,)))

    assert {(f.kind, f.module) for f in with_findings(traced).findings} == {
        ("scalar-read", "a"),
        ("polling-loop", "b"),
    }


@pytest.mark.parametrize(
    ("on_compute", "exposed_ms", "kinds"),
    [(6, 20.0, ["serialized-copy"]), (0, 20.0, []), (6, 0.1, [])],
)
def test_copies_that_compute_stands_behind(
    on_compute: int, exposed_ms: float, kinds: list[str]
) -> None:
    from harness.record.audit_report import AuditTimeline
    from harness.record.trace_details import TraceDetails

    traced = report(
        timeline=AuditTimeline(span_ms=100.0),
        trace=TraceDetails(copies_on_compute_stream=on_compute, copy_exposed_ms=exposed_ms),
    )
    assert [finding.kind for finding in with_findings(traced).findings] == kinds


def layered(dims: int, mask_of: Callable[[torch.Tensor], torch.Tensor]) -> AuditReport:
    """A step of six layers that each make their own mask."""

    def build() -> Callable[[], None]:
        layers = nn.ModuleList([nn.Linear(dims, dims) for _ in range(6)]).to("cuda")
        x = data(4, dims)

        def step() -> None:
            h = x
            for layer in layers:
                h = layer(h) + mask_of(h)
            h.sum().backward()

        return step

    return audit_callable(build, build=True, steps=2, target="layers")


def test_work_done_again_without_a_wait_ranks_by_its_launches() -> None:
    def mask_of(h: torch.Tensor) -> torch.Tensor:
        return torch.triu(torch.full((4, h.shape[1]), -1.0, device=h.device), 1)

    (finding,) = [f for f in layered(8, mask_of).findings if f.kind == "rebuilt-metadata"]
    assert finding.launch_ms == pytest.approx(5 * 2 * 0.008)
    assert (finding.exposed_ms, finding.ranked_by) == (None, "modelled")
    assert finding.severity == "high"
    assert "by modelled launch time" in next(iter(finding_lines(finding, str)))


def test_a_recurrent_layer_of_torch_s_own_repeats_nothing() -> None:
    def build() -> Callable[[], None]:
        layer, x = nn.GRU(4, 4, batch_first=True).to("cuda"), data(2, 3, 4)

        def step() -> None:
            with torch.no_grad():
                for _ in range(5):
                    layer(x + torch.randn_like(x))

        return step

    report = audit_callable(build, build=True)
    assert report.redundant_groups == ()


def test_findings_survive_json() -> None:
    with EmulatedAudit(boundary="explicit") as running:
        F.relu(torch.ones(2, device="cuda")).sum().item()
    assert running.report.findings
    assert from_json(to_json(running.report)) == running.report
