"""One dispatch mode that sees every op of the emulated device.

Per op: find the facts and rules once, compute values or shapes, wrap the results, count the wait.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from harness.emulator import host_kernels
from harness.emulator.attention import attention_entry
from harness.emulator.capacity import PRODUCTS, bytes_to_come
from harness.emulator.choices import LARGEST_HOST_COPY
from harness.emulator.copies import copy_of, copy_waits, is_pinned, mark_pinned
from harness.emulator.events import Access, Copy, Observer, OpEvent, Pacer, Wait
from harness.emulator.host_data import constants_of, host_data, host_number
from harness.emulator.memory import MemoryBook, Storage
from harness.emulator.reading import current_reading
from harness.emulator.rules import rules_for, running_torch_version
from harness.emulator.schema import OpFacts, learn
from harness.emulator.shapes import NoKernelError, Plan, ShapeEngine
from harness.emulator.tensor import EmulatedTensor, require_first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from harness.emulator.capacity import ValuesLimit
    from harness.emulator.choices import Choices
    from harness.emulator.phases import PhaseTracker
    from harness.emulator.streams import StreamBook

Args = tuple[Any, ...]
Kwargs = dict[str, Any]

_HOST_TENSORS_ALLOWED = frozenset(
    {
        "aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_",
        "aten::copy_", "aten::_to_copy", "aten::_ctc_loss", "aten::_ctc_loss_backward",
        "aten::_cudnn_rnn", "aten::_pack_padded_sequence", "aten::set_", "aten::is_same_size",
        "aten::_index_put_impl",
    }
)  # fmt: skip
"""Ops that take a host tensor beside device tensors on CUDA, other than 0-dim scalars."""

_TO_COPY = torch.ops.aten._to_copy.default
_COPY_ = torch.ops.aten.copy_.default
_ITEM = torch.ops.aten._local_scalar_dense.default
_SCALED_DOT = torch.ops.aten.scaled_dot_product_attention.default


class Dispatcher(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs ops of one emulated device and tells its observers."""

    def __init__(
        self,
        device: torch.device,
        memory: MemoryBook,
        streams: StreamBook,
        phases: PhaseTracker,
        choices: Choices,
        shapes_only: bool,
        values_limit: ValuesLimit | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device = device
        self.memory = memory
        self.streams = streams
        self.phases = phases
        self.shapes_only = shapes_only
        self._values_limit = None if shapes_only else values_limit
        self.num_ops = 0
        self._engine = ShapeEngine(choices, self.layout_of, self._layout_number)
        self._facts: dict[Any, OpFacts] = {}
        self._layouts: dict[tuple[Any, ...], int] = {}
        self._layout_keys: list[tuple[Any, ...]] = []
        self._layout_bytes: dict[int, int] = {}
        self._all_ops: tuple[Observer, ...] = ()
        self._wait_only: tuple[Observer, ...] = ()
        self._version = running_torch_version()
        self.before_op: Callable[[], None] | None = None
        """Called before each op on the device, with the user's frames on the stack."""
        self.pacer: Pacer | None = None
        """Told of each op with its arguments, before its waits; see `events.Pacer`."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Nothing is compiled while the device is active; torch's guard against compiling this mode
        # would cost several microseconds at every op.
        return False

    # ---- observers

    def add_observer(self, observer: Observer) -> None:
        """Send events to `observer` from the next op on."""
        if observer.wants_every_op:
            self._all_ops += (observer,)
        else:
            self._wait_only += (observer,)

    def remove_observers(self) -> None:
        """Send no more events."""
        self._all_ops = self._wait_only = ()
        self.pacer = None

    @property
    def observers(self) -> tuple[Observer, ...]:
        """Everyone who watches."""
        return self._all_ops + self._wait_only

    @contextmanager
    def uncounted_waits(self) -> Iterator[None]:
        """Waits inside are the emulator's own and no GPU's; those who count waits see none."""
        observers, self._wait_only = self._wait_only, ()
        try:
            yield
        finally:
            self._wait_only = observers

    def emit_api_wait(self, api: str, kind: str, syncs: int) -> None:
        """Tell of a wait that is no op, such as `torch.cuda.synchronize()`."""
        self._emit(api, (Wait(api, kind, syncs),), None, (), (), (), False, None)

    # ---- dispatch

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Args = (),
        kwargs: Kwargs | None = None,
    ) -> Any:
        if len(types) > 1 and any(kind is not EmulatedTensor for kind in types):
            return func(*args, **(kwargs or {}))  # a tensor of another kind holds ours
        return self.dispatch(func, args, kwargs or {})

    def dispatch(self, func: Any, args: Args, kwargs: Kwargs) -> Any:
        """Run one op that may touch the emulated device."""
        tensors: list[EmulatedTensor] = []
        num_host = 0
        for value in args:
            kind = type(value)
            if kind is EmulatedTensor:
                tensors.append(value)
            elif kind is list or kind is tuple:
                for item in value:
                    if type(item) is EmulatedTensor:
                        tensors.append(item)
                    elif isinstance(item, torch.Tensor) and item.dim():
                        num_host += 1
            elif isinstance(value, torch.Tensor) and value.dim():
                num_host += 1
        for value in kwargs.values():
            if type(value) is EmulatedTensor:
                tensors.append(value)
        facts = self._facts.get(func)
        if facts is None:
            facts = self._learn(func)
        to_device = facts.has_device and self._is_ours(kwargs.get("device"))
        if not tensors and not to_device:
            return self._on_host(facts, func, args, kwargs)
        if facts.composite:
            return self._decompose(func, args, kwargs)
        if self.before_op is not None:
            self.before_op()
        if num_host and tensors and facts.name not in _HOST_TENSORS_ALLOWED:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"cuda:0 and cpu! (when calling {facts.full_name})"
            )
        if func is _ITEM:
            return self._read_scalar(facts, args[0])
        if func is _TO_COPY:
            return self._to_copy(facts, args, kwargs, to_device)
        if func is _COPY_:
            return self._copy_(facts, args, kwargs)
        waits = self._judge(facts, args, kwargs) if facts.rules else ()
        reads = self._accesses(tensors) if self._all_ops else ()
        lineage = self._lineage(args) if waits else None
        result, signature = self._compute(facts, func, args, kwargs, tensors, to_device)
        self.num_ops += 1
        if self.pacer is not None:
            self.pacer(facts, signature, args, kwargs, result, self.streams.current)
        if tensors and type(result) is EmulatedTensor and not facts.random:
            fresh = result.allocation.version == 0 and facts.returns[0][0] == "new"
            if fresh and not result.dtype.is_floating_point:
                self._inherit(facts, args, kwargs, tensors, result, signature)
        if facts.marks is not None:
            place, mark = facts.marks
            args[place].allocation.marks = mark
        if waits or self._all_ops:
            writes = self._writes(facts, args, kwargs, result) if self._all_ops else ()
            constants = constants_of(args, kwargs) if self._all_ops else 0
            self._emit(
                facts.full_name, waits, None, reads, writes, signature, facts.random, lineage,
                constants,
            )  # fmt: skip
        return result

    def _learn(self, func: Any) -> OpFacts:
        schema = func._schema
        facts = learn(func, rules_for(schema.name, schema.overload_name, self._version))
        self._facts[func] = facts
        return facts

    def _is_ours(self, device: Any) -> bool:
        if device is None:
            return False
        device = torch.device(device)
        if device.type == "cuda":
            require_first(device.index)
            return True
        return bool(device.type == self.device.type)

    def _decompose(self, func: Any, args: Args, kwargs: Kwargs) -> Any:
        """Ops that decompose above autograd come whole under inference mode only."""
        with self:
            if func is _SCALED_DOT:
                return attention_entry(*args, **kwargs)
            return func.decompose(*args, **kwargs)

    def _on_host(self, facts: OpFacts, func: Any, args: Args, kwargs: Kwargs) -> Any:
        """An op on host tensors alone: run it; only pinned memory is ours to answer."""
        if facts.name == "aten::is_pinned":
            return is_pinned(args[0])
        if facts.name == "aten::_pin_memory":
            return mark_pinned(args[0].clone())
        if kwargs.get("pin_memory"):
            return mark_pinned(func(*args, **{**kwargs, "pin_memory": False}))
        return func(*args, **kwargs)

    # ---- computing

    def _compute(
        self,
        facts: OpFacts,
        func: Any,
        args: Args,
        kwargs: Kwargs,
        tensors: list[EmulatedTensor],
        to_device: bool,
    ) -> tuple[Any, tuple[object, ...]]:
        """The result of the op, and its signature where somebody needs it."""
        if self._values_limit is not None:
            self._keep_within(self._values_limit, facts, args, kwargs, to_device)
        if not self.shapes_only:
            result = self._with_values(facts, func, args, kwargs, to_device)
            wanted = self._all_ops or self.pacer is not None
            return result, (self._engine.signature(facts, args, kwargs) if wanted else ())
        signature = self._engine.signature(facts, args, kwargs)
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
        needed = self.memory.live_bytes
        if to_device or facts.name in PRODUCTS:
            needed += bytes_to_come(facts.name, args, kwargs)
        if needed <= limit.num_bytes:
            return
        if limit.beyond == "fail":
            raise limit.refuse(needed)
        self.shapes_only = True
        self._values_limit = None

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
            self._mark_written(args[place] if isinstance(place, int) else kwargs.get(place))
        return self._wrap(facts, args, kwargs, result)

    def _mark_written(self, argument: Any) -> None:
        for tensor in argument if isinstance(argument, list | tuple) else (argument,):
            if type(tensor) is EmulatedTensor:
                tensor.allocation.version += 1

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
            return self.adopt(value)
        source: Any = args[place] if isinstance(place, int) else kwargs[str(place)]
        if relation == "self":
            if resizes:
                _follow_layout(source, value)
            return source  # type: ignore[no-any-return]
        return self._make(value, source.allocation if type(source) is EmulatedTensor else None)

    def adopt(self, value: torch.Tensor) -> EmulatedTensor:
        """A new device tensor with these host values; the caller gives the values away."""
        return self._make(value, None)

    def _make(self, value: torch.Tensor, storage: Storage | None) -> EmulatedTensor:
        if storage is None:
            storage = Storage(self.memory, value.numel() * value.element_size(), known=True)
        return EmulatedTensor.make(
            self.dispatch, value.shape, value.stride(), int(value.storage_offset()), value.dtype,
            storage, value, -1, self.device,
        )  # fmt: skip

    def _from_plan(
        self,
        plan: Plan,
        tensors: list[EmulatedTensor],
    ) -> Any:
        """Results of known layout and unknown values."""
        for index in plan.writes:
            storage = tensors[index].allocation
            storage.version += 1
            if plan.writes_unknown:
                storage.known = False
        results: list[Any] = []
        memory, device, dispatch = self.memory, self.device, self.dispatch
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
                results.append(
                    EmulatedTensor.make(
                        dispatch, out.size, out.stride, out.offset, out.dtype, storage, value,
                        out.layout, device,
                    )
                )  # fmt: skip
        if plan.returns == "single":
            return results[0]
        if plan.returns == "list":
            return results
        return tuple(results) if plan.returns == "tuple" else None

    # ---- copies and reads

    def _read_scalar(self, facts: OpFacts, tensor: EmulatedTensor) -> Any:
        self.num_ops += 1
        kind = current_reading() or _kind_of_unnamed_read()
        if tensor.allocation.marks == "found_inf" and kind in ("scalar_read", "bool_branch"):
            kind = "found_inf_read"
        self._emit(
            facts.full_name, (Wait(facts.name, kind, 1),), None,
            self._accesses([tensor]) if self._all_ops else (), (), (), False, None,
        )  # fmt: skip
        if tensor.host_value is not None and tensor.allocation.known:
            return tensor.host_value.item()
        return self._engine.choices.scalar(tensor.dtype)

    def _to_copy(self, facts: OpFacts, args: Args, kwargs: Kwargs, to_device: bool) -> Any:
        source = args[0]
        on_device = type(source) is EmulatedTensor
        target = kwargs.get("device")
        if on_device and (target is None or to_device):
            copy = None
        else:
            copy = copy_of(
                source, to_device, bool(kwargs.get("non_blocking")), dtype=kwargs.get("dtype")
            )
            copy = self._with_host(copy, source)
        reads = self._accesses([source]) if on_device and self._all_ops else ()
        signature: tuple[object, ...] = ()
        if on_device and not to_device and target is not None:
            result = self._to_host(source, kwargs)
        else:
            tensors = [source] if on_device else []
            if not on_device and source.is_meta:
                raise NotImplementedError("Cannot copy out of meta tensor; no data!")
            result, signature = self._compute(facts, _TO_COPY, args, kwargs, tensors, to_device)
        self.num_ops += 1
        if self.pacer is not None and copy is None and signature:
            self.pacer(facts, signature, args, kwargs, result, self.streams.current)
        waits = copy_waits(facts.name, copy) if copy else ()
        if waits or copy or self._all_ops:
            writes = self._accesses([result]) if self._all_ops else ()
            self._emit(facts.full_name, waits, copy, reads, writes, signature, False, None)
        return result

    def _to_host(self, source: EmulatedTensor, kwargs: Kwargs) -> torch.Tensor:
        options = {
            name: kwargs[name]
            for name in ("dtype", "memory_format")
            if kwargs.get(name) is not None
        }
        if source.host_value is not None and source.allocation.known:
            return _TO_COPY(source.host_value, **options)  # type: ignore[no-any-return]
        return self._engine.choices.host_tensor(source.shape, options.get("dtype", source.dtype))

    def _copy_(self, facts: OpFacts, args: Args, kwargs: Kwargs) -> Any:
        target, source = args[0], args[1]
        non_blocking = bool(args[2] if len(args) > 2 else kwargs.get("non_blocking"))
        into_device, from_device = (type(t) is EmulatedTensor for t in (target, source))
        copy = None
        if not (into_device and from_device):
            host = target if from_device else source
            copy = copy_of(
                source, into_device, non_blocking, pinned=is_pinned(host), size_of=target,
                dtype=target.dtype,
            )  # fmt: skip
            copy = self._with_host(copy, source)
            if copy is not None and self._all_ops:
                copy = copy._replace(host_storage=host_number(host))
        reads = self._accesses([source]) if from_device and self._all_ops else ()
        signature: tuple[object, ...] = ()
        if into_device:
            tensors = [t for t in (target, source) if type(t) is EmulatedTensor]
            _, signature = self._compute(facts, _COPY_, args, kwargs, tensors, False)
        elif source.allocation.known or source.numel() <= LARGEST_HOST_COPY:
            # Large unknown data is not written: a step that offloads its activations would fill
            # the host's memory with the same number.
            target.copy_(self._to_host(source, {}))
        self.num_ops += 1
        if self.pacer is not None and copy is None and signature:
            self.pacer(facts, signature, args, kwargs, target, self.streams.current)
        waits = copy_waits(facts.name, copy) if copy else ()
        if waits or copy or self._all_ops:
            writes = self._accesses([target]) if self._all_ops and into_device else ()
            self._emit(facts.full_name, waits, copy, reads, writes, signature, False, None)
        return target

    def _with_host(self, copy: Copy | None, source: torch.Tensor) -> Copy | None:
        """The copy with what it uploads, where somebody watches every op."""
        if copy is None or copy.direction != "h2d" or not self._all_ops:
            return copy
        return copy._replace(host=host_data(source))

    # ---- telling

    def _judge(self, facts: OpFacts, args: Args, kwargs: Kwargs) -> tuple[Wait, ...]:
        waits = []
        for rule in facts.rules:
            syncs = rule.syncs(args, kwargs)
            if syncs:
                reading = current_reading()
                named = reading == "print_tensor" or rule.kind == "bool_branch"
                kind = reading if reading and named else rule.kind
                waits.append(Wait(facts.name, kind, syncs))
        return tuple(waits)

    def _lineage(self, args: Args) -> int | None:
        first = args[0] if args else None
        if type(first) is not EmulatedTensor:
            return None
        storage = first.allocation
        return hash((storage.lineage, storage.version, self.layout_of(first)))

    def _inherit(
        self,
        facts: OpFacts,
        args: Args,
        kwargs: Kwargs,
        tensors: Sequence[EmulatedTensor],
        result: EmulatedTensor,
        signature: tuple[object, ...],
    ) -> None:
        """Tell by lineage that masks and indices are computed anew from the same data."""
        if not signature:
            signature = self._engine.signature(facts, args, kwargs)
        sources = [(t.allocation.lineage, t.allocation.version) for t in tensors]
        result.allocation.lineage = hash((signature, *sources))

    def layout_of(self, tensor: EmulatedTensor) -> int:
        """Number of the tensor's layout; equal numbers mean equal layouts."""
        layout = tensor.layout_number
        if layout < 0:
            layout = tensor.layout_number = self._layout_number(
                (tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype)
            )
        return layout

    def byte_range(self, layout: int) -> tuple[int, int]:
        """First byte of the storage that a tensor of this layout touches, and one past the last."""
        shape, strides, offset, dtype = self._layout_keys[layout]
        if 0 in shape:
            return 0, 0
        last = sum((length - 1) * step for length, step in zip(shape, strides, strict=True))
        return offset * dtype.itemsize, (offset + last + 1) * dtype.itemsize

    def _layout_number(self, layout: tuple[Any, ...]) -> int:
        number = self._layouts.get(layout)
        if number is None:
            number = self._layouts[layout] = len(self._layouts)
            self._layout_keys.append(layout)
        return number

    def _accesses(self, tensors: Sequence[Any]) -> tuple[Access, ...]:
        found: list[Access] = []
        sizes = self._layout_bytes
        for t in tensors:
            if type(t) is EmulatedTensor:
                layout = t.layout_number
                if layout < 0:
                    layout = self.layout_of(t)
                num_bytes = sizes.get(layout)
                if num_bytes is None:
                    num_bytes = sizes[layout] = t.numel() * t.element_size()
                storage = t.allocation
                parameter = getattr(t, "_is_param", False)
                found.append(Access(storage.number, storage.version, layout, num_bytes, parameter))
        return tuple(found)

    def _writes(
        self, facts: OpFacts, args: Args, kwargs: Kwargs, result: Any
    ) -> tuple[Access, ...]:
        results = result if isinstance(result, list | tuple) else (result,)
        if not facts.writes:
            return self._accesses(results)
        written: list[Any] = []
        for place in facts.writes:
            argument = args[place] if isinstance(place, int) else kwargs.get(place)
            written.extend(argument if isinstance(argument, list | tuple) else (argument,))
        known = {id(tensor) for tensor in written}
        written.extend(tensor for tensor in results if id(tensor) not in known)
        return self._accesses(written)

    def _emit(
        self,
        op: str,
        waits: tuple[Wait, ...],
        copy: Copy | None,
        reads: tuple[Access, ...],
        writes: tuple[Access, ...],
        signature: tuple[object, ...],
        random: bool,
        lineage: int | None,
        constants: int = 0,
    ) -> None:
        if not self._all_ops and not self._wait_only:
            return
        event = OpEvent(
            self.num_ops, op, self.phases.current(exactly=bool(waits)), self.streams.current,
            reads, writes, signature, random, waits, copy, lineage, constants,
        )  # fmt: skip
        for observer in self._all_ops:
            observer.on_event(event)
        if waits or copy:
            for observer in self._wait_only:
                observer.on_event(event)


def _kind_of_unnamed_read() -> str:
    """Kind of a read that no Python construct made: the argument parser's, or the engine's own."""
    if torch._C._current_graph_task_id() != -1 and torch.is_anomaly_check_nan_enabled():
        return "error_check_read"
    return "implicit_scalar_arg"


def _unwrap(value: Any) -> Any:
    kind = type(value)
    if kind is EmulatedTensor:
        return value.host_value
    if kind is list or kind is tuple:
        return [_unwrap(item) for item in value]
    return value


def _follow_layout(tensor: EmulatedTensor, value: torch.Tensor) -> None:
    """Give the device tensor the layout that an in-place op gave its host twin."""
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        tensor.as_strided_(value.shape, value.stride(), value.storage_offset())
    tensor.layout_number = -1
