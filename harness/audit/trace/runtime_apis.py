"""What a runtime call is, by its name: CUDA runtime, CUDA driver and HIP."""

from __future__ import annotations

import enum
import re

_PREFIX = re.compile(r"(?:cuda|hip|cu)(?=[A-Z])")
_SUFFIX = re.compile(r"(?:_v\d+|_ptsz|_ptds|_spt)+$")
_ALLOCATOR = {"Free", "FreeHost", "HostFree", "Malloc", "MallocHost", "HostAlloc", "HostMalloc"}


class ApiRole(enum.IntEnum):
    """What a call does to the device queue, or to the host that makes it."""

    OTHER = 0
    LAUNCH = 1
    """Queues kernels; the host goes on."""
    ASYNC_COPY = 2
    """Queues a copy; waits all the same where the host memory is pageable."""
    BLOCKING_COPY = 3
    MEMSET = 4
    SYNCHRONIZE = 5
    ALLOCATOR = 6
    """Device and pinned memory; freeing waits for the device."""
    EVENT = 7
    """Records an event, or makes a stream (not the host) wait for one."""

    @property
    def blocks(self) -> bool:
        """Whether the name alone says that the host waits."""
        return self in (ApiRole.BLOCKING_COPY, ApiRole.SYNCHRONIZE)


def base_name(api: str) -> str:
    """The name without vendor prefix and version suffix: `StreamSynchronize`; "" for others."""
    prefix = _PREFIX.match(api)
    return "" if prefix is None else _SUFFIX.sub("", api[prefix.end() :])


def api_role(api: str) -> ApiRole:
    """The role of a runtime or driver call."""
    name = base_name(api)
    if name.endswith("Synchronize"):
        return ApiRole.SYNCHRONIZE
    if name.startswith("Memcpy"):
        return ApiRole.ASYNC_COPY if "Async" in name else ApiRole.BLOCKING_COPY
    if name.startswith("Memset"):
        return ApiRole.MEMSET
    if "Launch" in name and "Attribute" not in name and "Config" not in name:
        return ApiRole.LAUNCH
    if name.startswith(("StreamWaitEvent", "EventRecord")):
        return ApiRole.EVENT
    if name in _ALLOCATOR:
        return ApiRole.ALLOCATOR
    return ApiRole.OTHER


def is_device_wide(api: str) -> bool:
    """Whether a synchronise waits for the whole device, as the profiler's own does."""
    return base_name(api) in ("DeviceSynchronize", "CtxSynchronize")
