"""Collectives on host tensors, among the processes of a group, over the group's gloo backend.

Data moves as bytes, since gloo does not know every dtype, and a reduction gathers and then adds in
the order of the ranks, so that all ranks hold the same bits. A group of one talks to nobody.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_CUDA = torch.device("cuda")
_c10d: Any = dist.distributed_c10d
_REDUCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "SUM": lambda stacked: stacked.sum(0, dtype=stacked.dtype),
    # The factor of a premultiplied sum cannot be read back from torch; it scales values only.
    "PREMUL_SUM": lambda stacked: stacked.sum(0, dtype=stacked.dtype),
    "AVG": lambda stacked: (stacked.sum(0) / len(stacked)).to(stacked.dtype),
    "PRODUCT": lambda stacked: stacked.prod(0, dtype=stacked.dtype),
    "MIN": lambda stacked: stacked.amin(0),
    "MAX": lambda stacked: stacked.amax(0),
    "BAND": lambda stacked: functools.reduce(torch.bitwise_and, stacked),
    "BOR": lambda stacked: functools.reduce(torch.bitwise_or, stacked),
    "BXOR": lambda stacked: functools.reduce(torch.bitwise_xor, stacked),
}


class Group:
    """The processes that take part, and how to reach them."""

    def __init__(self, group: Any) -> None:
        """`group` is a process group, its boxed form or its name."""
        if isinstance(group, str):
            group = _c10d._resolve_process_group(group)
        elif not isinstance(group, dist.ProcessGroup):
            group = dist.ProcessGroup.unbox(group)
        self.size: int = group.size()
        self.rank: int = group.rank()
        self._backend: Any = group._get_backend(_CUDA)
        self.over_gloo = type(self._backend) is dist.ProcessGroupGloo
        """Whether the program asked for gloo itself; what stands for NCCL is another class."""

    def wait(self) -> None:
        """Until all processes are here."""
        if self.size > 1:
            self._backend.barrier().wait()

    def gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """What each rank gives, by rank; all give the same shape."""
        if self.size == 1:
            return [tensor]
        data = _bytes(tensor)
        parts = [torch.empty_like(data) for _ in range(self.size)]
        self._backend.allgather([parts], [data]).wait()
        return [part.view(tensor.dtype).view(tensor.shape) for part in parts]

    def reduce(self, tensor: torch.Tensor, op: str) -> torch.Tensor:
        """The reduction over all ranks; `op` as in `ReduceOp`, in any case."""
        return _REDUCTIONS[op.upper()](torch.stack(self.gather(tensor)))

    def exchange(self, parts: Sequence[torch.Tensor], into: Sequence[torch.Tensor]) -> None:
        """Part i goes to rank i; `into[i]` takes what rank i sends."""
        if self.size == 1:
            into[0].copy_(parts[0])
            return
        sent, got = [_bytes(part) for part in parts], [_bytes(place).clone() for place in into]
        lengths = [len(data) for data in got], [len(data) for data in sent]
        received = torch.empty(sum(lengths[0]), dtype=torch.uint8)
        self._backend.alltoall_base(received, torch.cat(sent), *lengths).wait()
        for place, data in zip(into, torch.split(received, lengths[0]), strict=True):
            _fill(place, data)

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        """`tensor` becomes what rank `root` has."""
        if self.size > 1:
            options = dist.BroadcastOptions()
            options.rootRank = root
            data = _bytes(tensor).clone()
            self._backend.broadcast([data], options).wait()
            _fill(tensor, data)

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> Any:
        """To another rank, which receives it; the work to wait for, as both may send first."""
        return self._backend.send([_bytes(tensor).clone()], to, tag)

    def receive(self, tensor: torch.Tensor, source: int | None, tag: int) -> None:
        """From rank `source`, or from any where it is `None`."""
        data = _bytes(tensor).clone()
        if source is None:
            self._backend.recv_anysource([data], tag).wait()
        else:
            self._backend.recv([data], source, tag).wait()
        _fill(tensor, data)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _fill(tensor: torch.Tensor, data: torch.Tensor) -> None:
    tensor.detach().copy_(data.view(tensor.dtype).view(tensor.shape))


def _all_reduce(x: torch.Tensor, op: str, group: Any) -> torch.Tensor:
    return Group(group).reduce(x, op).clone()


def _all_reduce_(x: torch.Tensor, op: str, group: Any) -> torch.Tensor:
    return x.copy_(Group(group).reduce(x, op))


def _all_gather(x: torch.Tensor, size: int, group: Any) -> torch.Tensor:
    return torch.cat(Group(group).gather(x if x.dim() else x[None]))


def _reduce_scatter(x: torch.Tensor, op: str, size: int, group: Any) -> torch.Tensor:
    members = Group(group)
    return members.reduce(x, op).chunk(members.size)[members.rank].clone()


def _all_to_all(
    x: torch.Tensor, received: Sequence[int], sent: Sequence[int], group: Any
) -> torch.Tensor:
    out = x.new_empty((sum(received), *x.shape[1:]))
    Group(group).exchange(torch.split(x, list(sent)), torch.split(out, list(received)))
    return out


def _broadcast(x: torch.Tensor, root: int, group: Any) -> torch.Tensor:
    return _broadcast_(x.clone(), root, group)


def _broadcast_(x: torch.Tensor, root: int, group: Any) -> torch.Tensor:
    Group(group).broadcast(x, root)
    return x


def _each(kernel: Callable[..., torch.Tensor]) -> Callable[..., list[torch.Tensor]]:
    def run(tensors: Sequence[torch.Tensor], *rest: Any) -> list[torch.Tensor]:
        return [kernel(tensor, *rest) for tensor in tensors]

    return run


def _into(kernel: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def run(*args: Any, out: torch.Tensor) -> torch.Tensor:
        return out.copy_(kernel(*args))

    return run


_FUNCTIONAL: dict[str, Callable[..., Any]] = {
    "all_reduce": _all_reduce,
    "all_reduce_": _all_reduce_,
    "all_reduce_coalesced": _each(_all_reduce),
    "all_reduce_coalesced_": _each(_all_reduce_),
    "all_gather_into_tensor": _all_gather,
    "all_gather_into_tensor_out": _into(_all_gather),
    "all_gather_into_tensor_coalesced": _each(_all_gather),
    "reduce_scatter_tensor": _reduce_scatter,
    "reduce_scatter_tensor_out": _into(_reduce_scatter),
    "reduce_scatter_tensor_coalesced": _each(_reduce_scatter),
    "all_to_all_single": _all_to_all,
    "broadcast": _broadcast,
    "broadcast_": _broadcast_,
    "wait_tensor": lambda x: x,
}
KERNELS = {f"_c10d_functional::{name}": kernel for name, kernel in _FUNCTIONAL.items()}
"""Functional collectives -> what computes them on host tensors."""
