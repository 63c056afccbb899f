"""Shapes without data: what an op returns, remembered by the layout of what it is given.

Layers repeat, so nearly every op of a step was seen before with the same layouts; then its results
are made without asking torch again. Small integers keep their values, so lengths, positions and
router choices stay exact; large floating tensors have none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from harness.emulator.kernels.formulas import FORMULAS
from harness.emulator.kernels.host_kernels import KERNELS
from harness.emulator.tensors.chosen_values import data_dependent_sizes, drawn_values
from harness.emulator.tensors.tensor import EmulatedTensor
from harness.errors import WorkloadError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.emulator.tensors.choices import Choices
    from harness.emulator.tensors.op_facts import OpFacts

Args = tuple[Any, ...]
Kwargs = dict[str, Any]

_MOST_INTEGERS = 3 << 22
"""Integer and bool tensors keep their values up to this many elements: the one-hot mask of 8,192
tokens with 8 of 129 experts fits, a 4,096 x 4,096 attention mask does not."""
_MOST_FLOATS = 256
"""Floating tensors keep their values up to this many elements: scales, small tables."""
_MOST_ZEROS_BYTES = 64 << 20
"""An op without meta kernel runs on zeros where its arguments are no larger than this."""
_META = torch.device("meta")


class NoKernelError(WorkloadError):
    """An op that can run neither on host values nor on shapes."""

    @classmethod
    def on_host(cls, op: str) -> NoKernelError:
        """No CPU kernel to compute the values with."""
        return cls(
            f"{op} has no CPU kernel to compute its values with; audit on shapes only "
            "(--shapes), where a registered fake kernel is enough."
        )

    @classmethod
    def on_sparse(cls, op: str) -> NoKernelError:
        """A sparse tensor where only dense ones are emulated."""
        return cls(
            f"{op} met a sparse tensor, and sparse tensors are not emulated here; audit the step "
            "with dense ones, such as nn.Embedding(sparse=False)."
        )

    @classmethod
    def on_shapes(cls, op: str, reason: str) -> NoKernelError:
        """No meta or fake kernel to compute the shapes with."""
        return cls(
            f"{op} cannot run on shapes only ({reason}); register a fake kernel with "
            "torch.library.register_fake, or audit a smaller model with real values (--values)."
        )


@dataclass(frozen=True)
class Output:
    """How to make one result."""

    source: int | None = None
    """Which of the op's tensors it aliases."""
    same: bool = False
    """It is that tensor itself."""
    size: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    offset: int = 0
    dtype: torch.dtype | None = None
    """`None` for a result that is no tensor; then it is `constant`."""
    layout: int = -1
    num_bytes: int = 0
    value: Callable[[], torch.Tensor] | None = None
    """Draws the values of a chosen result."""
    constant: Any = None


@dataclass(frozen=True)
class Plan:
    """What to do for one signature."""

    with_values: bool
    """Compute on host values; the rest does not apply."""
    outputs: tuple[Output, ...] = ()
    returns: Literal["none", "single", "tuple", "list"] = "none"
    writes: tuple[int, ...] = ()
    writes_unknown: bool = True


_WITH_VALUES = Plan(with_values=True)


def keeps_values(dtype: torch.dtype, num_elements: int) -> bool:
    """Whether a tensor is small enough to keep its values in a shapes-only audit."""
    if dtype.is_floating_point or dtype.is_complex:
        return num_elements <= _MOST_FLOATS
    return num_elements <= _MOST_INTEGERS


