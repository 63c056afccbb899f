"""Which GPU the emulated device claims to be, and its published rates.

They come from `gpus.toml` and from the entry points `gapless.gpus` of other packages.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from harness import plugins
from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class GpuSpec:
    """What the device answers about itself, and the rates its clock works with."""

    key: str
    """Short name that users type, such as `H100`."""
    name: str
    vendor: str
    """Who makes it, such as `nvidia`; with `architecture` a table of `efficiency.toml`."""
    architecture: str
    """Such as `hopper`. GPUs of one architecture reach the same shares of their rates."""
    capability: tuple[int, int]
    memory_bytes: int
    num_multiprocessors: int
    memory_gb_per_s: float
    vector_tflops: float
    """Dense float32 rate outside the matrix units."""
    tflops: Mapping[str, float]
    """Dense matrix rate by dtype (`bfloat16`, `float16`, `float8`); others use the vector rate."""
    link: str
    """How the host is reached, in words."""
    link_gb_per_s: float
    """What a pinned copy reaches in one direction."""
    source: str
    """Where the figures come from."""
    unified_memory: bool = False
    """Host and device share one memory, so there is no link and nothing to gain by offloading."""
    efficiency: Mapping[str, float] = field(default_factory=dict)
    """Shares of this GPU alone, over those of its architecture; all of them where the architecture
    has no table."""


@cache
def all_gpus() -> Mapping[str, GpuSpec]:
    """Every GPU by its short name. Raises `UsageError` where a plug-in has a name that is taken."""
    text = resources.files(__package__).joinpath("gpus.toml").read_text(encoding="utf-8")
    own = {_plain(key): _spec(key, row) for key, row in tomllib.loads(text).items()}
    found = plugins.merged(
        "GPUs", own, plugins.load(plugins.GPUS, _checked), lambda gpu: _plain(gpu.key)
    )
    return MappingProxyType({gpu.key: gpu for gpu in found.values()})


def _spec(key: str, row: dict[str, Any]) -> GpuSpec:
    return GpuSpec(
        key=key,
        **{
            **row,
            "capability": (row["capability"][0], row["capability"][1]),
            "tflops": MappingProxyType(row["tflops"]),
        },
    )


def _checked(value: object) -> GpuSpec:
    if not isinstance(value, GpuSpec):
        raise UsageError(f"{value!r} is no harness.clock.gpus.GpuSpec")
    if not value.source:
        raise UsageError(f"{value.key} does not say where its figures come from; give `source`")
    return value


def gpu_names() -> tuple[str, ...]:
    """Short names of all GPUs that can be emulated."""
    return tuple(all_gpus())


def find_gpu(name: str) -> GpuSpec:
    """The GPU with this short name, upper or lower case. Raises `UsageError` for another."""
    for key, spec in all_gpus().items():
        if _plain(key) == _plain(name):
            return spec
    known = ", ".join(gpu_names())
    raise UsageError(f"The emulator knows no GPU named {name!r}; choose one of {known}.")


def _plain(name: str) -> str:
    return name.lower().replace(" ", "").replace("-", "")
