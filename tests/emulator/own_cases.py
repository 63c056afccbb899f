"""Small steps with known answers: what each waits for on CUDA.

Used on the emulated device, and by the GPU test to compare the rules with a real device. A case
builds its step on `device` and names the syncs of one step in steady state.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class OwnCase:
    name: str
    syncs: int
    build: Callable[[str], Callable[[], Any]]
    kind: str | None = None
    """Kind of its one site, where it has one."""
    phase: str = "forward"


def _rand(device: str, *shape: int, grad: bool = False) -> torch.Tensor:
    return torch.rand(*shape, device=device, requires_grad=grad)


def _op(
    call: Callable[..., Any], *inputs: Callable[[str], torch.Tensor]
) -> Callable[[str], Callable[[], Any]]:
    """A step that calls one op on inputs made once."""

    def build(device: str) -> Callable[[], Any]:
        made = [make(device) for make in inputs]
        return lambda: call(*made)

    return build


def _mask_assign(device: str, value: Any) -> Callable[[], Any]:
    x = _rand(device, 4, 3)

    def step() -> None:
        x[x > 0.5] = value

    return step


def _put(device: str, index: Any, value: Any) -> Callable[[], Any]:
    x = _rand(device, 4, 3)
    place = torch.tensor(index, device=device) if isinstance(index, list) else index

    def step() -> None:
        x[place] = value

    return step


def _device_scalar(device: str) -> torch.Tensor:
    return torch.full((), 2.0, device=device)


def _checkpointed_read(device: str, reentrant: bool) -> Callable[[], Any]:
    layer = nn.Linear(4, 4, device=device)
    x = _rand(device, 2, 4, grad=True)

    def block(h: torch.Tensor) -> torch.Tensor:
        h = layer(h)
        if h.abs().max() > 1e9:
            h = h / 2
        return layer(h)

    def step() -> None:
        checkpoint(block, x, use_reentrant=reentrant).sum().backward()

    return step


def _through(
    call: Callable[[torch.Tensor], torch.Tensor], *shape: int
) -> Callable[[str], Callable[[], Any]]:
    """A step that goes forward and backward through `call`."""

    def build(device: str) -> Callable[[], Any]:
        x = torch.rand(shape, device=device).requires_grad_()
        return lambda: call(x).sum().backward()

    return build


class _Halve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 0.5

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        if grads[0].abs().max() > 1e9:
            return grads[0]
        return grads[0] * 0.5


def _custom_backward(device: str) -> Callable[[], Any]:
    x = _rand(device, 3, grad=True)
    return lambda: _Halve.apply(x).sum().backward()


def _scaler(device: str) -> Callable[[], Any]:
    layer = nn.Linear(3, 3, device=device)
    optimizer = torch.optim.AdamW(layer.parameters(), fused=False)
    scaler = torch.amp.GradScaler("cuda")
    x = _rand(device, 2, 3)

    def step() -> None:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = layer(x).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return step


def _adamw(device: str, **options: Any) -> Callable[[], Any]:
    layer = nn.Linear(3, 3, device=device)
    optimizer = torch.optim.AdamW(layer.parameters(), **options)
    x = _rand(device, 2, 3)

    def step() -> None:
        layer(x).sum().backward()
        nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def _adamw_with_moved_steps(device: str) -> Callable[[], Any]:
    """As after a resume that moves the whole optimizer state; foreach is CUDA's default."""
    layer = nn.Linear(3, 3, device=device)
    optimizer = torch.optim.AdamW(layer.parameters())
    x = _rand(device, 2, 3)
    layer(x).sum().backward()
    optimizer.step()
    for state in optimizer.state.values():
        state["step"] = state["step"].to(device)

    def step() -> None:
        layer(x).sum().backward()
        optimizer.step()

    return step


def _anomaly(device: str) -> Callable[[], Any]:
    layer = nn.Linear(3, 3, device=device)
    x = _rand(device, 2, 3)

    def step() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.autograd.detect_anomaly():
                layer(x).sum().backward()

    return step


def _finite_loss(device: str) -> Callable[[], Any]:
    layer = nn.Linear(32, 32, device=device)
    x = _rand(device, 32, 32)

    def step() -> None:
        loss = layer(x).pow(2).mean()
        assert torch.isfinite(loss)
        if torch.isnan(loss) or torch.isinf(loss):
            raise ValueError

    return step


def _copy_pinned_cast(device: str) -> Callable[[], Any]:
    host = torch.rand(8).pin_memory()
    return lambda: host.to(device, torch.float16, non_blocking=True)


def _copy_out(device: str, pinned: bool) -> Callable[[], Any]:
    host = torch.empty(5)
    if pinned:
        host = host.pin_memory()
    x = _rand(device, 5)
    return lambda: host.copy_(x, non_blocking=True)


