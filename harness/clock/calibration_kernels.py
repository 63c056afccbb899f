"""Measures what a profile holds: classes of ops at several sizes, and the host's time a call."""

from __future__ import annotations

import statistics
import time
from datetime import UTC, datetime
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from harness.clock.calibration import Profile
from harness.clock.op_work import Work, work_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_REPEATS = 7
_COPIES = 32
_VIEW_SHARE = 0.25
"""Host time of a view over that of another op."""
_LEAST_S = 0.004
"""Shortest time, in seconds, for which calls are repeated and timed together."""


class WorkCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Collects the work of every op, and whether the autograd engine called it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.works: list[tuple[Work, bool]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        in_autograd = torch._C._current_graph_task_id() != -1 and not torch.is_grad_enabled()
        self.works.append((work_of(func, args, kwargs or {}, result), in_autograd))
        return result


def calibrate(device: torch.device, key: str, name: str) -> Profile:
    """Measure `device` for the profile `key`. Takes well under a minute on two cores."""
    host_ns = _host_times(device)
    link, pageable = _link_rates(device)
    return Profile(
        key=key,
        device=name,
        created_utc=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        torch=str(torch.__version__),
        num_threads=torch.get_num_threads(),
        host_ns=host_ns,
        curves={kind: _curve(ops, device) for kind, ops in _classes(device)},
        link_gb_per_s=link,
        pageable_gb_per_s=pageable,
    )


def _classes(device: torch.device) -> Iterator[tuple[str, list[Callable[[], Any]]]]:
    """Class -> calls of rising size."""
    on_gpu = device.type == "cuda"
    dtype = torch.bfloat16 if on_gpu else torch.float32
    scale = 8 if on_gpu else 1

    def rand(*size: int) -> torch.Tensor:
        return torch.rand(size, device=device).to(dtype)

    def of(make: Callable[[int], Callable[[], Any]], sizes: tuple[int, ...]) -> list[Any]:
        return [_in_turn([make(size * scale) for _ in range(_COPIES)]) for size in sizes]

    rows = (4, 16, 64, 256, 1024, 4096)

    def pair(make: Callable[[torch.Tensor], Any]) -> Callable[[int], Callable[[], Any]]:
        def made(size: int) -> Callable[[], Any]:
            x = rand(size, 256)
            return lambda: make(x)

        return made

    def product(size: int) -> Callable[[], Any]:
        a, b = rand(size, 128), rand(128, 128)
        return lambda: a @ b

    def gather(size: int) -> Callable[[], Any]:
        table, index = rand(4096, 64), torch.randint(4096, (size,), device=device)
        return lambda: table[index]

    def scatter(size: int) -> Callable[[], Any]:
        table, index, source = (
            rand(4096, 64), torch.randint(4096, (size,), device=device), rand(size, 64),
        )  # fmt: skip
        return lambda: table.index_add_(0, index, source)

    def attention(size: int) -> Callable[[], Any]:
        q, k, v = (rand(1, 4, size, 32) for _ in range(3))
        return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)

    yield "gemm", of(product, rows)
    yield "elementwise", of(pair(lambda x: x * x), rows)
    yield "transpose", of(pair(lambda x: x.t().contiguous()), rows)
    yield "reduction", of(pair(lambda x: x.mean(-1)), rows)
    yield "softmax", of(pair(lambda x: x.softmax(-1)), rows)
    yield "gather", of(gather, (16, 64, 256, 1024, 4096))
    yield "scatter", of(scatter, (16, 64, 256, 1024, 4096))
    yield "sort", of(pair(lambda x: x.sort(-1)), (4, 16, 64, 256))
    yield "attention_forward", of(attention, (16, 64, 256, 512))
    yield "attention_backward", of(_attention_backward(rand), (16, 64, 256, 512))


def _in_turn(calls: list[Callable[[], Any]]) -> Callable[[], Any]:
    """Calls one after the other, so that no call finds its own data in the nearest cache."""
    turn = cycle(calls)
    return lambda: next(turn)()


def _attention_backward(rand: Callable[..., torch.Tensor]) -> Callable[[int], Callable[[], Any]]:
    def made(size: int) -> Callable[[], Any]:
        q, k, v = (rand(1, 4, size, 32).requires_grad_() for _ in range(3))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        grad = torch.ones_like(out)
        return lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)

    return made


