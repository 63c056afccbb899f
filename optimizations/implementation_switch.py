"""Turns one of transformers' implementation switches on a model, and puts it back exactly.

transformers looks up the function for attention and for experts by a name in the model's
configuration, in a registry that is a mapping. Functions entered here are visible to this process
until `restore`; nothing of the library is patched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

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


def pretrained_model(model: nn.Module) -> Any | None:
    """The outermost transformers model in `model`, also inside a wrapper such as peft's."""
    return next((m for m in model.modules() if isinstance(m, PreTrainedModel)), None)


def model_device(model: nn.Module) -> torch.device:
    """The device of the first parameter. Raises `UsageError` for a model without parameters."""
    parameter = next(model.parameters(), None)
    if parameter is None:
        raise UsageError(f"{type(model).__name__} has no parameters; pass the model to be trained.")
    return parameter.device


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
        # The configuration is what the switch changes, so its identity names the place that is
        # held; it stays alive as long as this object, so the number is not used again.
        self._names = {key: f"gapless_{kind}_{id(target.config):x}_{key}" for key in functions}
        if any(name in self._door.registry for name in self._names.values()):
            raise UsageError(
                f"The {kind} implementation of this {type(target).__name__} is already switched by "
                "another attachment; detach that one first."
            )
        self._before = [
            (config, getattr(config, self._door.config_attribute))
            for config in _configs_parents_first(target)
        ]
        for key, function in functions.items():
            self._door.registry[self._names[key]] = function

    def use(self, key: str) -> None:
        """Select our function `key`, or the library's own implementation of that name."""
        if not self._before:
            raise UsageError(f"Cannot select '{key}': it is detached; attach it again.")
        name = self._names.get(key, key)
        getattr(self._target, self._door.set_method)(name)
        in_use = getattr(self._target.config, self._door.config_attribute)
        if in_use != name:
            raise UsageError(
                f"{type(self._target).__name__} kept the implementation '{in_use}' when asked for "
                f"'{key}'; this model class does not support switching it."
            )

    def restore(self) -> None:
        """Put every configuration and the registry back. Calling it again changes nothing."""
        for name in self._names.values():
            if name in self._door.registry:
                del self._door.registry[name]
        # Setting a parent sets its children too, hence parents first.
        for config, implementation in self._before:
            setattr(config, self._door.config_attribute, implementation)
        self._names = {}
        self._before = []


def _configs_parents_first(target: Any) -> Iterator[Any]:
    """Every distinct configuration of the model and its submodels, each before its children."""
    seen: set[int] = set()
    waiting = [m.config for m in target.modules() if isinstance(m, PreTrainedModel)]
    while waiting:
        config = waiting.pop(0)
        if id(config) in seen:
            continue
        seen.add(id(config))
        yield config
        children = (getattr(config, key, None) for key in config.sub_configs)
        waiting.extend(child for child in children if child is not None)
