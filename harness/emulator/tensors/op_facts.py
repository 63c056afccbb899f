"""Facts about an op that never change: looked up once per op, not per call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.record.sync_kinds import SyncKind

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Version = tuple[int, int]
Place = int | str
"""Where an argument stands: position, or name of a keyword-only argument."""

_INTEGER_CONSTANTS_DECIDE = ("aten::arange", "aten::linspace", "aten::logspace", "aten::range")
"""Ops whose output shape or dtype depends on the value of a float argument."""

_SHARES_UNDECLARED = ("aten::_unsafe_view", "aten::_reshape_alias", "aten::lift")
"""Ops that share their input's storage though the schema does not say so."""
_HOST_RETURNS = {"aten::_pack_padded_sequence": (1,)}
"""Op -> results that stay on the host: batch sizes drive a loop there."""
_MARKS = {"aten::_amp_foreach_non_finite_check_and_unscale_": (1, "found_inf")}
"""Op -> (argument, mark): what a later read of that argument is known as."""


@dataclass(frozen=True)
class Rule:
    """One reason why a call makes the host wait."""

    op: str
    """Dispatcher name without overload."""
    kind: SyncKind
    condition: str
    """When it waits, in words."""
    syncs: Callable[[Args, Kwargs], int]
    """Waits in one call with these arguments; 0 where the condition does not hold."""
    evidence: str
    """Source file or report it was read from."""
    confidence: str = "high"
    """`high`: source and an independent report; `medium`: source of unknown age; `low`: memory."""
    until: Version | None = None
    """First torch version (major, minor) it no longer holds for."""
    overload: str | None = None
    """Only this overload; `None` for all."""
    doubt: str | None = None
    """Where the sources leave doubt: how often it may be ("1 to 3 times a call"), and why."""


@dataclass(frozen=True)
class OpFacts:
    """What the dispatcher needs to know about one overload."""

    op: Any
    name: str
    """Name without overload, such as `aten::add`."""
    full_name: str
    rules: tuple[Rule, ...]
    writes: tuple[Place, ...]
    """Arguments written in place; a list argument counts with all its tensors."""
    returns: tuple[tuple[str, Place | None], ...]
    """For each return: `new`, or `self`/`view` with the argument it aliases."""
    only_in_place: bool
    """It returns nothing but arguments it writes."""
    returns_list: bool
    """The one return is a list of tensors."""
    has_device: bool
    makes_like: bool
    """It makes a tensor after the layout of its first argument, whose data it does not read."""
    random: bool
    dynamic: bool
    """The output size depends on the data."""
    resizes_in_place: bool
    composite: bool
    """Decomposes above autograd; reaches the dispatcher whole only under inference mode."""
    collective: bool
    """Exchanges data with other processes in place, and returns a work."""
    floats_decide: bool
    host_returns: tuple[int, ...]
    """Results that stay on the host."""
    marks: tuple[int, str] | None
    """Argument whose storage is marked, and the mark."""


def learn(op: Any, rules: tuple[Rule, ...]) -> OpFacts:
    """The facts of one overload, from its schema and tags."""
    schema = op._schema
    places: list[tuple[Place, Any]] = [
        (argument.name if argument.kwarg_only else position, argument)
        for position, argument in enumerate(schema.arguments)
    ]
    written = {
        alias: place
        for place, argument in places
        if argument.alias_info is not None and argument.alias_info.is_write
        for alias in argument.alias_info.before_set
    }
    viewed = {
        alias: place
        for place, argument in places
        if argument.alias_info is not None and not argument.alias_info.is_write
        for alias in argument.alias_info.before_set
    }

    def source(result: Any) -> tuple[str, Place | None]:
        if result.alias_info is not None:
            for alias in result.alias_info.before_set:
                if alias in written:
                    return "self", written[alias]
                if alias in viewed:
                    return "view", viewed[alias]
            if len(viewed) == 1:
                # A list of views, as of `split`: the alias belongs to the list's elements.
                return "view", next(iter(viewed.values()))
        return "new", None

    name = schema.name
    returns = tuple(source(result) for result in schema.returns)
    if name in _SHARES_UNDECLARED:
        returns = (("view", 0),)
    tags = set(op.tags)
    return OpFacts(
        op=op,
        name=name,
        full_name=f"{name}.{schema.overload_name}" if schema.overload_name else name,
        rules=rules,
        writes=tuple(written.values()),
        returns=returns,
        only_in_place=bool(written) and all(relation == "self" for relation, _ in returns),
        returns_list=len(schema.returns) == 1 and str(schema.returns[0].type) == "List[Tensor]",
        has_device=any(argument.name == "device" for argument in schema.arguments),
        makes_like=name.endswith("_like") or name.startswith("aten::new_"),
        random=torch.Tag.nondeterministic_seeded in tags,
        dynamic=torch.Tag.dynamic_output_shape in tags,
        resizes_in_place=torch.Tag.inplace_view in tags,
        composite=torch._C._dispatch_has_kernel_for_dispatch_key(
            op.name(), "CompositeImplicitAutograd"
        ),
        collective=name.startswith("c10d::"),
        floats_decide=name in _INTEGER_CONSTANTS_DECIDE,
        host_returns=_HOST_RETURNS.get(name, ()),
        marks=_MARKS.get(name),
    )