def _curve(ops: list[Callable[[], Any]], device: torch.device) -> tuple[tuple[float, float], ...]:
    """(amount, nanoseconds) of each call, its share of host time taken off, made to rise."""
    points: list[tuple[float, float]] = []
    for op in ops:
        with WorkCounter() as counter:
            op()
        work = max((work for work, _ in counter.works), key=lambda w: w.flops or w.num_bytes)
        amount = float(work.flops or work.num_bytes)
        kernel_ns = max(_time_ns(op, device) - _bare_call_ns(device), 50.0)
        if not points or amount > points[-1][0]:
            points.append((amount, max(kernel_ns, points[-1][1] if points else 0.0)))
    return tuple(points)


def _host_times(device: torch.device) -> dict[str, int]:
    """Host costs from a decoder so narrow that its kernels take next to nothing.

    The Python around its ops is that of a transformers model, as it is in the steps to be modelled.
    """
    model, ids = _narrow_decoder(device)

    def forward() -> torch.Tensor:
        loss: torch.Tensor = model(input_ids=ids, labels=ids, use_cache=False).loss
        return loss

    with WorkCounter() as counter:
        loss = forward()
        num_forward = len(counter.works)
        torch.autograd.backward(loss)
    eager = [work for work, inside in counter.works if not inside]
    inside = [work for work, inside in counter.works if inside]
    forward_ns = _time_ns(forward, device)
    both_ns = _time_ns(lambda: torch.autograd.backward(forward()), device)
    again_ns = forward_ns * _weight(eager[num_forward:]) / _weight(eager[:num_forward])
    return {
        **_split(eager[:num_forward], forward_ns, "eager_ns", "view_ns"),
        **_split(inside, both_ns - forward_ns - again_ns, "autograd_ns", "autograd_view_ns"),
        "kernel_ns": 0 if device.type == "cpu" else 2_000,
    }


def _narrow_decoder(device: torch.device) -> tuple[nn.Module, torch.Tensor]:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=16,
        num_attention_heads=4, num_key_value_heads=2, attn_implementation="sdpa",
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).to(device)
    # As most training does; its Python is part of what the host pays.
    # The library renamed the switch; the older name warns where the newer one exists.
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
    enable({"use_reentrant": False})
    model.train()
    return model, torch.randint(64, (1, 16), device=device)


def _split(works: list[Work], total_ns: float, op_name: str, view_name: str) -> dict[str, int]:
    """Share a total among ops and views."""
    own = max(total_ns / _weight(works), 100.0)
    return {op_name: round(own), view_name: round(own * _VIEW_SHARE)}


def _weight(works: list[Work]) -> float:
    """How many ops these count for."""
    return max(sum(_VIEW_SHARE if work.kind == "view" else 1.0 for work in works), 1.0)


def _bare_call_ns(device: torch.device) -> float:
    """The smallest op there is: what every timed call pays besides its own work."""
    x = torch.zeros(1, device=device)
    return _time_ns(lambda: x + x, device) if device.type == "cpu" else 0.0


def _link_rates(device: torch.device) -> tuple[float | None, float | None]:
    """Pinned and pageable rate of the link to a GPU; nothing for a CPU."""
    if device.type != "cuda":
        return None, None
    rates = []
    for pinned in (True, False):
        host = torch.empty(1 << 28, dtype=torch.uint8)
        host = host.pin_memory() if pinned else host
        target = torch.empty(1 << 28, dtype=torch.uint8, device=device)
        copy_ns = _time_ns(partial(target.copy_, host, non_blocking=True), device)
        rates.append((1 << 28) / copy_ns)
    return rates[0], rates[1]


def _time_ns(call: Callable[[], Any], device: torch.device) -> float:
    """Nanoseconds of one call: the median of several stretches."""

    now_ns = clock_of(device)

    def stretch(count: int) -> float:
        _wait(device)
        began = now_ns()
        for _ in range(count):
            call()
        _wait(device)
        return (now_ns() - began) / count

    first = stretch(1)
    count = max(1, round(_LEAST_S * 1e9 / max(stretch(1), first / 50, 1.0)))
    return statistics.median(stretch(count) for _ in range(_REPEATS))


def clock_of(device: torch.device) -> Callable[[], int]:
    """The clock to measure `device` with, in nanoseconds.

    A CPU that computes on one thread is measured in processor time, so that other work on the
    machine does not count.
    """
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    return time.process_time_ns if alone else time.perf_counter_ns


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
