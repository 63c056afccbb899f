"""Syncs with one owner are one site: its row in the report, and what it cost."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.audit.trace.api_kinds import wait_kind, waiting_op
from harness.audit.trace.columns import UNKNOWN
from harness.audit.trace.stacks import FrameKind
from harness.audit.trace.use_tables import to_ms
from harness.audit.trace.waits import NO_COPY, copy_kind
from harness.record.audit_report import Site
from harness.record.trace_details import SiteCost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.audit.trace.columns import Int64, Trace
    from harness.audit.trace.exposure import Exposure
    from harness.audit.trace.owners import Owner
    from harness.audit.trace.waits import Waits
    from harness.record.sync_kinds import SyncKind


@dataclass(frozen=True, slots=True)
class SiteGroup:
    """Syncs of one site."""

    owner: Owner
    kind: SyncKind
    waits: Int64
    """Indices into `Waits`."""


def group_sites(
    trace: Trace, waits: Waits, owners: Sequence[Owner], exposure: Exposure
) -> list[SiteGroup]:
    """Sites by exposed time, then blocked time, most costly first."""
    groups: defaultdict[tuple[Owner, SyncKind], list[int]] = defaultdict(list)
    for index, (owner, call, copy) in enumerate(
        zip(owners, waits.call.tolist(), waits.copy.tolist(), strict=True)
    ):
        moved = None if copy == NO_COPY else copy_kind(trace.names[trace.device.name[copy]])
        api = trace.names[trace.calls.name[call]]
        kind = wait_kind(owner.op_chain, int(trace.calls.role[call]), api, moved)
        groups[owner, kind].append(index)
    sites = [
        SiteGroup(owner, kind, np.array(indices, dtype=np.int64))
        for (owner, kind), indices in groups.items()
    ]
    return sorted(
        sites,
        key=lambda site: (
            -int(exposure.exposed[site.waits].sum()),
            -int(waits.blocked[site.waits].sum()),
            -len(site.waits),
        ),
    )


def _calls(waits: Waits, group: SiteGroup) -> int:
    """Calls of the owning op among the syncs: some ops wait twice in one call."""
    op = waiting_op(group.owner.op_chain)
    if op is None:
        return len(group.waits)
    rows = set()
    for index in group.waits.tolist():
        frames = [f for f in waits.stacks[index] if f.kind is FrameKind.OP and f.name == op]
        rows.add(frames[0].row if frames else -index - 1)
    return len(rows)


def _bytes_per_call(trace: Trace, waits: Waits, group: SiteGroup) -> int | None:
    copies = waits.copy[group.waits]
    sizes = trace.device.num_bytes[copies[copies != NO_COPY]]
    sizes = sizes[sizes != UNKNOWN]
    return round(float(sizes.mean())) if len(sizes) else None


def site_row(trace: Trace, waits: Waits, group: SiteGroup, exposure: Exposure, steps: int) -> Site:
    """The row of the common report; figures per step."""
    owner = group.owner
    calls = _calls(waits, group)
    cause = owner.cause
    return Site(
        op=waiting_op(owner.op_chain) or owner.op,
        kind=group.kind,
        phase=owner.phase,
        count_per_step=calls / steps,
        syncs_per_call=len(group.waits) / calls,
        file=cause.file if cause is not None else None,
        line=cause.line if cause is not None else None,
        function=cause.function if cause is not None else owner.context,
        module=owner.module,
        library=str(cause) if cause is not None and cause.in_library else None,
        blocked_ms=to_ms(waits.blocked[group.waits].sum()) / steps,
        exposed_ms=to_ms(exposure.exposed[group.waits].sum()) / steps,
        remedy=group.kind.remedy,
        bytes_per_call=_bytes_per_call(trace, waits, group),
    )


def site_cost(
    trace: Trace,
    waits: Waits,
    group: SiteGroup,
    exposure: Exposure,
    number: int,
    idle_ns: int,
    replayed_ns: int | None,
) -> SiteCost:
    """What the site cost over the whole trace. `idle_ns`: all idle time of the device."""
    chosen = group.waits
    owner = group.owner
    length = waits.end[chosen] - waits.start[chosen]
    busy = exposure.device_busy[chosen].sum()
    exposed = exposure.exposed[chosen]
    blocked = waits.blocked[chosen].sum()
    # Host time that the site gives back can fill idle time anywhere later, not only its own.
    saving_high = min(idle_ns, int(length.sum()))
    apis = {trace.names[trace.calls.name[call]]: None for call in waits.call[chosen].tolist()}
    threads = {trace.threads[thread] for thread in waits.thread[chosen].tolist()}
    return SiteCost(
        site=number,
        api=tuple(apis),
        op_chain=owner.op_chain,
        owner=owner.kind,
        called_from=str(owner.user) if owner.user is not None else None,
        autograd_node=owner.autograd_node,
        forward_op=owner.forward_op,
        thread=", ".join(f"{process}/{thread}" for process, thread in sorted(threads, key=str)),
        count=len(chosen),
        blocked_ms=to_ms(blocked),
        blocked_device_busy_ms=to_ms(busy),
        blocked_device_idle_ms=to_ms(length.sum() - busy),
        idle_to_next_launch_ms=to_ms(exposure.idle_to_launch[chosen].sum()),
        exposed_ms=to_ms(exposed.sum()),
        saving_low_ms=to_ms(np.minimum(exposed, exposure.work_after[chosen]).sum()),
        saving_high_ms=to_ms(saving_high),
        saving_replayed_ms=None if replayed_ns is None else to_ms(min(replayed_ns, saving_high)),
        bytes_per_call=_bytes_per_call(trace, waits, group),
    )
