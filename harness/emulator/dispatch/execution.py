"""Carries out one op on the emulated device: on host values, or by a remembered plan of shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from harness.emulator.kernels import host_kernels
from harness.emulator.kernels.shapes import NoKernelError, Plan, ShapeEngine
from harness.emulator.tensors.capacity import PRODUCTS, bytes_to_come
from harness.emulator.tensors.device_memory import MemoryBook, Storage
from harness.emulator.tensors.tensor import EmulatedTensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.emulator.tensors.capacity import ValuesLimit
    from harness.emulator.tensors.choices import Choices
    from harness.emulator.tensors.layouts import LayoutTable
    from harness.emulator.tensors.op_facts import OpFacts

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


class Executor:
    """Computes the results of ops as tensors of `device`.

    `run_op` is what the tensors call for an op where no dispatch mode is on. `values_limit` bounds
    the data of a device that keeps it.
    """

    def __init__(
        self,
        device: torch.device,
        run_op: Callable[[Any, Args, Kwargs], Any],
        memory: MemoryBook,
        layouts: LayoutTable,
        choices: Choices,
        shapes_only: bool,
        values_limit: ValuesLimit | None,
    ) -> None:
        self.shapes_only = shapes_only
        """Whether large floating tensors have no data; it becomes so beyond the limit."""
        self._device = device
        self._run_op = run_op
        self._memory = memory
        self._values_limit = None if shapes_only else values_limit
        self._engine = ShapeEngine(choices, layouts.of, layouts.number)
        self.signature = self._engine.signature

    def compute(
        self,
        facts: OpFacts,
        func: Any,
        args: Args,
        kwargs: Kwargs,
        tensors: list[EmulatedTensor],
        to_device: bool,
        wants_signature: bool,
    ) -> tuple[Any, tuple[object, ...]]:
        """The result of the op, and its signature where it is wanted or known anyway.

        `tensors` are the device tensors among the arguments, in their order; `to_device` says that
        the op makes a tensor on the device by its `device` argument.
        """
        if self._values_limit is not None:
            self._keep_within(self._values_limit, facts, args, kwargs, to_device)
        if not self.shapes_only:
            result = self._with_values(facts, func, args, kwargs, to_device)
            return result, (self.signature(facts, args, kwargs) if wants_signature else ())
        signature = self.signature(facts, args, kwargs)
        if facts.resizes_in_place:
            _follow_layout(args[0], self._engine.layout_after(facts, args, kwargs))
        plan = self._engine.plan(signature, facts, args, kwargs, tensors)
        if plan.with_values:
            result = self._with_values(facts, func, args, kwargs, to_device)
            return self._engine.forget_large(result), signature
        return self._from_plan(plan, tensors), signature

    def _keep_within(
        self, limit: ValuesLimit, facts: OpFacts, args: Args, kwargs: Kwargs, to_device: bool
    ) -> None:
        """Hold no more real data than allowed: go on with shapes only, or refuse."""
        needed = self._memory.live_bytes
        if to_device or facts.name in PRODUCTS:
            needed += bytes_to_come(facts.name, args, kwargs)
        if needed <= limit.num_bytes:
            return
        if limit.beyond == "fail":
            raise limit.refuse(needed)
        self.shapes_only = True
        self._values_limit = None

    # ---- with values

    def _with_values(
        self, facts: OpFacts, func: Any, args: Args, kwargs: Kwargs, to_device: bool
    ) -> Any:
        host_args = tuple([_unwrap(a) for a in args])
        host_kwargs = {name: _unwrap(a) for name, a in kwargs.items()}
        if to_device:
            host_kwargs["device"] = torch.device("cpu")
            host_kwargs.pop("pin_memory", None)
        kernels = host_kernels.KERNELS
        kernel = kernels.get(facts.name) or kernels.get(facts.full_name, func)
        try:
            result = kernel(*host_args, **host_kwargs)
        except NotImplementedError as error:
            if any(isinstance(a, torch.Tensor) and a.layout != torch.strided for a in host_args):
                raise NoKernelError.on_sparse(facts.full_name) from error
            raise NoKernelError.on_host(facts.full_name) from error
        for place in facts.writes:
            _mark_written(args[place] if isinstance(place, int) else kwargs.get(place))
        return self._wrap(facts, args, kwargs, result)

    def _wrap(self, facts: OpFacts, args: Args, kwargs: Kwargs, result: Any) -> Any:
        """Device tensors for the host results, sharing storages as the schema says."""
        returns = facts.returns
        if isinstance(result, torch.Tensor):
            return self._wrap_one(returns[0], args, kwargs, result, facts.resizes_in_place)
        if facts.returns_list:
            return [self._wrap_one(returns[0], args, kwargs, item) for item in result]
        if isinstance(result, tuple | list):
            return tuple(
                self._wrap_one(how, args, kwargs, item)
                if isinstance(item, torch.Tensor) and position not in facts.host_returns
                else item
                for position, (how, item) in enumerate(zip(returns, result, strict=False))
            )
        return result

    def _wrap_one(
        self,
        how: tuple[str, int | str | None],
        args: Args,
        kwargs: Kwargs,
        value: torch.Tensor,
        resizes: bool = False,
    ) -> torch.Tensor:
        relation, place = how
        if relation == "new":
            return self._make(value, None)
        source: Any = args[place] if isinstance(place, int) else kwargs[str(place)]
        if relation == "self":
            if resizes:
                _follow_layout(source, value)
            return source  # type: ignore[no-any-return]
        if type(source) is not EmulatedTensor:
            return self._make(value, None)
        if _stays_ordinary(source):
            with torch.inference_mode(False):
                return self._make(value, source.allocation)
        return self._make(value, source.allocation)

    def _make(self, value: torch.Tensor, storage: Storage | None) -> EmulatedTensor:
        if storage is None:
            storage = Storage(self._memory, value.numel() * value.element_size(), known=True)
        return EmulatedTensor.make(
            self._run_op, value.shape, value.stride(), int(value.storage_offset()), value.dtype,
            storage, value, -1, self._device,
        )  # fmt: skip

    # ---- by a plan

    def _from_plan(self, plan: Plan, tensors: list[EmulatedTensor]) -> Any:
        """Results of known layout and unknown values."""
        for index in plan.writes:
            storage = tensors[index].allocation
            storage.version += 1
            if plan.writes_unknown:
                storage.known = False
        results: list[Any] = []
        memory, device, run_op = self._memory, self._device, self._run_op
        for out in plan.outputs:
            if out.source is not None and out.same:
                results.append(tensors[out.source])
            elif out.dtype is None:
                results.append(out.constant)
            else:
                storage = (
                    Storage(memory, out.num_bytes, known=out.value is not None)
                    if out.source is None
                    else tensors[out.source].allocation
                )
                value = None if out.value is None else out.value()
                made = (
                    run_op, out.size, out.stride, out.offset, out.dtype, storage, value,
                    out.layout, device,
                )  # fmt: skip
                if out.source is not None and _stays_ordinary(tensors[out.source]):
                    with torch.inference_mode(False):
                        results.append(EmulatedTensor.make(*made))
                else:
                    results.append(EmulatedTensor.make(*made))
        if plan.returns == "single":
            return results[0]
        if plan.returns == "list":
            return results
        return tuple(results) if plan.returns == "tuple" else None


def layouts_only(args: Args) -> Args:
    """The arguments with device tensors as meta tensors of their layout, for an op that makes a
    tensor elsewhere and reads no data of theirs."""
    return tuple(
        torch.empty_strided(a.shape, a.stride(), dtype=a.dtype, device="meta")
        if type(a) is EmulatedTensor
        else a
        for a in args
    )


def _stays_ordinary(base: EmulatedTensor) -> bool:
    """Whether a view of `base` must be made an ordinary tensor, which inference mode would not."""
    return torch.is_inference_mode_enabled() and not base.is_inference()


def _unwrap(value: Any) -> Any:
    kind = type(value)
    if kind is EmulatedTensor:
        return value.host_value
    if kind is list or kind is tuple:
        return [_unwrap(item) for item in value]
    return value


def _mark_written(argument: Any) -> None:
    for tensor in argument if isinstance(argument, list | tuple) else (argument,):
        if type(tensor) is EmulatedTensor:
            tensor.allocation.version += 1


def _follow_layout(tensor: EmulatedTensor, value: torch.Tensor) -> None:
    """Give the device tensor the layout that an in-place op gave its host twin."""
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        tensor.as_strided_(value.shape, value.stride(), value.storage_offset())
    tensor.layout_number = -1
