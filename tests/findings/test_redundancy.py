"""Work done again on equal inputs is found as one chain, and what only looks like it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from harness.audit.emulated.emulated_audit import EmulatedAudit, audit_callable

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.record.audit_report import AuditReport

LAYERS = 3
Forward = "Callable[[Layer, torch.Tensor, torch.Tensor], torch.Tensor]"


class Layer(nn.Module):
    """A linear layer, and what the test computes beside it from `data`."""

    def __init__(self, beside: Any) -> None:
        super().__init__()
        self.lin = nn.Linear(8, 8)
        self.beside = beside
        self.register_buffer("table", torch.arange(8.0) / 8)
        self.host_table = torch.ones(8)

    def forward(self, h: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
        return h + self.lin(h) * self.beside(self, h, data)


def audit(
    beside: Any,
    *,
    mode: Any = "values",
    checkpointed: bool = False,
    passes: int = 1,
    steps: int = 1,
) -> AuditReport:
    """The report of a small model whose layers call `beside(layer, hidden, data)`."""

    def build() -> Callable[[], None]:
        layers = nn.ModuleList([Layer(beside) for _ in range(LAYERS)]).to("cuda")
        x = torch.randn(4, 8, device="cuda")
        data = torch.tensor([1, 1, 0, 1], device="cuda")

        def step() -> None:
            for _ in range(passes):
                h = x
                for layer in layers:
                    h = (
                        checkpoint(layer, h, data, use_reentrant=False)
                        if checkpointed
                        else layer(h, data)
                    )
                h.mean().backward()

        return step

    return audit_callable(build, build=True, mode=mode, steps=steps)


def mask_of(layer: Layer, h: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    return (data.cumsum(0) * 2).float()[:, None]


def mask_in_place(layer: Layer, h: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    mask = torch.zeros(4, 1, device=h.device)
    mask.add_(data[:, None])
    mask.masked_fill_(data[:, None] == 0, 7.0)
    return mask


def rotary(layer: Layer, h: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    return (layer.table * data[:, None]).cos()


def read(layer: Layer, h: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    return h * data.sum().item()


def built_on_host(layer: Layer, h: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    return torch.tensor([0.5, 1.5] * 4, device=h.device)


@pytest.mark.parametrize("mode", ["values", "shapes"])
@pytest.mark.parametrize(
    ("beside", "ops", "syncs"),
    [
        (mask_of, ("aten::cumsum", "aten::mul", "aten::_to_copy"), 0),
        (
            mask_in_place,
            ("aten::zeros", "aten::add_", "aten::eq", "aten::masked_fill_"),
            0,
        ),
        (rotary, ("aten::mul", "aten::cos"), 0),
        (read, ("aten::sum", "aten::_local_scalar_dense"), LAYERS - 1),
        (built_on_host, ("aten::_to_copy",), LAYERS - 1),
    ],
)
def test_a_chain_built_again_in_each_layer_is_one_group(
    beside: Any, ops: tuple[str, ...], syncs: int, mode: Any
) -> None:
    (group,) = audit(beside, mode=mode).redundant_groups

    assert group.size == LAYERS
    assert group.ops == ops
    assert group.syncs == syncs
    assert group.module == "Layer"
    first_line = beside.__code__.co_firstlineno
    assert first_line < int(group.first.rpartition(":")[2]) < first_line + 5


def depends_on_hidden(layer: Layer, h: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    return (h.relu().cumsum(0) * 2).cos()


def dropout(layer: Layer, h: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    return F.dropout(torch.ones(4, 8, device=h.device), 0.5) * 3.0


def noise(layer: Layer, h: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    return (torch.rand(4, 8, device=h.device) * 2).cos()


def other_constant(layer: Layer, h: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    layer.calls = getattr(layer, "calls", float(id(layer))) + 1.0  # no two calls use one number
    return (data * layer.calls).float()[:, None]


def written_between(layer: Layer, h: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    data.add_(1)
    return (data * 2).float()[:, None]


def views(layer: Layer, h: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    return data.view(2, 2).flatten().unsqueeze(1)[:4].expand(4, 8)


def fills(layer: Layer, h: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(h) + h


def weights_alone(layer: Layer, h: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        layer.lin.bias.fill_(1.0)  # equal content in each layer, yet trained apart
    return (layer.lin.bias * 2).cos()


@pytest.mark.parametrize("mode", ["values", "shapes"])
@pytest.mark.parametrize(
    "beside",
    [
        depends_on_hidden, dropout, noise, other_constant, written_between, views, fills,
        weights_alone,
    ],
)  # fmt: skip
def test_what_only_looks_alike_is_no_group(beside: Any, mode: Any) -> None:
    report = audit(beside, mode=mode)

    assert report.redundant_groups == ()


def test_recompute_of_a_layer_is_intended() -> None:
    assert audit(depends_on_hidden, checkpointed=True).redundant_groups == ()
    assert audit(dropout, checkpointed=True).redundant_groups == ()


def test_metadata_made_again_in_recompute_counts_with_the_rest() -> None:
    (group,) = audit(read, checkpointed=True).redundant_groups

    assert group.size == 2 * LAYERS
    assert group.syncs == 2 * LAYERS - 1


def test_micro_batches_are_not_compared_with_each_other() -> None:
    assert audit(depends_on_hidden, passes=2).redundant_groups == ()
    (group,) = audit(read, passes=2).redundant_groups
    assert group.size == LAYERS
    assert group.syncs == 2 * (LAYERS - 1)


def test_figures_are_per_step() -> None:
    one, three = (audit(read, steps=steps).redundant_groups[0] for steps in (1, 3))

    assert (three.size, three.syncs, three.bytes_per_step) == (
        one.size,
        one.syncs,
        one.bytes_per_step,
    )


def test_each_lasting_host_tensor_is_a_group_over_the_steps() -> None:
    report = audit(lambda layer, h, data: layer.host_table.to(h.device))

    assert [group.size for group in report.redundant_groups] == [2] * LAYERS
    assert all(group.across_steps and group.syncs == 1 for group in report.redundant_groups)
    assert {group.module for group in report.redundant_groups} == {"Layer"}


def test_a_batch_moved_in_each_step_is_none() -> None:
    host_batch = torch.randn(4, 8)

    def build() -> Callable[[], None]:
        model = nn.Linear(8, 8).to("cuda")
        return lambda: model(host_batch.to("cuda")).mean().backward()

    assert audit_callable(build, build=True).redundant_groups == ()


def test_constants_computed_in_each_step_are_told_apart() -> None:
    def build() -> Callable[[], None]:
        layer = Layer(rotary).to("cuda")
        x = torch.randn(4, 8, device="cuda")
        return lambda: layer(x, torch.arange(4, device="cuda")).mean().backward()

    report = audit_callable(build, build=True)

    assert report.redundant_groups == ()
    (group,) = report.repeated_across_steps
    assert group.across_steps
    assert group.ops == ("aten::arange", "aten::mul", "aten::cos")


def test_the_batch_is_no_constant() -> None:
    assert audit(mask_of).repeated_across_steps == ()


def test_watching_for_repeats_changes_no_count() -> None:
    reports = []
    for redundancy in (True, False):
        with EmulatedAudit(boundary="explicit", redundancy=redundancy) as running:
            data = torch.tensor([1, 0, 2], device="cuda")
            data.nonzero()
            data.nonzero()
        reports.append(running.report)
    assert reports[0].syncs_per_step == reports[1].syncs_per_step == 3
    assert len(reports[0].redundant_groups) == 1
    assert reports[1].redundant_groups == ()


def test_pieces_of_one_tensor_share_its_value() -> None:
    with EmulatedAudit(boundary="explicit") as running:
        whole = torch.arange(6, device="cuda")
        for piece in (*whole.split(2), *whole.split(2)):
            piece[0].item()
    (group,) = running.report.redundant_groups
    assert (group.size, group.syncs) == (2, 3)


def test_what_the_last_step_left_is_still_known_where_memory_is_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def build() -> Callable[[], None]:
        layers = nn.ModuleList([Layer(mask_of) for _ in range(LAYERS)]).to("cuda")
        x = torch.randn(4, 8, device="cuda")
        # Computed in one step and used in the next: data, whose recompute nobody intends.
        carried = [torch.tensor([1, 1, 0, 1], device="cuda")]

        def step() -> None:
            h = x
            for layer in layers:
                h = checkpoint(layer, h, carried[0], use_reentrant=False)
            carried[0] = carried[0].flip(0)
            h.mean().backward()

        return step

    known = audit_callable(build, build=True, steps=4)
    monkeypatch.setattr("harness.audit.emulated.value_numbers._MOST_STATES", 0)
    short = audit_callable(build, build=True, steps=4)
    assert known.redundant_groups
    assert short.redundant_groups == known.redundant_groups
    assert short.repeated_across_steps == known.repeated_across_steps
