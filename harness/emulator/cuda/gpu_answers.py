"""What functions of `torch.cuda` answer about the emulated GPU, with torch's own parameters."""

from __future__ import annotations

import contextlib
import itertools
from collections import OrderedDict
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from harness.emulator.tensors.tensor import require_first
from harness.errors import WorkloadError
from harness.record.sync_kinds import SyncKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from harness.clock.gpus import GpuSpec
    from harness.emulator.dispatch.observers import Observers
    from harness.emulator.tensors.device_memory import MemoryBook

Answers = dict[str, Any]

NEEDS_A_GPU = (
    "CUDAPluggableAllocator", "ExternalStream", "GreenContext", "caching_allocator_alloc",
    "caching_allocator_delete", "change_current_allocator", "get_stream_from_external",
)  # fmt: skip
"""Parts of `torch.cuda` that hand out addresses or handles of a real device."""


class _CudaDeviceProperties(SimpleNamespace):
    """Stands for torch's class of the same name."""


class _MemPool:
    """Stands for `torch.cuda.MemPool`: there is one pool."""

    def __init__(
        self,
        allocator: Any = None,
        use_on_oom: bool = False,
        no_split: bool = False,
        enable_pairwise_pack: bool = False,
    ) -> None:
        self.allocator = allocator
        self.id = (0, 1)

    def use_count(self) -> int:
        return 1

    def snapshot(self, include_traces: bool = True) -> list[Any]:
        return []


class _Nvtx:
    """The functions under `torch.cuda.nvtx`, whose ranges nobody records."""

    def rangePushA(self, message: str) -> int:  # noqa: N802 - NVTX's names
        return 0

    def rangePop(self) -> int:  # noqa: N802
        return 0

    def rangeStartA(self, message: str) -> int:  # noqa: N802
        return 0

    def rangeEnd(self, range_id: int) -> None:  # noqa: N802
        return None

    def markA(self, message: str) -> None:  # noqa: N802
        return None

    def deviceRangeStart(self, message: str, stream: int) -> object:  # noqa: N802
        return object()

    def deviceRangeEnd(self, handle: object, stream: int) -> None:  # noqa: N802
        return None


nvtx = _Nvtx()


def device_answers(gpu: GpuSpec) -> Answers:
    """Which device there is, and what it can do."""
    properties = _CudaDeviceProperties(
        name=gpu.name,
        major=gpu.capability[0],
        minor=gpu.capability[1],
        total_memory=gpu.memory_bytes,
        multi_processor_count=gpu.num_multiprocessors,
        is_integrated=gpu.unified_memory,
        is_multi_gpu_board=False,
        warp_size=32,
        max_threads_per_block=1024,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        gcnArchName="",
        uuid="00000000-0000-0000-0000-000000000000",
        pci_bus_id=0,
        pci_device_id=0,
        pci_domain_id=0,
    )

    class device(contextlib.nullcontext):  # type: ignore[type-arg]  # noqa: N801 - torch's own name
        """Stands for `torch.cuda.device`: there is one device."""

        def __init__(self, device: Any) -> None:
            super().__init__()

    class device_of(contextlib.nullcontext):  # type: ignore[type-arg]  # noqa: N801
        """Stands for `torch.cuda.device_of`."""

        def __init__(self, obj: Any) -> None:
            super().__init__()

    major, minor = gpu.capability

    def of_first(answer: Any) -> Callable[..., Any]:
        def about(device: Any = None) -> Any:
            require_first(_index(device))
            return answer

        return about

    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: require_first(_index(device)),
        "device": device,
        "device_of": device_of,
        "get_device_name": of_first(gpu.name),
        "get_device_capability": of_first(gpu.capability),
        "get_device_properties": of_first(properties),
        "get_arch_list": lambda: [f"sm_{major}{minor}"],
        "get_gencode_flags": lambda: (
            f"-gencode compute=compute_{major}{minor},code=sm_{major}{minor}"
        ),
        "is_bf16_supported": lambda including_emulation=True: major >= 8 or including_emulation,
        "is_tf32_supported": lambda: major >= 8,
        "can_device_access_peer": lambda device, peer_device: False,
        "is_current_stream_capturing": lambda: False,
        "ipc_collect": lambda: None,
        "cudart": _cudart,
        "check_error": lambda res: None,
        "current_blas_handle": lambda: 0,
        "current_solver_handle": lambda: 0,
        "utilization": of_first(0),
        "temperature": of_first(0),
        "power_draw": of_first(0),
        "clock_rate": of_first(0),
        "list_gpu_processes": of_first(f"GPU:0\nno processes are running on {gpu.name}"),
        "set_sync_debug_mode": lambda debug_mode: None,
        "get_sync_debug_mode": lambda: 0,
        **{name: _needs_a_gpu(name) for name in NEEDS_A_GPU},
    }


def _index(device: Any) -> int | None:
    if device is None or isinstance(device, int):
        return device
    return torch.device(device).index


def _cudart() -> Any:
    def done(*args: Any) -> int:
        return 0

    return SimpleNamespace(
        cudaProfilerStart=done, cudaProfilerStop=done, cudaHostRegister=done,
        cudaHostUnregister=done,
    )  # fmt: skip


