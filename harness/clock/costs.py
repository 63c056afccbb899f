"""How long the device takes for an op, and how long the host takes to queue it.

A kernel takes the longer of its bytes at memory bandwidth and its FLOPs at the dtype's rate, each
times the share of it that its class reaches (`efficiency.toml`), and never less than the shortest
kernel. Matrix products also pay for tiles that do not fill the last wave of multiprocessors.
"""

from __future__ import annotations

import math
import tomllib
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from harness.clock.queue_timeline import QueueTimes
from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.clock.gpus import GpuSpec
    from harness.clock.op_work import Matrix, Work
    from harness.clock.queue_timeline import WorkKind

_TILE = 128
_PROLOGUE = 192
"""Start and end of a tile, as steps along the inner dimension that take as long."""
_SPLIT = 512
"""Shortest inner length a product is split into to fill the device."""
_FLOPS_BOUND = frozenset({"gemm", "grouped_gemm", "attention_forward", "attention_backward",
                          "convolution"})  # fmt: skip


@dataclass(frozen=True)
class HostTimes:
    """What the host pays, Python included, in nanoseconds."""

    eager_ns: int = 8_000
    """An op called from Python, with the Python around it. Public figure: 8 us for `index_select`,
    19 us for `zeros` and `scatter_add_` on a B200 machine (unslothai/unsloth-zoo #1248)."""
    view_ns: int = 1_800
    autograd_ns: int = 4_500
    """An op that the autograd engine calls, without Python."""
    autograd_view_ns: int = 1_000
    custom_ns: int = 14_000
    """An op of a library outside torch, called from Python."""
    kernel_ns: int = 2_000
    """Each further kernel that one op launches."""
    stream_ns: int = 1_500
    """A call on a stream or event."""
    sync_ns: int = 7_000
    """From the moment the device is done until Python goes on."""
    small_copy_ns: int = 9_000
    """A copy between host and device, before its bytes."""

    def op_ns(self, work: Work, in_autograd: bool) -> int:
        """Host time of one op."""
        if work.kind == "view":
            return self.autograd_view_ns if in_autograd else self.view_ns
        if in_autograd:
            own = self.autograd_ns
        else:
            own = self.eager_ns if work.op.startswith("aten::") else self.custom_ns
        return own + (work.num_kernels - 1) * self.kernel_ns


