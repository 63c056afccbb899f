"""Which GPU the emulated device claims to be, and its published rates, from `gpus.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class GpuSpec:
    """What the device answers about itself, and the rates its clock works with."""

    key: str
    """Short name that users type, such as `H100`."""
    name: str
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


@cache
def _catalogue() -> dict[str, GpuSpec]:
    text = resources.files(__package__).joinpath("gpus.toml").read_text(encoding="utf-8")
    return {key: _spec(key, row) for key, row in tomllib.loads(text).items()}


def _spec(key: str, row: dict[str, Any]) -> GpuSpec:
    return GpuSpec(
        key=key,
        **{
            **row,
            "capability": (row["capability"][0], row["capability"][1]),
            "tflops": MappingProxyType(row["tflops"]),
        },
    )


def gpu_names() -> tuple[str, ...]:
    """Short names of all GPUs that can be emulated."""
    return tuple(_catalogue())


def find_gpu(name: str) -> GpuSpec:
    """The GPU with this short name, upper or lower case. Raises `UsageError` for another."""
    for key, spec in _catalogue().items():
        if _plain(key) == _plain(name):
            return spec
    known = ", ".join(gpu_names())
    raise UsageError(f"The emulator knows no GPU named {name!r}; choose one of {known}.")


def _plain(name: str) -> str:
    return name.lower().replace(" ", "").replace("-", "")
