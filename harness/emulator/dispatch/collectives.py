"""Collectives on device tensors: who receives what, and whether the host waits.

NCCL queues its work on a stream and nobody waits, but for a barrier. Gloo moves device tensors
through the host. Where the data is not known, what was received is not known either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_leaves, tree_map_only

from harness.emulator.kernels.collective_kernels import Group
from harness.emulator.tensors.op_events import Wait
from harness.emulator.tensors.tensor import EmulatedTensor
from harness.record.sync_kinds import SyncKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Args = tuple[Any, ...]
Tensors = list[torch.Tensor]

_c10d: Any = torch._C._distributed_c10d
_WRITE_NOTHING = ("send", "barrier", "monitored_barrier_", "check_for_nan")
_BARRIERS = ("barrier", "monitored_barrier_")


class Collective:
    """One call of a `c10d` op with device tensors among its arguments."""

    def __init__(self, func: Any, args: Args, kwargs: dict[str, Any]) -> None:
        schema = func._schema
        names = [argument.name for argument in schema.arguments]
        self.args: dict[str, Any] = dict(zip(names, args, strict=False)) | kwargs
        self.name: str = schema.name.removeprefix("c10d::")
        self._num_returns = len(schema.returns)
        self._first = names[0]
        self._work: Any = None
        self.tensors = _device_tensors(self.args.values())
        self.written = (
            [] if self.name in _WRITE_NOTHING else _device_tensors([self.args[self._first]])
        )

    def run(self) -> None:
        """Exchange the data where all of it is known, else forget what is written."""
        known = all(tensor.known_value is not None for tensor in self.tensors)
        if known and self.name in _RUN:
            host = tree_map_only(EmulatedTensor, lambda t: t.host_value, self.args)
            with torch.no_grad():
                self._work = _RUN[self.name](Group(self.args["process_group"]), host)
        for tensor in self.written:
            tensor.allocation.version += 1
            tensor.allocation.known = tensor.allocation.known and known

    def waits(self) -> tuple[Wait, ...]:
        """How the host waits in it."""
        op = f"c10d::{self.name}"
        if self.name in _BARRIERS:
            return (Wait(op, SyncKind.EXPLICIT_SYNCHRONIZE, 1),)
        group = self.args.get("process_group")
        over_gloo = group is not None and Group(group).over_gloo
        return (Wait(op, SyncKind.D2H_COPY, 1),) if over_gloo else ()

    def result(self) -> Any:
        """What torch expects back: the tensors and a work that is done."""
        if not self._num_returns:
            return None
        first = self.args[self._first]
        if self._work is not None:
            return self._work.boxed()
        future: Any = torch.futures.Future()
        future.set_result(tree_leaves(first))
        work = _c10d._create_work_from_future(future).boxed()
        return (first, work) if self._num_returns > 1 else work


def _device_tensors(values: Any) -> list[EmulatedTensor]:
    return [leaf for leaf in tree_leaves(list(values)) if type(leaf) is EmulatedTensor]


def _op(args: dict[str, Any]) -> str:
    return str(dist.ReduceOp.RedOpType(args["reduce_op"].op()).name)


def _all_reduce(group: Group, args: dict[str, Any]) -> None:
    for tensor in args["tensors"]:
        tensor.copy_(group.reduce(tensor, _op(args)))


def _reduce(group: Group, args: dict[str, Any]) -> None:
    (tensor,) = args["tensors"]
    total = group.reduce(tensor, _op(args))
    if group.rank == args["root_rank"]:
        tensor.copy_(total)


def _broadcast(group: Group, args: dict[str, Any]) -> None:
    for tensor in args["tensors"]:
        group.broadcast(tensor, args["root_rank"])


def _all_gather(group: Group, args: dict[str, Any]) -> None:
    for out, tensor in zip(args["output_tensors"], args["input_tensors"], strict=True):
        for place, part in zip(out, group.gather(tensor), strict=True):
            place.copy_(part)


def _all_gather_coalesced(group: Group, args: dict[str, Any]) -> None:
    _all_gather(
        group, {"output_tensors": args["output_lists"], "input_tensors": args["input_list"]}
    )


def _all_gather_flat(group: Group, outs: Tensors, tensors: Tensors) -> None:
    for out, tensor in zip(outs, tensors, strict=True):
        out.view(-1).copy_(torch.cat([part.reshape(-1) for part in group.gather(tensor)]))


def _reduce_scatter_flat(group: Group, outs: Tensors, tensors: Tensors, op: str) -> None:
    for out, tensor in zip(outs, tensors, strict=True):
        mine = group.reduce(tensor.reshape(group.size, -1), op)[group.rank]
        out.copy_(mine.view(out.shape))


def _reduce_scatter(group: Group, args: dict[str, Any]) -> None:
    for out, parts in zip(args["output_tensors"], args["input_tensors"], strict=True):
        _reduce_scatter_flat(group, [out], [torch.stack(list(parts))], _op(args))


def _gather(group: Group, args: dict[str, Any]) -> None:
    (tensor,) = args["input_tensors"]
    parts = group.gather(tensor)
    for out in args["output_tensors"]:
        for place, part in zip(out, parts, strict=True):
            place.copy_(part)


def _scatter(group: Group, args: dict[str, Any]) -> None:
    (out,) = args["output_tensors"]
    parts = tree_leaves(args["input_tensors"])
    every = torch.stack(parts) if parts else out.new_empty((group.size, *out.shape))
    group.broadcast(every, args["root_rank"])
    out.copy_(every[group.rank])


def _all_to_all(group: Group, args: dict[str, Any]) -> None:
    group.exchange(args["input_tensors"], args["output_tensors"])


def _all_to_all_base(group: Group, args: dict[str, Any]) -> None:
    def parts(tensor: torch.Tensor, sizes: Sequence[int]) -> Tensors:
        return list(torch.split(tensor, list(sizes))) if sizes else list(tensor.chunk(group.size))

    group.exchange(
        parts(args["input"], args["input_split_sizes"]),
        parts(args["output"], args["output_split_sizes"]),
    )


def _send(group: Group, args: dict[str, Any]) -> Any:
    (tensor,) = args["tensors"]
    return group.send(tensor, args["dst"], args["tag"])


def _receive(group: Group, args: dict[str, Any]) -> None:
    for tensor in args["tensors"]:
        group.receive(tensor, args.get("src"), args["tag"])


_RUN: dict[str, Callable[[Group, dict[str, Any]], Any]] = {
    "allreduce_": _all_reduce,
    "allreduce_coalesced_": _all_reduce,
    "reduce_": _reduce,
    "broadcast_": _broadcast,
    "allgather_": _all_gather,
    "allgather_coalesced_": _all_gather_coalesced,
    "_allgather_base_": lambda group, args: _all_gather_flat(
        group, [args["output_tensor"]], [args["input_tensor"]]
    ),
    "allgather_into_tensor_coalesced_": lambda group, args: _all_gather_flat(
        group, args["outputs"], args["inputs"]
    ),
    "_reduce_scatter_base_": lambda group, args: _reduce_scatter_flat(
        group, [args["output_tensor"]], [args["input_tensor"]], _op(args)
    ),
    "reduce_scatter_tensor_coalesced_": lambda group, args: _reduce_scatter_flat(
        group, args["outputs"], args["inputs"], _op(args)
    ),
    "reduce_scatter_": _reduce_scatter,
    "gather_": _gather,
    "scatter_": _scatter,
    "alltoall_": _all_to_all,
    "alltoall_base_": _all_to_all_base,
    "send": _send,
    "recv_": _receive,
    "recv_any_source_": _receive,
    "barrier": lambda group, args: group.wait(),
    "monitored_barrier_": lambda group, args: group.wait(),
}
"""`c10d` op -> what exchanges host tensors as it does; it returns a work that is not done yet, if
there is one."""