class ShapeEngine:
    """Plans ops by signature."""

    def __init__(
        self,
        choices: Choices,
        layout_of: Callable[[EmulatedTensor], int],
        layout_number: Callable[[tuple[Any, ...]], int],
    ) -> None:
        self.choices = choices
        self._layout_of = layout_of
        self._layout_number = layout_number
        self._plans: dict[tuple[object, ...], Plan] = {}

    def signature(self, facts: OpFacts, args: Args, kwargs: Kwargs) -> tuple[object, ...]:
        """Op, layouts (with whether values are known) and constants."""
        key: list[object] = [facts.op]
        add = self._add
        floats = facts.floats_decide
        for value in args:
            # The common case inline: this runs for every argument of every op.
            if type(value) is EmulatedTensor:
                layout = value.layout_number
                if layout < 0:
                    layout = self._layout_of(value)
                known = value.host_value is not None and value.allocation.known
                key.append(layout + layout + known)
            else:
                add(key, value, floats)
        for name, value in kwargs.items():
            key.append(name)
            add(key, value, floats)
        return tuple(key)

    def _add(self, key: list[object], value: Any, floats: bool) -> None:
        kind = type(value)
        if kind is EmulatedTensor:
            known = value.host_value is not None and value.allocation.known
            key.append(2 * self._layout_of(value) + known)
        elif kind is float:
            key.append(value if floats else float)
        elif kind is bool:
            key.append("true" if value else "false")
        elif kind is list or kind is tuple:
            key.append(len(value))
            for item in value:
                self._add(key, item, floats)
        elif isinstance(value, torch.Tensor):
            key.append((value.dtype, value.shape))
        elif kind is torch.Generator or isinstance(value, torch.Generator):
            key.append("generator")
        else:
            key.append(value)

    def plan(
        self,
        signature: tuple[object, ...],
        facts: OpFacts,
        args: Args,
        kwargs: Kwargs,
        tensors: list[EmulatedTensor],
    ) -> Plan:
        """What to do for this call; from memory where the signature was seen before."""
        plan = self._plans.get(signature)
        if plan is not None:
            return plan
        if all(t.host_value is not None and t.allocation.known for t in tensors):
            plan = self._plan_known(facts, args, kwargs, tensors)
        else:
            if facts.host_returns:
                # They come out of host data, which is not in the signature.
                return self._infer(facts, args, kwargs, tensors)
            sizes = data_dependent_sizes(facts.name, args, kwargs, self.choices)
            if sizes is not None:
                # The sizes hold for this call's data only, so the plan is not remembered.
                return _plan_of_sizes(facts, sizes)
            plan = self._infer(facts, args, kwargs, tensors)
        self._plans[signature] = plan
        return plan

    def layout_after(self, facts: OpFacts, args: Args, kwargs: Kwargs) -> torch.Tensor:
        """A meta tensor of the layout that an in-place op gives its first argument."""
        twin: torch.Tensor = _as_meta(args[0])
        facts.op(twin, *[_as_meta(value) for value in args[1:]], **kwargs)
        return twin

    def forget_large(self, result: Any) -> Any:
        """Drop the values of results that are too large to keep."""
        for tensor in result if isinstance(result, list | tuple) else (result,):
            if type(tensor) is EmulatedTensor and not keeps_values(tensor.dtype, tensor.numel()):
                tensor.host_value = None
                tensor.allocation.known = False
        return result

    def _plan_known(
        self, facts: OpFacts, args: Args, kwargs: Kwargs, tensors: list[EmulatedTensor]
    ) -> Plan:
        if tensors and (facts.dynamic or facts.only_in_place):
            return _WITH_VALUES
        plan = self._infer(facts, args, kwargs, tensors)
        small = all(
            out.dtype is None or keeps_values(out.dtype, math.prod(out.size))
            for out in plan.outputs
        )
        return _WITH_VALUES if small else plan

    def _infer(
        self, facts: OpFacts, args: Args, kwargs: Kwargs, tensors: list[EmulatedTensor]
    ) -> Plan:
        """The plan of an op on unknown data, its shapes by torch's own meta or fake kernel."""

        def index_of(place: int | str | None) -> int:
            argument = args[place] if isinstance(place, int) else kwargs.get(str(place))
            return next(i for i, tensor in enumerate(tensors) if tensor is argument)

        writes = tuple(
            i
            for place in facts.writes
            for i, tensor in enumerate(tensors)
            if _is_or_holds(args[place] if isinstance(place, int) else kwargs.get(place), tensor)
        )
        keeps_known = facts.marks is not None
        if facts.only_in_place:
            outputs = tuple(Output(source=index_of(place), same=True) for _, place in facts.returns)
            return Plan(False, outputs, _returns(facts), writes, not keeps_known)
        result = self._run_meta(facts, args, kwargs)
        results = list(result) if isinstance(result, list | tuple) else [result]
        if not facts.returns:
            results = []
        drawn = drawn_values(facts.name, args, kwargs, results, self.choices)
        outputs = tuple(
            Output(constant=item)
            if position in facts.host_returns
            else self._output(how, item, index_of, drawn.get(position))
            for position, (how, item) in enumerate(
                zip(_how(facts, len(results)), results, strict=True)
            )
        )
        return Plan(False, outputs, _returns(facts), writes)

    def _output(
        self,
        how: tuple[str, int | str | None],
        item: Any,
        index_of: Callable[[int | str | None], int],
        value: Callable[[], torch.Tensor] | None,
    ) -> Output:
        if not isinstance(item, torch.Tensor):
            return Output(constant=item)
        relation, place = how
        if relation == "self":
            return Output(source=index_of(place), same=True)
        size, stride = tuple(item.shape), item.stride()
        return Output(
            source=index_of(place) if relation == "view" else None,
            size=size,
            stride=stride,
            offset=int(item.storage_offset()),
            dtype=item.dtype,
            layout=self._layout_number((item.shape, stride, item.storage_offset(), item.dtype)),
            num_bytes=_extent(size, stride) * item.element_size(),
            value=value if value and keeps_values(item.dtype, item.numel()) else None,
        )

    def _run_meta(self, facts: OpFacts, args: Args, kwargs: Kwargs) -> Any:
        if facts.host_returns:
            return _run_on_zeros(facts, args, kwargs)
        kernel = FORMULAS.get(facts.name, facts.op)
        meta_kwargs = {
            name: None if name == "generator" else _as_meta(value)
            for name, value in kwargs.items()
            if name != "pin_memory"
        }
        if facts.has_device and (kwargs.get("device") is not None or not args):
            meta_kwargs["device"] = _META
        try:
            return kernel(*[_as_meta(value) for value in args], **meta_kwargs)
        except NotImplementedError as error:
            if facts.name.startswith("aten::") and _num_bytes((args, kwargs)) <= _MOST_ZEROS_BYTES:
                return _run_on_zeros(facts, args, kwargs)
            raise NoKernelError.on_shapes(facts.full_name, "it has no meta kernel") from error
        except RuntimeError as error:
            # torch's own ops refuse wrong arguments here; a custom op has no fake kernel.
            if facts.name.startswith("aten::"):
                raise
            raise NoKernelError.on_shapes(facts.full_name, "it has no fake kernel") from error