def _needs_a_gpu(name: str) -> type:
    def refuse(cls: type, *args: Any, **kwargs: Any) -> Any:
        raise WorkloadError(
            f"torch.cuda.{name} works with addresses of a real GPU, which an emulated one has not; "
            "leave it out of the audited step."
        )

    # A class, because annotations and `isinstance` name it.
    return type(name, (), {"__new__": refuse})


def memory_answers(gpu: GpuSpec, memory: MemoryBook, observers: Observers) -> Answers:
    """How much memory is taken."""

    def live(device: Any = None) -> int:
        return memory.live_bytes

    def peak(device: Any = None) -> int:
        return memory.peak_bytes

    def reset(device: Any = None) -> None:
        memory.reset_peak()

    def statistics(device: Any = None) -> OrderedDict[str, int]:
        return _statistics(memory)

    def nested(device: Any = None) -> dict[str, Any]:
        tree: dict[str, Any] = {}
        for name, value in _statistics(memory).items():
            *groups, last = name.split(".")
            place = tree
            for group in groups:
                place = place.setdefault(group, {})
            place[last] = value
        return tree

    return {
        **dict.fromkeys(("memory_allocated", "memory_reserved", "memory_cached"), live),
        **dict.fromkeys(("max_memory_allocated", "max_memory_reserved", "max_memory_cached"), peak),
        **dict.fromkeys(
            ("reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached"),
            reset,
        ),
        "device_memory_used": live,
        "memory_usage": lambda device=None: 0,
        "reset_accumulated_memory_stats": lambda device=None: None,
        "memory_stats": statistics,
        "memory_stats_as_nested_dict": nested,
        "host_memory_stats": OrderedDict,
        "host_memory_stats_as_nested_dict": dict,
        "reset_accumulated_host_memory_stats": lambda: None,
        "reset_peak_host_memory_stats": lambda: None,
        "memory_summary": lambda device=None, abbreviated=False: (
            f"emulated {gpu.name}: {memory.live_bytes} bytes live, {memory.peak_bytes} at most"
        ),
        "memory_snapshot": lambda mempool_id=None, include_traces=True: [],
        "mem_get_info": lambda device=None: (
            max(gpu.memory_bytes - memory.live_bytes, 0),
            gpu.memory_bytes,
        ),
        "set_per_process_memory_fraction": lambda fraction, device=None: None,
        "get_per_process_memory_fraction": lambda device=None: 1.0,
        "get_allocator_backend": lambda: "native",
        "caching_allocator_enable": lambda value=True: None,
        "MemPool": _MemPool,
        "use_mem_pool": lambda pool, device=None: contextlib.nullcontext(),
        "graph_pool_handle": lambda: (0, 1),
        # Cached blocks are freed with cudaFree, which waits for the whole device.
        "empty_cache": lambda: observers.tell_api_wait("cudaFree", SyncKind.EMPTY_CACHE),
    }


def _statistics(memory: MemoryBook) -> OrderedDict[str, int]:
    """By the allocator's names; what is not kept is 0."""
    kinds = (
        "allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes",
        "active_bytes", "inactive_split_bytes", "requested_bytes",
    )  # fmt: skip
    pools = ("all", "small_pool", "large_pool")
    found: dict[str, int] = {
        ".".join(parts): 0
        for parts in itertools.product(kinds, pools, ("current", "peak", "allocated", "freed"))
    }
    for kind in ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes"):
        found[f"{kind}.all.current"] = memory.live_bytes
        found[f"{kind}.all.peak"] = memory.peak_bytes
    found |= dict.fromkeys(("num_alloc_retries", "num_ooms", "num_sync_all_streams"), 0)
    return OrderedDict(sorted(found.items()))


def random_answers() -> Answers:
    """The generators: CUDA keeps their state on the host, so neither reading nor setting waits."""

    def set_all(new_states: Iterable[torch.Tensor]) -> None:
        for state in new_states:
            torch.set_rng_state(state)

    return {
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "seed": lambda: None,
        "seed_all": lambda: None,
        "initial_seed": torch.initial_seed,
        "get_rng_state": lambda device="cuda": torch.get_rng_state(),
        "get_rng_state_all": lambda: [torch.get_rng_state()],
        "set_rng_state": lambda new_state, device="cuda": torch.set_rng_state(new_state),
        "set_rng_state_all": set_all,
        "default_generators": (torch.default_generator,),
    }


def accelerator_answers(answers: Answers) -> Answers:
    """What `torch.accelerator` says, which asks the same of any device."""
    same = (
        "current_stream", "set_stream", "synchronize", "empty_cache", "memory_allocated",
        "max_memory_allocated", "memory_reserved", "max_memory_reserved",
        "reset_peak_memory_stats", "reset_accumulated_memory_stats", "memory_stats",
    )  # fmt: skip
    dtypes = {torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64}
    return {
        **{name: answers[name] for name in same},
        "is_available": lambda: True,
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "device_count": lambda: 1,
        "current_device_index": lambda: 0,
        "current_device_idx": lambda: 0,
        "set_device_index": answers["set_device"],
        "set_device_idx": answers["set_device"],
        "device_index": lambda device: contextlib.nullcontext(),
        "get_device_capability": lambda device=None: {"supported_dtypes": dtypes},
        "get_memory_info": answers["mem_get_info"],
        "empty_host_cache": lambda: None,
    }
