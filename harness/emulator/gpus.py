"""Which GPU the emulated device claims to be: name, capability and memory, from `gpus.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from harness.errors import UsageError


@dataclass(frozen=True)
class GpuSpec:
    """What `torch.cuda.get_device_properties` answers on the emulated device."""

    key: str
    """Short name that users type, such as `H100`."""
    name: str
    capability: tuple[int, int]
    memory_bytes: int
    num_multiprocessors: int


@cache
def _catalogue() -> dict[str, GpuSpec]:
    text = resources.files(__package__).joinpath("gpus.toml").read_text(encoding="utf-8")
    return {
        key: GpuSpec(
            key=key,
            name=row["name"],
            capability=(row["capability"][0], row["capability"][1]),
            memory_bytes=row["memory_bytes"],
            num_multiprocessors=row["num_multiprocessors"],
        )
        for key, row in tomllib.loads(text).items()
    }


def gpu_names() -> tuple[str, ...]:
    """Short names of all GPUs that can be emulated."""
    return tuple(_catalogue())


def find_gpu(name: str) -> GpuSpec:
    """The GPU with this short name, upper or lower case. Raises `UsageError` for another."""
    for key, spec in _catalogue().items():
        if key.lower() == name.lower().replace(" ", "").replace("-", ""):
            return spec
    known = ", ".join(gpu_names())
    raise UsageError(f"The emulator knows no GPU named {name!r}; choose one of {known}.")
