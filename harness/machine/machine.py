"""What this machine is, whether two runs come from the same one, and how finely it can measure."""

from __future__ import annotations

import hashlib
import importlib
import itertools
import json
import os
import platform
import re
import socket
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.counts import counted
from harness.errors import UsageError
from harness.machine.nvml import open_sensors
from harness.record.records import Comparison, Gpu, Machine, Sample
from harness.stats import compare

if TYPE_CHECKING:
    from harness.machine.nvml import GpuSensors

_GIB = 1 << 30
_CPU_INFO = Path("/proc/cpuinfo")
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def describe_machine(device: str) -> Machine:
    """This machine with the device a run uses: `cpu`, `cuda`, `cuda:1` or `emulated:NAME`.

    Imports torch. `UsageError` for a device that is not here.
    """
    import torch

    gpu = None if _is_emulated(device) else _gpu(device)
    short_name = gpu.name if gpu else device
    unsigned = Machine(
        device=_short_name(short_name),
        fingerprint="",
        hostname=socket.gethostname(),
        platform=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        torch=str(torch.__version__),
        transformers=_version("transformers"),
        gapless=_version("gapless") or "unknown",
        cuda=torch.version.cuda,
        cpu_model=_cpu_model(),
        num_cpu_cores=num_usable_cores(),
        num_threads=torch.get_num_threads(),
        memory_bytes=_memory_bytes(),
        governor=_read_line(_GOVERNOR),
        gpus=(gpu,) if gpu else (),
    )
    identity = json.dumps(_identity(unsigned), sort_keys=True)
    fingerprint = hashlib.sha256(identity.encode()).hexdigest()
    return msgspec.structs.replace(unsigned, fingerprint=fingerprint)


def comparable(a: Machine, b: Machine) -> tuple[str, ...]:
    """What differs between two machines so that their runs do not compare; empty if nothing does.

    Each difference reads `torch: 2.11.0 against 2.13.0`. It looks at what the fingerprint is made
    of: not at host name, time, or gapless' own version, since comparing versions is what a team's
    gate is for.
    """
    left, right = _identity(a), _identity(b)
    return tuple(
        f"{name}: {left.get(name) or 'unknown'} against {right.get(name) or 'unknown'}"
        for name in dict.fromkeys((*left, *right))
        if left.get(name) != right.get(name)
    )


def gpu_sensors(device: str) -> GpuSensors | None:
    """Sensors of a CUDA device as torch numbers it; `None` for any other device or without NVML."""
    if not re.fullmatch(r"cuda(:\d+)?", device):
        return None
    import torch

    if not torch.cuda.is_available():
        return None
    index = torch.device(device).index
    index = torch.cuda.current_device() if index is None else index
    # CUDA_VISIBLE_DEVICES renumbers torch's devices but not NVML's, so the UUID tells which it is.
    uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    return open_sensors(None if uuid is None else f"GPU-{uuid}", index)


def num_usable_cores() -> int:
    """Logical cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def clock_resolution_ns(num_readings: int = 20_000) -> int:
    """Smallest step seen between readings of the host clock that times CPU runs."""
    readings = [time.perf_counter_ns() for _ in range(num_readings)]
    steps = (after - before for before, after in itertools.pairwise(readings))
    return min(step for step in steps if step > 0)


def noise_floor(num_blocks: int = 40) -> Comparison:
    """A small, fixed CPU workload against itself: what this machine's noise alone looks like.

    A call takes about a millisecond. The interval's width is the noise; `minimum_detectable` is the
    smallest speedup that this many blocks could show for a step as steady as this one.
    """
    import numpy as np

    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((192, 192), dtype=np.float32)

    def work() -> None:
        product = matrix
        for _ in range(8):
            product = np.tanh(product @ matrix)

    samples: list[Sample] = []
    for block in range(-3, num_blocks):
        for arm in ("a", "b") if rng.random() < 0.5 else ("b", "a"):
            start_ns = time.perf_counter_ns()
            work()
            duration_ms = (time.perf_counter_ns() - start_ns) / 1e6
            samples.append(
                Sample(
                    order=len(samples),
                    block=max(block, -1),
                    arm=arm,
                    phase="batch",
                    duration_ms=duration_ms,
                    warmup=block < 0,
                )
            )
    comparison = compare(samples, arm="b", baseline="a", phase="batch", source="measured")
    if comparison is None:
        raise ValueError(f"num_blocks must be at least 1, not {num_blocks}")
    return comparison


def _identity(machine: Machine) -> dict[str, str | None]:
    """What makes two machines the same for timing. Memory by GiB: kernels reserve some of it."""
    identity: dict[str, str | None] = {
        "device": machine.device,
        "platform": machine.platform,
        "CPU": machine.cpu_model,
        "CPU cores": str(machine.num_cpu_cores),
        "threads": str(machine.num_threads),
        "memory": f"{machine.memory_bytes / _GIB:.0f} GiB",
        "governor": machine.governor,
        "python": machine.python,
        "torch": machine.torch,
        "transformers": machine.transformers,
        "CUDA": machine.cuda,
    }
    for number, gpu in enumerate(machine.gpus):
        prefix = "GPU" if len(machine.gpus) == 1 else f"GPU {number}"
        memory = "" if gpu.memory_bytes is None else f" {gpu.memory_bytes / _GIB:.0f} GiB"
        identity[prefix] = f"{gpu.name}{memory}"
        identity[f"{prefix} driver"] = gpu.driver
        limit_w = gpu.power_limit_w
        identity[f"{prefix} power limit"] = None if limit_w is None else f"{limit_w:.0f} W"
    return identity


def _gpu(device: str) -> Gpu | None:
    """The CUDA device, `None` for the CPU; `UsageError` for anything else or an absent one."""
    import torch

    if device == "cpu":
        return None
    if not re.fullmatch(r"cuda(:\d+)?", device):
        raise UsageError(
            f"{device!r} is not a device: give cpu, cuda, cuda:INDEX or emulated:NAME."
        )
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    index = torch.device(device).index
    if count == 0 or (index is not None and index >= count):
        found = counted(count, "CUDA device") if count else "no CUDA device"
        raise UsageError(
            f"Device {device} is not on this machine, which has {found}: run with --device cpu or "
            "--device emulated:NAME."
        )
    index = torch.cuda.current_device() if index is None else index
    properties = torch.cuda.get_device_properties(index)
    sensors = gpu_sensors(f"cuda:{index}")
    return Gpu(
        name=properties.name,
        index=index,
        memory_bytes=properties.total_memory,
        capability=f"{properties.major}.{properties.minor}",
        driver=sensors.driver() if sensors else None,
        power_limit_w=sensors.power_limit_w() if sensors else None,
    )


def _is_emulated(device: str) -> bool:
    return re.fullmatch(r"emulated:.+", device) is not None


def _short_name(name: str) -> str:
    """`NVIDIA H200` -> `h200`, `emulated:B200` -> `emulated-b200`."""
    lowered = re.sub(r"\b(nvidia|geforce|amd|instinct)\b", "", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", lowered).strip("-") or "gpu"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    try:
        for line in _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown"


def _memory_bytes() -> int:
    try:
        psutil = importlib.import_module("psutil")
    except ImportError:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(psutil.virtual_memory().total)


def _read_line(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None