def _copy_in(device: str, pinned: bool, non_blocking: bool) -> Callable[[], Any]:
    host = torch.rand(8)
    if pinned:
        host = host.pin_memory()
    return lambda: host.to(device, non_blocking=non_blocking)


def _vector(device: str) -> torch.Tensor:
    return torch.rand(5, device=device)


def _numbers(device: str) -> torch.Tensor:
    return torch.arange(4, device=device)


def _integer(device: str) -> torch.Tensor:
    return torch.tensor(2, device=device)


OWN_CASES = (
    # Reads
    OwnCase("item", 1, _op(lambda x: x.item(), _device_scalar), "scalar_read"),
    OwnCase("float", 1, _op(float, _device_scalar), "scalar_read"),
    OwnCase("branch", 1, _op(bool, _device_scalar), "bool_branch"),
    OwnCase("format", 1, _op(lambda x: f"{x:.3f}", _device_scalar), "scalar_read"),
    OwnCase("tolist", 1, _op(lambda x: x.tolist(), _vector), "d2h_copy"),
    OwnCase("cpu", 1, _op(lambda x: x.cpu(), _vector), "d2h_copy"),
    OwnCase("python_max", 4, _op(max, _vector), "bool_branch"),
    OwnCase("python_sum", 0, _op(sum, _vector)),
    OwnCase("equal", 1, _op(torch.equal, _vector, _vector), "bool_branch"),
    OwnCase("contains", 1, _op(lambda x: 2 in x, _numbers), "bool_branch"),
    OwnCase(
        "alpha", 1, _op(lambda x, a: torch.add(x, x, alpha=a), _vector, _device_scalar),
        "implicit_scalar_arg",
    ),
    OwnCase("zero_dim_operand", 0, _op(torch.mul, _vector, _device_scalar)),
    OwnCase("slice_bounds", 2, _op(lambda x, n: x[n[1] : n[3]], _vector, _numbers),
            "slice_bound_read"),
    OwnCase("zero_dim_index", 1, _op(lambda x, i: x[i], _vector, _integer), "scalar_tensor_index"),
    OwnCase("is_nonzero", 1, _op(lambda x: torch.is_nonzero(x), _device_scalar), "bool_branch"),
    OwnCase("index_fill", 1, _op(lambda x, i, t: x.index_fill(0, i[None], t), _vector, _integer,
                                 _device_scalar), "implicit_scalar_arg"),
    OwnCase("linspace", 2, _op(lambda t: torch.linspace(t, t, 4, device=t.device), _device_scalar),
            "implicit_scalar_arg"),
    OwnCase("finite_loss", 3, _finite_loss, "bool_branch"),
    OwnCase("one_dim_index", 0, _op(lambda x, i: x[i[None]], _vector, _integer)),
    # Sizes that depend on data
    OwnCase("nonzero", 1, _op(torch.nonzero, _vector), "dynamic_output_size"),
    OwnCase("nonzero_static", 0, _op(lambda x: torch.nonzero_static(x, size=5), _vector)),
    OwnCase("masked_select", 1, _op(lambda x: x.masked_select(x > 0.5), _vector),
            "bool_mask_index"),
    OwnCase("mask_number", 0, lambda d: _mask_assign(d, 0.0)),
    OwnCase("mask_device_scalar", 1, lambda d: _mask_assign(d, _device_scalar(d)),
            "bool_mask_index"),
    OwnCase("index_number", 1, lambda d: _put(d, [0, 1], 5.0), "pageable_h2d"),
    OwnCase("one_element_number", 1, lambda d: _put(d, (0, 0), 5.0), "pageable_h2d"),
    OwnCase("row_number", 0, lambda d: _put(d, 0, 5.0)),
    OwnCase("where_number", 0, _op(lambda x: torch.where(x > 0.5, x, 0.0), _vector)),
    OwnCase("bincount", 2, _op(lambda x: x.bincount(minlength=9), _numbers), "dynamic_output_size"),
    OwnCase("histc_range", 0, _op(lambda x: x.histc(4, 0, 1), _vector)),
    OwnCase("histc_open", 2, _op(lambda x: x.histc(4), _vector), "dynamic_output_size"),
    OwnCase("one_hot_sized", 0, _op(lambda x: F.one_hot(x, 4), _numbers)),
    OwnCase("one_hot_open", 1, _op(lambda x: F.one_hot(x), _numbers), "dynamic_output_size"),
    OwnCase("isin_few", 0, _op(torch.isin, _numbers, _numbers)),
    OwnCase("isin_many", 2, _op(lambda x: torch.isin(x, torch.arange(99, device=x.device)),
                                _numbers), "dynamic_output_size"),
    OwnCase("mask_one_element_host_tensor", 0, lambda d: _mask_assign(d, torch.tensor([5.0]))),
    OwnCase("host_index", 1, _op(lambda x: x[torch.tensor([0, 2])], _vector), "pageable_h2d"),
    OwnCase("list_index", 1, _op(lambda x: x[[0, 2]], _vector), "pageable_h2d"),
    OwnCase("host_mask", 0, _op(lambda x: x[torch.arange(5) > 2], _vector)),
    OwnCase("where_host_operand", 1, _op(lambda x: torch.where(x > 0, x, torch.tensor(0.0)),
                                         _vector), "pageable_h2d"),
    OwnCase("cholesky_ex", 0, _op(lambda x: torch.linalg.cholesky_ex(x.diag()), _vector)),
    OwnCase("cholesky_ex_checked", 1,
            _op(lambda x: torch.linalg.cholesky_ex(x.diag(), check_errors=True), _vector),
            "error_check_read"),
    OwnCase("pinv", 2, _op(lambda x: torch.linalg.pinv(x.diag()), _vector), "error_check_read"),
    OwnCase("svd_of_nothing", 0, _op(lambda x: torch.linalg.svdvals(x[:0].diag()), _vector)),
    OwnCase("cholesky_inverse", 1, _op(lambda x: x.diag().add(1).cholesky_inverse(), _vector),
            "error_check_read"),
    OwnCase("istft", 1, _op(lambda s: torch.istft(s, 16, window=torch.ones(16, device=s.device)),
                            lambda d: torch.rand(9, 17, dtype=torch.complex64, device=d)),
            "argument_validation"),
    OwnCase("multinomial", 0, _op(lambda x: x.multinomial(1), _vector)),
    OwnCase("topk_sort", 0, _op(lambda x: (x.topk(3), x.sort(), x.median()), _vector)),
    OwnCase("assert_async", 0, _op(torch._assert_async, _device_scalar)),
    # Backward
    OwnCase("checkpoint", 2, lambda d: _checkpointed_read(d, False), "bool_branch", "both"),
    OwnCase("checkpoint_reentrant", 2, lambda d: _checkpointed_read(d, True), "bool_branch",
            "both"),
    OwnCase("custom_backward", 1, _custom_backward, "bool_branch", "backward"),
    OwnCase("anomaly", 4, _anomaly, "error_check_read", "backward"),
    OwnCase("prod", 1, _through(lambda x: x.prod(), 3), "dynamic_output_size", "backward"),
    OwnCase("prod_along", 1, _through(lambda x: torch.prod(x, 1), 2, 3), "bool_branch", "backward"),
    OwnCase("prod_along_one", 1, _through(lambda x: x.prod(dim=0), 1), "bool_branch", "backward"),
    OwnCase("prod_of_scalar", 0, _through(lambda x: x.prod())),
    OwnCase("cumprod", 1, _through(lambda x: x.cumprod(-1), 2, 3), "bool_branch", "backward"),
    OwnCase("cumprod_of_one", 0, _through(lambda x: torch.cumprod(x, 0), 1, 3)),
    OwnCase("prod_checkpointed", 2, _through(
        lambda x: checkpoint(lambda h: h.prod(0) * h.cumprod(0), x, use_reentrant=False), 3
    ), "bool_branch", "backward"),
    OwnCase("prod_without_grad", 0, _op(lambda x: (x.prod(), x.cumprod(0)), _vector)),
    # Optimizers
    OwnCase("adamw_moved_steps", 4, _adamw_with_moved_steps, "optimizer_step_counter", "optimizer"),
    OwnCase("grad_scaler", 1, _scaler, "found_inf_read"),
    OwnCase("adamw_loop", 0, lambda d: _adamw(d, foreach=False)),
    OwnCase("adamw_foreach", 0, lambda d: _adamw(d, foreach=True)),
    OwnCase("adamw_fused", 0, lambda d: _adamw(d, fused=True)),
    # Copies
    OwnCase("copy_pageable", 1, lambda d: _copy_in(d, False, False), "pageable_h2d"),
    OwnCase("copy_pinned_blocking", 1, lambda d: _copy_in(d, True, False), "blocking_pinned_h2d"),
    OwnCase("copy_pinned", 0, lambda d: _copy_in(d, True, True)),
    OwnCase("copy_pinned_cast", 0, _copy_pinned_cast),
    OwnCase("copy_out_pageable", 1, lambda d: _copy_out(d, False), "d2h_copy"),
    OwnCase("copy_out_pinned", 0, lambda d: _copy_out(d, True)),
    OwnCase("synchronize", 1, lambda _: torch.cuda.synchronize, "explicit_synchronize"),
)  # fmt: skip
