"""Tables that only a trace gives. Times are per step where the trace marks steps."""

from __future__ import annotations

from typing import Literal

from harness.record.records import Record


class SiteCost(Record, frozen=True, kw_only=True):
    """What the syncs at one site cost. `site` is its index in `AuditReport.sites`."""

    site: int
    api: tuple[str, ...]
    """Runtime calls that waited."""
    op_chain: tuple[str, ...]
    """Enclosing ops, outermost first."""
    owner: Literal["op", "python", "annotation", "context", "none"]
    """What the site is named after. `context`: nothing encloses it, so it is the span before it."""
    called_from: str | None = None
    """`file:line function` of the innermost frame outside torch and known libraries."""
    autograd_node: str | None = None
    forward_op: str | None = None
    """Op of the forward pass that this backward sync belongs to."""
    thread: str | None = None
    count: int
    """Syncs over the whole trace."""
    blocked_ms: float
    blocked_device_busy_ms: float
    """Part of the blocked time in which the device worked: nothing was lost yet."""
    blocked_device_idle_ms: float
    idle_to_next_launch_ms: float
    """Device idle from the sync until the next launch reached the device, host work included."""
    exposed_ms: float
    saving_low_ms: float
    """Saving if the site is removed and the next blocking call waits instead, except for the time
    that the work queued before it can fill."""
    saving_high_ms: float
    """Saving if the site is removed and no later call waits longer: the host is earlier by all the
    blocked time, which may fill idle time anywhere later."""
    saving_replayed_ms: float | None = None
    """Shorter span when the trace is replayed without the site's syncs (modelled)."""
    bytes_per_call: int | None = None


class KernelTotal(Record, frozen=True, kw_only=True):
    """All launches of one kernel."""

    name: str
    count: int
    total_ms: float
    mean_us: float
    share: float
    """Of the summed kernel time, 0 to 1."""


class StreamUse(Record, frozen=True, kw_only=True):
    """One stream."""

    device: str
    stream: str
    busy_ms: float
    compute_ms: float
    communication_ms: float
    copy_ms: float
    num_kernels: int


class DeviceUse(Record, frozen=True, kw_only=True):
    """One device of a trace that holds several."""

    device: str
    span_ms: float
    busy_ms: float
    idle_ms: float


class QueueDepth(Record, frozen=True, kw_only=True):
    """Launches made whose kernel has not started yet, over the span of the device."""

    mean: float
    median: float
    p90: float
    maximum: int
    empty_share: float
    """Share of the span in which nothing was queued, 0 to 1."""
    time_ms: tuple[float, ...] = ()
    """Moments since the start of the span."""
    depth: tuple[float, ...] = ()
    """Mean depth from each moment to the next."""


class PollingLoop(Record, frozen=True, kw_only=True):
    """The same small read made again and again inside one call."""

    site: int
    scope: str
    """Module or annotation whose call holds them."""
    calls: int
    reads_per_call: float
    max_reads_per_call: int
    blocked_ms: float
    exposed_ms: float


class RepeatedUpload(Record, frozen=True, kw_only=True):
    """Host-to-device copies of equal size and shape from one place."""

    op: str
    where: str | None
    shape: str | None
    bytes_per_copy: int
    count_per_step: float
    memory: str
    total_ms: float


SMALL_KERNEL_US = 10.0
"""About what one launch costs the host."""


class SmallKernels(Record, frozen=True, kw_only=True):
    """Kernels shorter than a launch takes."""

    threshold_us: float
    count_share: float
    time_share: float
    num_kernels: int | None = None
    """All kernels, small or not."""


class StepUse(Record, frozen=True, kw_only=True):
    """One profiler step, as the host marked it."""

    name: str
    duration_ms: float
    syncs: int
    blocked_ms: float
    exposed_ms: float
    device_busy_ms: float


class RankUse(Record, frozen=True, kw_only=True):
    """One rank of a folder of traces."""

    file: str
    rank: int | None
    steps: int | None
    syncs_per_step: float | None
    span_ms: float | None
    idle_ms: float | None
    exposed_ms: float | None
    communication_ms: float | None


class ImplicitCalls(Record, frozen=True, kw_only=True):
    """Memory management calls, which can wait for the device implicitly."""

    api: str
    count: int
    total_ms: float


class CallLine(Record, frozen=True, kw_only=True):
    """A source line that made the host wait, as seen in process with the whole Python stack."""

    file: str
    line: int
    function: str
    code: str | None = None
    thread: str
    num_callbacks: int
    """Syncs reported by torch's GPU-trace callbacks."""
    num_warnings: int
    """Syncs reported by torch's sync debug mode."""
    kinds: tuple[str, ...]
    """`stream`, `device`, `event`: what was waited for."""


class SyncAgreement(Record, frozen=True, kw_only=True):
    """The same steps seen by three counters. They differ for known reasons, given in `remarks`."""

    profiler: int
    """Syncs in the profiler's trace, its own left out."""
    callbacks: int
    warnings: int
    remarks: tuple[str, ...] = ()


class TraceDetails(Record, frozen=True, kw_only=True):
    """Tables of a trace audit."""

    sites: tuple[SiteCost, ...] = ()
    blocked_ms: float | None = None
    """Union of all syncs of all threads."""
    exposed_ms: float | None = None
    """Sum over sites; never more than the idle time."""
    communication_ms: float | None = None
    communication_exposed_ms: float | None = None
    """Communication with no compute kernel beside it."""
    compute_ms: float | None = None
    copy_ms: float | None = None
    copy_exposed_ms: float | None = None
    """Copies with neither compute nor communication beside them."""
    copies_on_compute_stream: int | None = None
    steps: tuple[StepUse, ...] = ()
    devices: tuple[DeviceUse, ...] = ()
    streams: tuple[StreamUse, ...] = ()
    queue: QueueDepth | None = None
    small_kernels: SmallKernels | None = None
    top_kernels: tuple[KernelTotal, ...] = ()
    polling: tuple[PollingLoop, ...] = ()
    repeated_uploads: tuple[RepeatedUpload, ...] = ()
    implicit_calls: tuple[ImplicitCalls, ...] = ()
    waits_outside_steps: int | None = None
    owned_share: float | None = None
    """Syncs with an owner over all syncs, the profiler's own left out, 0 to 1."""
    ranks: tuple[RankUse, ...] = ()
    call_lines: tuple[CallLine, ...] = ()
    """Live audits only."""
    agreement: SyncAgreement | None = None
    """Live audits only."""
