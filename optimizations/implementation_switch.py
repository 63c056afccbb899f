"""Turns one of transformers' implementation switches on a model, and puts it back exactly.

transformers looks up the function for attention and for experts by a name in the model's
configuration, in a registry that is a mapping. Functions entered here are visible to this process
until `restore`, or as long as a copy of the model made before it lives; nothing of the library is
patched.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from transformers import PreTrainedModel
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, MutableMapping

    import torch
    from torch import nn

SwitchKind = Literal["attention", "experts"]


@dataclass(frozen=True)
class _Door:
    """Where transformers keeps one switch."""

    registry: MutableMapping[str, Callable[..., Any]]
    config_attribute: str
    set_method: str


_DOORS: dict[SwitchKind, _Door] = {
    "attention": _Door(ALL_ATTENTION_FUNCTIONS, "_attn_implementation", "set_attn_implementation"),
    "experts": _Door(
        ALL_EXPERTS_FUNCTIONS, "_experts_implementation", "set_experts_implementation"
    ),
}


_ABSENT = object()


class _Registration:
    """Functions in a registry, for as long as a model may look them up there.

    The switch holds it, and so do the models that it switches: a deep copy of one names the
    functions in its own configuration, and goes on working when the original is restored.
    """

    live: ClassVar[weakref.WeakSet[_Registration]] = weakref.WeakSet()
    """All of this process, to see which configurations are held."""

    def __init__(
        self, kind: SwitchKind, config: Any, functions: Mapping[str, Callable[..., Any]]
    ) -> None:
        registry = _DOORS[kind].registry
        self.names = {key: f"gapless_{kind}_{id(self):x}_{key}" for key in functions}
        self._kind = kind
        self._held: weakref.ref[Any] | None = weakref.ref(config)
        for key, function in functions.items():
            registry[self.names[key]] = function
        _Registration.live.add(self)
        weakref.finalize(self, _unregister, registry, tuple(self.names.values())).atexit = False

    def holds(self, kind: SwitchKind, config: Any) -> bool:
        return self._kind == kind and self._held is not None and self._held() is config

    def let_go(self) -> None:
        """The configuration can be switched again; the functions stay for copies of the model."""
        self._held = None

    def __deepcopy__(self, memo: dict[int, Any]) -> _Registration:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickle may be read where the functions are not; it carries the weights all the same.
        return type(None), ()


def _unregister(registry: MutableMapping[str, Callable[..., Any]], names: tuple[str, ...]) -> None:
    for name in names:
        registry.pop(name, None)


def pretrained_model(model: nn.Module) -> Any | None:
    """The outermost transformers model in `model`, also inside a wrapper such as peft's."""
    return next((m for m in model.modules() if isinstance(m, PreTrainedModel)), None)


def model_device(model: nn.Module) -> torch.device:
    """The device of the first parameter. Raises `UsageError` for a model without parameters."""
    parameter = next(model.parameters(), None)
    if parameter is None:
        raise UsageError(f"{type(model).__name__} has no parameters; pass the model to be trained.")
    return parameter.device


def implementation_of(model: nn.Module, kind: SwitchKind) -> str:
    """The implementation in use, by the name that the model's configuration holds."""
    target: Any = pretrained_model(model)
    config = target.config.get_text_config()
    return getattr(config, _DOORS[kind].config_attribute, None) or "eager"


class ImplementationSwitch:
    """Holds one switch of one model: enters our functions, selects by name, restores.

    Raises `UsageError` where the model is not one of transformers', or the switch is held already.
    """

    def __init__(
        self,
        model: nn.Module,
        kind: SwitchKind,
        functions: Mapping[str, Callable[..., Any]],
    ) -> None:
        target = pretrained_model(model)
        if target is None:
            raise UsageError(
                f"{type(model).__name__} holds no transformers model, so its {kind} implementation "
                "cannot be switched; pass a transformers model or a wrapper around one."
            )
        self._target = target
        self._door = _DOORS[kind]
        # The configuration is what the switch changes, so it is what is held; models may share it.
        if any(other.holds(kind, target.config) for other in _Registration.live):
            raise UsageError(
                f"The {kind} implementation of this {type(target).__name__} is already switched by "
                "another attachment; detach that one first."
            )
        self._before = [
            (config, getattr(config, self._door.config_attribute))
            for config in _configs_parents_first(target)
        ]
        self._registration: _Registration | None = _Registration(kind, target.config, functions)
        self._mark = f"_gapless_{kind}_registration"
        self._marks_before = [
            (module, module.__dict__.get(self._mark, _ABSENT)) for module in _models(target)
        ]
        for module, _ in self._marks_before:
            module.__dict__[self._mark] = self._registration

    def use(self, key: str) -> None:
        """Select our function `key`, or the library's own implementation of that name."""
        if self._registration is None:
            raise UsageError(f"Cannot select '{key}': it is detached; attach it again.")
        name = self._registration.names.get(key, key)
        getattr(self._target, self._door.set_method)(name)
        in_use = getattr(self._target.config, self._door.config_attribute)
        if in_use != name:
            raise UsageError(
                f"{type(self._target).__name__} kept the implementation '{in_use}' when asked for "
                f"'{key}'; this model class does not support switching it."
            )

    def restore(self) -> None:
        """Put every configuration and the registry back. Calling it again changes nothing."""
        if self._registration is None:
            return
        # Setting a parent sets its children too, hence parents first.
        for config, implementation in self._before:
            setattr(config, self._door.config_attribute, implementation)
        for module, mark in self._marks_before:
            module.__dict__.pop(self._mark, None)
            if mark is not _ABSENT:
                module.__dict__[self._mark] = mark
        self._registration.let_go()
        self._registration = None
        self._before, self._marks_before = [], []


def _models(target: Any) -> list[Any]:
    """The model and its submodels."""
    return [module for module in target.modules() if isinstance(module, PreTrainedModel)]


def _configs_parents_first(target: Any) -> Iterator[Any]:
    """Every distinct configuration of the model and its submodels, each before its children."""
    seen: set[int] = set()
    waiting = [module.config for module in _models(target)]
    while waiting:
        config = waiting.pop(0)
        if id(config) in seen:
            continue
        seen.add(id(config))
        yield config
        children = (getattr(config, key, None) for key in config.sub_configs)
        waiting.extend(child for child in children if child is not None)
