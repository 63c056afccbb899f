"""Shapes only: the same layouts and waits as with values, with stated choices for the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from harness.emulator.device import EmulatedDevice
from harness.emulator.kernels.shapes import NoKernelError
from harness.emulator.tensors.choices import Choices
from harness.emulator.tensors.tensor import EmulatedTensor

if TYPE_CHECKING:
    from collections.abc import Callable

BIG = 1 << 22
"""Elements of a tensor that no shapes-only device keeps values of."""

OPS: dict[str, Callable[[torch.Tensor], Any]] = {
    "add": lambda x: x + 1,
    "transpose": lambda x: x.transpose(0, 1),
    "slice": lambda x: x[1:, ::2],
    "select": lambda x: x[0],
    "expand": lambda x: x[:1].expand(3, -1),
    "contiguous": lambda x: x.t().contiguous(),
    "view": lambda x: x.reshape(-1),
    "unflatten": lambda x: x.unsqueeze(1).flatten(0, 1),
    "matmul": lambda x: x @ x.t(),
    "sum": lambda x: x.sum(-1, keepdim=True),
    "softmax": lambda x: x.softmax(-1),
    "norm": lambda x: nn.functional.layer_norm(x, x.shape[-1:]),
    "topk": lambda x: x.topk(1, dim=-1),
    "max": lambda x: x.max(dim=0),
    "sort": lambda x: x.sort(dim=0),
    "argmax": lambda x: x.argmax(-1),
    "cat": lambda x: torch.cat([x, x[:1]]),
    "split": lambda x: x.split(1),
    "unbind": lambda x: x.unbind(1),
    "half": lambda x: x.to(torch.bfloat16),
    "gather": lambda x: x.gather(0, torch.zeros_like(x, dtype=torch.int64)),
    "in_place": lambda x: x.mul_(2),
    "dropout": lambda x: nn.functional.dropout(x, 0.5),
    "where": lambda x: torch.where(x > 0, x, 0.0),
}


def layouts(result: Any) -> list[tuple[Any, ...]]:
    flat = torch.utils._pytree.tree_leaves(result)
    return [(t.shape, t.stride(), t.storage_offset(), t.dtype) for t in flat]


@settings(max_examples=30, deadline=None)
@given(
    names=st.lists(st.sampled_from(sorted(OPS)), min_size=1, max_size=4),
    rows=st.integers(2, 5),
    columns=st.integers(200, 300),
)
def test_layouts_agree_with_real_values(names: list[str], rows: int, columns: int) -> None:
    def run(shapes_only: bool) -> list[list[tuple[Any, ...]]]:
        found = []
        with EmulatedDevice(shapes_only=shapes_only):
            x = torch.rand(rows, columns, device="cuda")
            for name in names:
                if x.dim() != 2 or min(x.shape) < 2:
                    break
                if name == "in_place" and 0 in x.stride():
                    break  # torch refuses to write to elements that share memory
                result = OPS[name](x)
                found.append(layouts(result))
                first = result if isinstance(result, torch.Tensor) else result[0]
                x = first if first.is_floating_point() else x
        return found

    assert run(shapes_only=True) == run(shapes_only=False)


def test_large_tensors_hold_no_data_and_small_integers_keep_theirs() -> None:
    with EmulatedDevice(shapes_only=True):
        ids = torch.arange(100, device="cuda")
        table = torch.rand(BIG, 8, device="cuda")
        rows = table[ids]
        assert isinstance(table, EmulatedTensor)
        assert isinstance(rows, EmulatedTensor)
        assert table.host_value is None
        assert rows.host_value is None
        assert torch.cuda.memory_allocated() > BIG * 32
        assert ids.cumsum(0)[-1].item() == 4950
        mask = ids[:, None] == torch.arange(BIG // 10, device="cuda")
        assert isinstance(mask, EmulatedTensor)
        assert mask.host_value is None


def test_unknown_data_written_over_known_data_is_unknown() -> None:
    with EmulatedDevice(shapes_only=True):
        counts = torch.full((4,), 7, device="cuda")
        view = counts[1:]
        assert view[0].item() == 7
        counts.copy_(torch.rand(1024, 1024, device="cuda")[0, :4])
        assert view[0].item() == 0  # the policy's integer, not a stale 7


def test_checks_pass_and_reads_are_finite() -> None:
    with EmulatedDevice(shapes_only=True):
        x = torch.rand(1024, 1024, device="cuda")
        assert not torch.isnan(x).any()
        assert torch.isfinite(x).all()
        assert x.mean().item() == 1.0
        assert torch.allclose(x, x)
        assert x.cpu().shape == x.shape


def test_overflow_is_never_found() -> None:
    with EmulatedDevice(shapes_only=True):
        layer = nn.Linear(512, 512, device="cuda")
        optimizer = torch.optim.AdamW(layer.parameters())
        scaler = torch.amp.GradScaler("cuda", growth_interval=1)
        before = scaler.get_scale()
        scaler.scale(layer(torch.rand(64, 512, device="cuda")).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == 2 * before
        assert optimizer.state


@pytest.mark.parametrize("routing", ["uniform", "skewed"])
def test_router_choices_are_distinct_repeatable_and_as_stated(routing: Any) -> None:
    def route() -> torch.Tensor:
        with EmulatedDevice(shapes_only=True, choices=Choices(seed=3, routing=routing)):
            logits = torch.rand(4096, 8, device="cuda")
            first, again = logits.topk(2).indices, logits.clone().topk(2).indices
            assert torch.equal(first, again)  # recompute draws what forward drew
            return first.cpu()

    picks = route()
    assert torch.equal(picks, route())
    assert (picks[:, 0] != picks[:, 1]).all()
    counts = picks.flatten().bincount(minlength=8)
    assert counts.sum() == 8192
    if routing == "uniform":
        assert counts.min() > 900
    else:
        assert counts.max() > 3 * counts.min()


def test_sizes_out_of_unknown_data_follow_the_policy() -> None:
    with EmulatedDevice(shapes_only=True):
        x = torch.rand(1000, 40, device="cuda")
        kept = x[x[:, 0] > 0.5]
        assert 400 < kept.shape[0] < 600
        assert kept.shape[1] == 40
        assert (x > 0.5).nonzero().shape[1] == 2


def test_an_op_without_a_fake_kernel_is_named_with_the_ways_out() -> None:
    @torch.library.custom_op("gapless_test::opaque", mutates_args=())
    def opaque(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    with EmulatedDevice(shapes_only=True):
        x = torch.rand(1024, 1024, device="cuda")
        with pytest.raises(NoKernelError, match=r"gapless_test::opaque.*register_fake.*--values"):
            opaque(x)

    @opaque.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    with EmulatedDevice(shapes_only=True):
        assert opaque(torch.rand(1024, 1024, device="cuda")).shape == (1024, 1024)


def test_a_full_size_layer_runs_without_memory() -> None:
    with EmulatedDevice("B200", shapes_only=True), torch.device("cuda"):
        layer = nn.TransformerEncoderLayer(8192, 64, 28672, dtype=torch.bfloat16, batch_first=True)
        layer(torch.rand(1, 8192, 8192, dtype=torch.bfloat16)).sum().backward()
        assert torch.cuda.max_memory_allocated() > 2 * 10**9