def _as_meta(value: Any) -> Any:
    if type(value) is EmulatedTensor:
        items = max(
            value.allocation.num_bytes // value.element_size(),
            value.storage_offset() + _extent(value.shape, value.stride()),
        )
        base = torch.empty(items, dtype=value.dtype, device=_META)
        return base.as_strided(value.shape, value.stride(), value.storage_offset())
    if isinstance(value, torch.Tensor):
        return value if value.dim() == 0 else torch.empty_like(value, device=_META)
    if isinstance(value, list | tuple):
        return [_as_meta(item) for item in value]
    return value


def _run_on_zeros(facts: OpFacts, args: Args, kwargs: Kwargs) -> Any:
    """What the CPU kernel gives for zeros in place of unknown data: the shapes are the same."""

    def zeros(value: EmulatedTensor) -> torch.Tensor:
        if value.host_value is not None and value.allocation.known:
            return value.host_value
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype).zero_()

    if kwargs.get("device") is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    args, kwargs = tree_map_only(EmulatedTensor, zeros, (args, kwargs))
    try:
        return KERNELS.get(facts.name, facts.op)(*args, **kwargs)
    except NotImplementedError as error:
        raise NoKernelError.on_shapes(facts.full_name, "it has no meta kernel") from error


def _num_bytes(arguments: Any) -> int:
    found = [value for value in tree_leaves(arguments) if isinstance(value, torch.Tensor)]
    return sum(value.numel() * value.element_size() for value in found)


def _extent(size: Sequence[int], stride: Sequence[int]) -> int:
    """Elements from the first to the last that a layout touches."""
    if any(length == 0 for length in size):
        return 0
    return 1 + sum((length - 1) * step for length, step in zip(size, stride, strict=True))


def _is_or_holds(argument: Any, tensor: EmulatedTensor) -> bool:
    if isinstance(argument, list | tuple):
        return any(item is tensor for item in argument)
    return argument is tensor


def _returns(facts: OpFacts) -> Literal["none", "single", "tuple", "list"]:
    if facts.returns_list:
        return "list"
    if not facts.returns:
        return "none"
    return "single" if len(facts.returns) == 1 else "tuple"


def _how(facts: OpFacts, count: int) -> Sequence[tuple[str, int | str | None]]:
    return facts.returns * count if facts.returns_list else facts.returns


def _plan_of_sizes(facts: OpFacts, sizes: Sequence[tuple[tuple[int, ...], torch.dtype]]) -> Plan:
    outputs = []
    for size, dtype in sizes:
        stride = torch.empty(size, device=_META).stride()
        outputs.append(
            Output(
                size=size,
                stride=stride,
                dtype=dtype,
                num_bytes=math.prod(size) * dtype.itemsize,
            )
        )
    return Plan(False, tuple(outputs), _returns(facts))
