"""One dispatch mode that sees every op of the emulated device.

Per op: find the facts and rules once, let the executor compute, tell who watches.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from harness.emulator.dispatch.collectives import Collective
from harness.emulator.dispatch.copies import copy_of, copy_waits, is_pinned, mark_pinned
from harness.emulator.dispatch.execution import Executor, layouts_only
from harness.emulator.kernels.attention import attention_entry
from harness.emulator.rules.judging import judge, judge_read
from harness.emulator.rules.sync_rules import rules_for, running_torch_version
from harness.emulator.tensors.choices import LARGEST_HOST_COPY
from harness.emulator.tensors.host_data import constants_of, host_data, host_number
from harness.emulator.tensors.lineage import inherit, input_lineage
from harness.emulator.tensors.op_facts import OpFacts, learn
from harness.emulator.tensors.tensor import EmulatedTensor, require_first

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.emulator.dispatch.observers import Observers
    from harness.emulator.tensors.capacity import ValuesLimit
    from harness.emulator.tensors.choices import Choices
    from harness.emulator.tensors.device_memory import MemoryBook
    from harness.emulator.tensors.layouts import LayoutTable
    from harness.emulator.tensors.op_events import Access, Copy, Pacer
    from harness.emulator.tensors.stream_book import StreamBook

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
        layouts: LayoutTable,
        observers: Observers,
        choices: Choices,
        shapes_only: bool,
        values_limit: ValuesLimit | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device = device
        self._streams = streams
        self._layouts = layouts
        self._observers = observers
        self._choices = choices
        self._executor = Executor(
            device, self.dispatch, memory, layouts, choices, shapes_only, values_limit
        )
        self._facts: dict[Any, OpFacts] = {}
        self._version = running_torch_version()
        self.before_op: Callable[[], None] | None = None
        """Called before each op on the device, with the user's frames on the stack."""
        self.host_reader: Callable[[torch.Tensor], None] | None = None
        """Called with each host tensor that an op takes, on the device or not."""
        self.pacer: Pacer | None = None
        """Told of each op with its arguments, before its waits; see `events.Pacer`."""

    @property
    def shapes_only(self) -> bool:
        """Whether large floating tensors have no data; it becomes so beyond the values limit."""
        return self._executor.shapes_only

    @property
    def num_ops(self) -> int:
        """Ops so far on the device."""
        return self._observers.num_ops

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Nothing is compiled while the device is active; torch's guard against compiling this mode
        # would cost several microseconds at every op.
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Args = (),
        kwargs: Kwargs | None = None,
    ) -> Any:
        for kind in types:
            if kind is not EmulatedTensor:
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
                    elif isinstance(item, torch.Tensor):
                        num_host += self._take_host(item)
            elif isinstance(value, torch.Tensor):
                num_host += self._take_host(value)
        for value in kwargs.values():
            if type(value) is EmulatedTensor:
                tensors.append(value)
            elif isinstance(value, torch.Tensor):
                self._take_host(value)
        facts = self._facts.get(func)
        if facts is None:
            facts = self._learn(func)
        to_device = facts.has_device and self._is_ours(kwargs.get("device"))
        if not tensors and not to_device:
            return self._on_host(facts, func, args, kwargs)
        if facts.composite:
            return self._decompose(func, args, kwargs)
        if facts.makes_like and not to_device and kwargs.get("device") is not None:
            return self._on_host(facts, func, layouts_only(args), kwargs)
        if self.before_op is not None:
            self.before_op()
        if num_host and tensors and facts.name not in _HOST_TENSORS_ALLOWED:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"cuda:0 and cpu! (when calling {facts.full_name})"
            )
        if facts.collective:
            return self._exchange(facts, func, args, kwargs)
        if func is _ITEM:
            return self._read_scalar(facts, args[0])
        if func is _TO_COPY:
            return self._to_copy(facts, args, kwargs, to_device)
        if func is _COPY_:
            return self._copy_(facts, args, kwargs)
        observers, pacer = self._observers, self.pacer
        watched = bool(observers.of_every_op)
        waits = judge(facts, args, kwargs) if facts.rules else ()
        reads = observers.accesses(tensors) if watched else ()
        lineage = input_lineage(args, self._layouts) if waits else None
        result, signature = self._compute(facts, func, args, kwargs, tensors, to_device)
        observers.num_ops += 1
        if pacer is not None:
            pacer(facts, signature, args, kwargs, result, self._streams.current)
        if tensors and type(result) is EmulatedTensor and not facts.random:
            fresh = result.allocation.version == 0 and facts.returns[0][0] == "new"
            if fresh and not result.dtype.is_floating_point:
                signature = signature or self._executor.signature(facts, args, kwargs)
                inherit(result, signature, tensors)
        if facts.marks is not None:
            place, mark = facts.marks
            args[place].allocation.marks = mark
        if watched:
            observers.tell(
                facts.full_name, waits, None, reads,
                observers.writes(facts, args, kwargs, result), signature, facts.random, lineage,
                constants_of(args, kwargs),
            )  # fmt: skip
        elif waits:
            observers.tell(facts.full_name, waits, lineage=lineage)
        return result

    def _take_host(self, tensor: torch.Tensor) -> bool:
        """Whether this host tensor among the arguments is more than a number."""
        if self.host_reader is not None:
            self.host_reader(tensor)
        return tensor.dim() > 0

    def _learn(self, func: Any) -> OpFacts:
        schema = func._schema
        facts = learn(
            func, rules_for(schema.name, schema.overload_name or "default", self._version)
        )
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

    def _compute(
        self,
        facts: OpFacts,
        func: Any,
        args: Args,
        kwargs: Kwargs,
        tensors: list[EmulatedTensor],
        to_device: bool,
    ) -> tuple[Any, tuple[object, ...]]:
        """The result, and the signature where the pacer or an observer of every op wants it."""
        wanted = self.pacer is not None or bool(self._observers.of_every_op)
        return self._executor.compute(facts, func, args, kwargs, tensors, to_device, wanted)

    def _exchange(self, facts: OpFacts, func: Any, args: Args, kwargs: Kwargs) -> Any:
        collective = Collective(func, args, kwargs)
        observers = self._observers
        watched = bool(observers.of_every_op)
        reads = observers.accesses(collective.tensors) if watched else ()
        collective.run()
        observers.num_ops += 1
        writes = observers.accesses(collective.written) if watched else ()
        # What other processes send is news each time, as what is drawn at random is.
        observers.tell(facts.full_name, collective.waits(), None, reads, writes, random=True)
        return collective.result()

    # ---- reads and copies

    def _read_scalar(self, facts: OpFacts, tensor: EmulatedTensor) -> Any:
        observers = self._observers
        observers.num_ops += 1
        observers.tell(
            facts.full_name,
            (judge_read(facts.name, tensor),),
            reads=observers.accesses([tensor]) if observers.of_every_op else (),
        )
        if tensor.host_value is not None and tensor.allocation.known:
            return tensor.host_value.item()
        return self._choices.scalar(tensor.dtype)

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
        reads = self._observers.accesses([source]) if self._observers.of_every_op else ()
        signature: tuple[object, ...] = ()
        if on_device and not to_device and target is not None:
            result = self._to_host(source, kwargs)
        else:
            if not on_device and source.is_meta:
                raise NotImplementedError("Cannot copy out of meta tensor; no data!")
            tensors = [source] if on_device else []
            result, signature = self._compute(facts, _TO_COPY, args, kwargs, tensors, to_device)
        self._copied(facts, args, kwargs, source, result, copy, reads, signature)
        return result

    def _to_host(self, source: EmulatedTensor, kwargs: Kwargs) -> torch.Tensor:
        options = {
            name: kwargs[name]
            for name in ("dtype", "memory_format")
            if kwargs.get(name) is not None
        }
        if source.host_value is not None and source.allocation.known:
            return _TO_COPY(source.host_value, **options)  # type: ignore[no-any-return]
        return self._choices.host_tensor(source.shape, options.get("dtype", source.dtype))

    def _copy_(self, facts: OpFacts, args: Args, kwargs: Kwargs) -> Any:
        target, source = args[0], args[1]
        non_blocking = bool(args[2] if len(args) > 2 else kwargs.get("non_blocking"))
        into_device, from_device = (type(t) is EmulatedTensor for t in (target, source))
        watched = bool(self._observers.of_every_op)
        copy = None
        if not (into_device and from_device):
            host = target if from_device else source
            copy = copy_of(
                source, into_device, non_blocking, pinned=is_pinned(host), size_of=target,
                dtype=target.dtype,
            )  # fmt: skip
            if copy is not None and watched:
                copy = copy._replace(host_storage=host_number(host))
        reads = self._observers.accesses([source]) if watched else ()
        signature: tuple[object, ...] = ()
        if into_device:
            tensors = [t for t in (target, source) if type(t) is EmulatedTensor]
            _, signature = self._compute(facts, _COPY_, args, kwargs, tensors, False)
        elif source.allocation.known or source.numel() <= LARGEST_HOST_COPY:
            # Large unknown data is not written: a step that offloads its activations would fill
            # the host's memory with the same number.
            target.copy_(self._to_host(source, {}))
        self._copied(facts, args, kwargs, source, target, copy, reads, signature)
        return target

    def _copied(
        self,
        facts: OpFacts,
        args: Args,
        kwargs: Kwargs,
        source: torch.Tensor,
        result: Any,
        copy: Copy | None,
        reads: tuple[Access, ...],
        signature: tuple[object, ...],
    ) -> None:
        """Count and tell a copy: one between host and device as such, others like any op."""
        observers = self._observers
        watched = bool(observers.of_every_op)
        observers.num_ops += 1
        if self.pacer is not None and copy is None and signature:
            self.pacer(facts, signature, args, kwargs, result, self._streams.current)
        if not (copy or watched):
            return
        waits = copy_waits(facts.name, copy) if copy else ()
        if copy is not None and watched and args[0] is not result:
            copy = copy._replace(made=_storage_of(result))
        if copy is not None and copy.direction == "h2d" and watched:
            copy = copy._replace(host=host_data(source))
        writes = observers.accesses([result]) if watched else ()
        observers.tell(facts.full_name, waits, copy, reads, writes, signature)


def _storage_of(tensor: torch.Tensor) -> weakref.ref[Any] | None:
    if tensor.layout is not torch.strided:
        return None
    if type(tensor) is EmulatedTensor:
        return weakref.ref(tensor.allocation)
    return weakref.ref(tensor.untyped_storage())
