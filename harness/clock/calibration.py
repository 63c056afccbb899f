"""Measured costs of the machine at hand, kept as a profile that takes the catalogue's place.

A profile holds the time of each class of ops as a function of its work, and the host's time for a
call. `gapless calibrate` makes one in under a minute; from then on it is used wherever the clock
models that device.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.boundary.atomic_files import replace_file
from harness.boundary.bounded_reads import read_regular
from harness.clock.costs import Costs, HostTimes, catalogue_costs
from harness.errors import StoreError
from harness.record.records import Record

if TYPE_CHECKING:
    from harness.clock.gpus import GpuSpec

FOLDER_VARIABLE = "GAPLESS_PROFILES"
"""Environment variable that names the folder of profiles."""
_MAX_PROFILE_BYTES = 16 << 20


class Profile(Record, frozen=True, kw_only=True):
    """What one device was measured to cost."""

    key: str
    """`cpu`, or the GPU's key in the catalogue."""
    device: str
    """The device as it names itself."""
    created_utc: str
    torch: str
    num_threads: int
    host_ns: dict[str, int]
    """Fields of `HostTimes` that were measured."""
    curves: dict[str, tuple[tuple[float, float], ...]]
    """Class of ops -> (FLOPs or bytes, nanoseconds), rising."""
    link_gb_per_s: float | None = None
    pageable_gb_per_s: float | None = None


def profile_folder() -> Path:
    """Where profiles are kept: `GAPLESS_PROFILES`, else a folder in the user's cache."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "gapless" / "profiles"


def save_profile(profile: Profile) -> Path:
    """Write a profile over the one of the same key. Raises `StoreError`."""
    path = profile_folder() / f"{profile.key}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, msgspec.json.format(msgspec.json.encode(profile), indent=1))
    except OSError as error:
        raise StoreError(
            f"The profile cannot be written to {path}: {error.strerror}; set {FOLDER_VARIABLE}."
        ) from error
    return path


def load_profile(key: str) -> Profile | None:
    """The stored profile of a device, or `None`. Raises `StoreError` for a damaged one."""
    path = profile_folder() / f"{key}.json"
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(read_regular(path, _MAX_PROFILE_BYTES), type=Profile)
    except (OSError, RecursionError, UnicodeError, msgspec.MsgspecError) as error:
        raise StoreError(f"{path} is no profile ({error}); make it anew: gapless calibrate.") from (
            error
        )


def costs_for(gpu: GpuSpec) -> Costs:
    """The costs of a GPU: its calibrated profile where one is stored, else the catalogue's."""
    costs, profile = catalogue_costs(gpu), load_profile(gpu.key)
    return costs if profile is None else calibrated(costs, profile)


def calibrated(costs: Costs, profile: Profile) -> Costs:
    """`costs` with all that the profile has measured."""
    gpu = costs.gpu
    if profile.link_gb_per_s is not None:
        gpu = replace(gpu, link_gb_per_s=profile.link_gb_per_s)
    return replace(
        costs,
        gpu=gpu,
        host=replace(HostTimes(), **profile.host_ns),
        curves=profile.curves,
        pageable_gb_per_s=profile.pageable_gb_per_s or costs.pageable_gb_per_s,
    )