@dataclass(frozen=True)
class Costs:
    """One device: rates, efficiencies, link and host."""

    gpu: GpuSpec
    efficiency: Mapping[str, float]
    host: HostTimes = field(default_factory=HostTimes)
    queue: QueueTimes = field(default_factory=QueueTimes)
    pageable_gb_per_s: float = 11.0
    """A copy from or to pageable memory goes through a staging buffer, which the host fills."""
    copy_latency_ns: int = 1_800
    curves: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """Measured: class of ops -> (FLOPs or bytes, nanoseconds), rising. They replace rates."""

    def kernel_ns(self, work: Work) -> int:
        """Device time of one op; 0 for a view or for no elements."""
        if work.kind == "view" or not (work.flops if work.matrix else work.num_bytes):
            return 0  # torch returns before it launches anything on no elements
        curve = self.curves.get(work.kind)
        if curve:
            return round(interpolate(curve, work.flops or work.num_bytes))
        share = self.efficiency[work.kind]
        shortest = self.efficiency["kernel_us"] * 1e3 * work.num_kernels
        memory_share = self.efficiency["elementwise"] if work.kind in _FLOPS_BOUND else share
        memory_ns = work.num_bytes / (self.gpu.memory_gb_per_s * memory_share)
        if work.matrix is not None:
            compute_ns = self._matrix_ns(work.matrix, work.dtype, share)
        elif work.flops:
            compute_ns = work.flops / (self._tflops(work.dtype) * share * 1e3)
        else:
            compute_ns = 0.0
        return round(max(memory_ns, compute_ns) + shortest)

    def copy_ns(self, direction: WorkKind, num_bytes: int, pinned: bool | None) -> int:
        """Time of a copy on its engine."""
        if direction == "d2d":
            rate = self.gpu.memory_gb_per_s * self.efficiency["elementwise"] / 2
        elif pinned or self.gpu.unified_memory:
            rate = self.gpu.link_gb_per_s
        else:
            rate = min(self.pageable_gb_per_s, self.gpu.link_gb_per_s)
        return round(self.copy_latency_ns + num_bytes / rate)

    def staging_ns(self, num_bytes: int) -> int:
        """Host time to fill the staging buffer of a pageable copy."""
        return round(num_bytes / self.pageable_gb_per_s)

    def _tflops(self, dtype: str) -> float:
        return self.gpu.tflops.get(dtype, self.gpu.vector_tflops)

    def _matrix_ns(self, matrix: Matrix, dtype: str, share: float) -> float:
        batch, rows, columns, inner = matrix
        units = self.gpu.num_multiprocessors
        # Short sides take a narrower tile, down to 16.
        tile_rows, tile_columns = _tile(rows), _tile(columns)
        tiles = batch * math.ceil(rows / tile_rows) * math.ceil(columns / tile_columns)
        splits = max(1, min(units // tiles, inner // _SPLIT)) if tiles < units else 1
        waves = tiles * splits / units
        # Past a few waves the tail is filled by tiles of other sizes.
        full = math.ceil(waves) if waves < 4 else waves + 0.5
        steps = inner / splits + _PROLOGUE
        tile_flops = 2 * max(tile_rows, 64) * max(tile_columns, 64) * steps
        per_unit = self._tflops(dtype) * share * 1e3 / units
        ns = full * tile_flops / per_unit
        if dtype in ("bfloat16", "float16"):
            if inner % 8:
                ns /= self.efficiency["misaligned_inner"]
            elif columns % 8:
                ns /= self.efficiency["misaligned_columns"]
        return ns


def interpolate(curve: Sequence[tuple[float, float]], amount: float) -> float:
    """Nanoseconds for `amount`, straight between measured points on logarithmic axes.

    Below the first point the time is that point's; beyond the last it grows in proportion.
    """
    if amount <= curve[0][0]:
        return curve[0][1]
    last_amount, last_ns = curve[-1]
    if amount >= last_amount:
        return last_ns * amount / last_amount
    place = bisect_right(curve, amount, key=lambda point: point[0])
    (low, low_ns), (high, high_ns) = curve[place - 1], curve[place]
    part = math.log(amount / low) / math.log(high / low)
    return float(low_ns * (high_ns / low_ns) ** part)


def _tile(length: int) -> int:
    for tile in (16, 32, 64):
        if length <= tile:
            return tile
    return _TILE


@cache
def _tables() -> dict[str, dict[str, Any]]:
    text = resources.files(__package__).joinpath("efficiency.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def catalogue_costs(gpu: GpuSpec) -> Costs:
    """The costs of a GPU as the catalogue has it, not calibrated.

    Raises `UsageError` where nothing says which shares of its rates its architecture reaches.
    """
    vendor = _tables().get(gpu.vendor, {})
    architecture = vendor.get(gpu.architecture)
    shares = _shares(vendor) | _shares(architecture) if architecture is not None else {}
    shares |= gpu.efficiency
    named = {name for table in _tables().values() for name in _shares(table)}
    missing = sorted(named - set(shares))
    if missing:
        raise UsageError(
            f"Nothing says how much of its rates {gpu.key}, of the architecture "
            f"{gpu.vendor}.{gpu.architecture}, reaches for {', '.join(missing)}; add the table "
            f"[{gpu.vendor}.{gpu.architecture}] to efficiency.toml, or give the GPU `efficiency`."
        )
    return Costs(gpu, shares)


def _shares(table: Mapping[str, Any]) -> dict[str, float]:
    """The figures of a table, without its source and the tables inside it."""
    return {name: value for name, value in table.items() if isinstance(value, (int, float))}
